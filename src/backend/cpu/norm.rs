//! `LayerNorm`: rows made to have mean 0 and variance 1, or mean square 1, then scaled and shifted.
use super::elementwise::isa::{Isa, versions};
use super::real::by_real;
use super::rows::{Lane, OutRows, Row, Rows, split, sum, walk};
use super::view::View;
use crate::backend::op::NormForm;
use crate::error::{Error, Result};

/// How a row is normalized.
#[derive(Clone, Copy)]
pub(super) struct How {
    rms: bool,
    eps: f64,
}

/// What a row is scaled and shifted by.
pub(super) struct Affine<'a, W> {
    weight: Option<&'a [W]>,
    bias: Option<&'a [W]>,
}

/// Two statistics of a row: 1 / sqrt(variance + eps), and the mean (0 if that stays).
pub(super) type Stats<W> = [W; 2];

/// `LayerNorm`: outputs y, rstd and unless `rms` the mean. Sums are in f64; a NaN or an infinity makes its row NaN.
pub fn run(form: NormForm, ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
    let ([x, affine @ ..], [y, stats @ ..], [eps]) = (ins, outs, args) else {
        return Err(Error::Internal("layer_norm: operands"));
    };
    let Some((n, lead)) = x.shape.split_last() else { return Err(Error::Internal("layer_norm: no axis")) };
    let is_vector = |v: &View| v.shape == [*n] && v.dtype == x.dtype;
    let is_statistic = |v: &View| v.shape == lead && v.dtype == x.dtype.compute() && v.is_contiguous();
    let counts = affine.len() == usize::from(form.weight) + usize::from(form.bias) && stats.len() == 2 - usize::from(form.rms);
    if !counts || !affine.iter().all(is_vector) || !stats.iter().all(is_statistic) {
        return Err(Error::Internal("layer_norm: operands do not fit"));
    }
    if y.shape != x.shape || y.dtype != x.dtype || !y.is_contiguous() {
        return Err(Error::Internal("layer_norm: output"));
    }
    let how = How { rms: form.rms, eps: f64::from_bits(*eps) };
    let weight = if form.weight { affine.first() } else { None };
    let bias = if form.bias { affine.last() } else { None };
    by_real!(x.dtype, "layer_norm: dtype", rows(how, x, [weight, bias], y, stats))
}

/// A type whose rows have a kernel.
trait Kernel: Lane {
    /// Normalizes a row.
    fn row(isa: Isa, how: How, x: &[Self], affine: &Affine<Self>, y: &mut [Self], stats: &mut Stats<Self>);
}

impl Kernel for f32 {
    fn row(isa: Isa, how: How, x: &[f32], affine: &Affine<f32>, y: &mut [f32], stats: &mut Stats<f32>) {
        // SAFETY: `Isa::get` found the instructions.
        unsafe { row_f32(isa, how, x, affine, y, stats) }
    }
}

impl Kernel for f64 {
    fn row(isa: Isa, how: How, x: &[f64], affine: &Affine<f64>, y: &mut [f64], stats: &mut Stats<f64>) {
        // SAFETY: `Isa::get` found the instructions.
        unsafe { row_f64(isa, how, x, affine, y, stats) }
    }
}

versions!(
    /// A row of f32.
    row_f32(how: How, x: &[f32], affine: &Affine<f32>, y: &mut [f32], stats: &mut Stats<f32>) = row_body::<f32>
);
versions!(
    /// A row of f64.
    row_f64(how: How, x: &[f64], affine: &Affine<f64>, y: &mut [f64], stats: &mut Stats<f64>) = row_body::<f64>
);

/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn row_body<W: Lane>(how: How, x: &[W], affine: &Affine<W>, y: &mut [W], stats: &mut Stats<W>) {
    let n = x.len() as f64;
    let mean = if how.rms { W::default() } else { W::of(sum(x, W::default(), Into::into) / n) };
    let square = |v: W| -> f64 {
        let distance: f64 = (v - mean).into();
        distance * distance
    };
    let rstd = W::of(1.0 / (sum(x, mean, square) / n + how.eps).sqrt());
    match (affine.weight, affine.bias) {
        (None, None) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = (x - mean) * rstd),
        (Some(w), None) => y.iter_mut().zip(x).zip(w).for_each(|((y, &x), &w)| *y = (x - mean) * rstd * w),
        (None, Some(b)) => y.iter_mut().zip(x).zip(b).for_each(|((y, &x), &b)| *y = (x - mean) * rstd + b),
        (Some(w), Some(b)) => {
            y.iter_mut().zip(x).zip(w).zip(b).for_each(|(((y, &x), &w), &b)| *y = (x - mean) * rstd * w + b);
        }
    }
    *stats = [rstd, mean];
}

fn rows<T: Row<Wide: Kernel>>(how: How, x: &View, affine: [Option<&View>; 2], y: &View, stats: &[View]) -> Result<()> {
    let Some((&n, lead)) = x.shape.split_last() else { return Err(Error::Internal("layer_norm: no axis")) };
    let count: usize = lead.iter().product();
    let isa = Isa::get();
    split(count, n, |range| {
        let (mut from, mut to) = (Rows::<T>::new(x), OutRows::<T>::new(y, n));
        let [mut weight, mut bias] = affine.map(|v| v.map(Rows::<T>::new));
        // SAFETY: both are one row.
        let [weight, bias] = [&mut weight, &mut bias].map(|v| v.as_mut().map(|v| unsafe { v.at(0) }));
        let affine = Affine { weight, bias };
        walk(lead, [x.strides], range, |row, [offset]| {
            let mut found = Stats::default();
            // SAFETY: the walk stays inside the input; the row of the output and its statistics are this task's own.
            unsafe {
                let x = from.at(offset);
                to.put(row, |y| Kernel::row(isa, how, x, &affine, y, &mut found));
                for (view, value) in stats.iter().zip(found) {
                    *view.as_ptr::<T::Wide>().add(row) = value;
                }
            }
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::rows::LANES;
    use super::super::walk::sample::{Draw, Sample};
    use super::*;
    use crate::dtype::DType;

    fn reference(rms: bool, eps: f64, row: &[f64]) -> (Vec<f64>, f64, f64) {
        let n = row.len() as f64;
        let mean = if rms { 0.0 } else { row.iter().sum::<f64>() / n };
        let rstd = 1.0 / (row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n + eps).sqrt();
        (row.iter().map(|x| (x - mean) * rstd).collect(), rstd, mean)
    }

    fn near(a: f64, b: f64, tolerance: f64) -> bool {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * (1.0 + b.abs())
    }

    proptest::proptest! {
        #[test]
        fn as_in_double_precision(seed: u64, rank in 1usize..4, parts in 0u8..8, dtype in 0usize..4) {
            let form = NormForm { rms: parts & 1 != 0, weight: parts & 2 != 0, bias: parts & 4 != 0 };
            let (dtype, tolerance) = [(DType::F64, 1e-12), (DType::F32, 2e-6), (DType::F16, 2e-3), (DType::BF16, 1.6e-2)][dtype];
            let mut draw = Draw(seed);
            let mut shape = draw.shape(rank);
            shape[rank - 1] = [1, 2, 7, LANES, LANES + 1, 5 * LANES + 3][draw.below(6)];
            let (n, lead) = (shape[rank - 1], shape[..rank - 1].to_vec());
            let value = |d: &mut Draw| d.below(400) as f64 / 64.0 - 2.0;
            let x = Sample::strided(&mut draw, dtype, &shape, value);
            let w = Sample::strided(&mut draw, dtype, &[n], value);
            let b = Sample::strided(&mut draw, dtype, &[n], value);
            let y = Sample::zeros(dtype, &shape);
            let stats = [Sample::zeros(dtype.compute(), &lead), Sample::zeros(dtype.compute(), &lead)];
            let mut ins = vec![x.view()];
            ins.extend(form.weight.then(|| w.view()));
            ins.extend(form.bias.then(|| b.view()));
            let mut outs = vec![y.view(), stats[0].view()];
            outs.extend((!form.rms).then(|| stats[1].view()));
            run(form, &ins, &outs, &[0.5f64.to_bits()]).unwrap();
            let (xs, ws, bs, ys) = (x.values(), w.values(), b.values(), y.values());
            for (r, row) in xs.chunks(n).enumerate() {
                let (normed, rstd, mean) = reference(form.rms, 0.5, row);
                proptest::prop_assert!(near(stats[0].values()[r], rstd, 2e-6) && near(stats[1].values()[r], mean, 2e-6));
                for i in 0..n {
                    let expected = normed[i] * if form.weight { ws[i] } else { 1.0 } + if form.bias { bs[i] } else { 0.0 };
                    proptest::prop_assert!(near(ys[r * n + i], expected, tolerance), "{} {expected}", ys[r * n + i]);
                }
            }
        }
    }

    #[test]
    fn t14_long_rows_are_accurate_and_threads_change_nothing() {
        let form = NormForm { rms: false, weight: false, bias: false };
        let (n, count) = (1 << 17, 3);
        let data: Vec<f64> = (0..n * count).map(|i| f64::from(100.0 + (i % 1009) as f32 / 1009.0)).collect();
        let x = Sample::of(DType::F32, &[count, n], &data);
        let y = Sample::zeros(DType::F32, &[count, n]);
        let stats = [Sample::zeros(DType::F32, &[count]), Sample::zeros(DType::F32, &[count])];
        run(form, &[x.view()], &[y.view(), stats[0].view(), stats[1].view()], &[0f64.to_bits()]).unwrap();
        for (r, row) in data.chunks(n).enumerate() {
            let (_, rstd, mean) = reference(false, 0.0, row);
            assert!((stats[1].values()[r] - mean).abs() < 1e-7 * mean);
            assert!((stats[0].values()[r] - rstd).abs() < 1e-6 * rstd);
            let alone = Sample::of(DType::F32, &[n], row);
            let (one, s) = (Sample::zeros(DType::F32, &[n]), [Sample::zeros(DType::F32, &[]), Sample::zeros(DType::F32, &[])]);
            run(form, &[alone.view()], &[one.view(), s[0].view(), s[1].view()], &[0f64.to_bits()]).unwrap();
            assert!(one.values() == y.values()[r * n..][..n]);
        }
    }
}
