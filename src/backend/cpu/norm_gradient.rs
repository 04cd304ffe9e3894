//! `LayerNormGrad`: what a normalization gives back to its input row by row, and to weight and bias over all rows.
use super::elementwise::isa::{Isa, versions};
use super::norm::Stats;
use super::parallel;
use super::real::{Float, by_real};
use super::rows::{Lane, OutRows, Row, Rows, rows_per_part, split, sums, walk};
use super::view::View;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::ops::Range;

/// Parts whose sums for weight and bias are added up at the end, at most.
const MAX_PARTS: usize = 64;
/// Elements of all those sums together, about, at most.
const MAX_PART_ELEMS: usize = 1 << 20;

/// The tensors of a launch.
struct Launch<'a> {
    g: &'a View<'a>,
    x: &'a View<'a>,
    weight: Option<&'a View<'a>>,
    rstd: &'a View<'a>,
    mean: Option<&'a View<'a>>,
    dx: Option<&'a View<'a>>,
    /// Gradients of weight and bias.
    params: [Option<&'a View<'a>>; 2],
}

/// `LayerNormGrad`; all sums are in f64, in an order that sizes alone decide.
pub fn run(rms: bool, has_weight: bool, wanted: u8, ins: &[View], outs: &[View]) -> Result<()> {
    let wrong = Error::Internal("layer_norm_gradient: operands");
    let [g, x, rest @ ..] = ins else { return Err(wrong) };
    let (weight, rest) = if has_weight { rest.split_first().map_or((None, rest), |(w, r)| (Some(w), r)) } else { (None, rest) };
    let (rstd, mean) = match rest {
        [rstd] if rms => (rstd, None),
        [rstd, mean] if !rms => (rstd, Some(mean)),
        _ => return Err(wrong),
    };
    let mut outs_left = outs.iter();
    let [dx, dw, db] = [0, 1, 2].map(|bit| if wanted >> bit & 1 == 1 { outs_left.next() } else { None });
    let Some((&n, lead)) = x.shape.split_last() else { return Err(wrong) };
    let is_vector = |v: &View| v.shape == [n] && v.dtype == x.dtype;
    let is_statistic = |v: &View| v.shape == lead && v.dtype == x.dtype.compute();
    let vectors = [weight, dw, db].into_iter().flatten().all(is_vector);
    let statistics = [Some(rstd), mean].into_iter().flatten().all(is_statistic);
    let rows = [Some(g), dx].into_iter().flatten().all(|v| v.shape == x.shape && v.dtype == x.dtype);
    let fits = vectors && statistics && rows && outs.iter().all(View::is_contiguous);
    if !fits || outs.len() != wanted.count_ones() as usize || weight.is_some() != has_weight {
        return Err(wrong);
    }
    let launch = Launch { g, x, weight, rstd, mean, dx, params: [dw, db] };
    by_real!(x.dtype, "layer_norm_gradient: dtype", launch_rows(&launch, n, lead))
}

/// A row's operands.
pub(super) struct RowIn<'a, W> {
    g: &'a [W],
    x: &'a [W],
    stats: Stats<W>,
}

/// A type whose rows have kernels.
trait Kernel: Lane {
    /// The gradient of a row of the input.
    fn input(isa: Isa, centres: bool, row: &RowIn<Self>, weight: Option<&[Self]>, dx: &mut [Self]);

    /// Adds a row's share to the sums for weight and bias.
    fn params(isa: Isa, row: &RowIn<Self>, weight: &mut [f64], bias: &mut [f64]);
}

macro_rules! kernels {
    ($($t:ty, $input:ident, $params:ident;)*) => {$(
        versions!(
            /// The gradient of a row of the input.
            $input(centres: bool, row: &RowIn<$t>, weight: Option<&[$t]>, dx: &mut [$t]) = input_body::<$t>
        );
        versions!(
            /// A row's share of the gradients of weight and bias.
            $params(row: &RowIn<$t>, weight: &mut [f64], bias: &mut [f64]) = params_body::<$t>
        );
        impl Kernel for $t {
            fn input(isa: Isa, centres: bool, row: &RowIn<$t>, weight: Option<&[$t]>, dx: &mut [$t]) {
                // SAFETY: `Isa::get` found the instructions.
                unsafe { $input(isa, centres, row, weight, dx) }
            }
            fn params(isa: Isa, row: &RowIn<$t>, weight: &mut [f64], bias: &mut [f64]) {
                // SAFETY: `Isa::get` found the instructions.
                unsafe { $params(isa, row, weight, bias) }
            }
        }
    )*};
}
kernels! {
    f32, input_f32, params_f32;
    f64, input_f64, params_f64;
}

/// rstd (v - mean(v) - x' mean(v x')) with v = g weight and x' the normalized row; without the middle term unless the row is centred.
///
/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn input_body<W: Lane>(centres: bool, row: &RowIn<W>, weight: Option<&[W]>, dx: &mut [W]) {
    let (RowIn { g, x, stats: [rstd, mean] }, n) = (row, row.x.len() as f64);
    let (rstd, mean) = (*rstd, *mean);
    let products = |v: W, x: W| -> [f64; 2] {
        let (wide, normed): (f64, f64) = (v.into(), ((x - mean) * rstd).into());
        [wide, wide * normed]
    };
    let [first, second] = match weight {
        None => sums([g, x, g], |g, x, _| products(g, x)),
        Some(w) => sums([g, x, w], |g, x, w| products(g * w, x)),
    };
    let shift = if centres { W::of(first / n) } else { W::default() };
    let slope = W::of(second / n);
    match weight {
        None => dx.iter_mut().zip(*g).zip(*x).for_each(|((d, &g), &x)| *d = (g - shift - (x - mean) * rstd * slope) * rstd),
        Some(w) => {
            let rows = dx.iter_mut().zip(*g).zip(*x).zip(w);
            rows.for_each(|(((d, &g), &x), &w)| *d = (g * w - shift - (x - mean) * rstd * slope) * rstd);
        }
    }
}

/// Sums that are not wanted are empty.
///
/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn params_body<W: Lane>(row: &RowIn<W>, weight: &mut [f64], bias: &mut [f64]) {
    let (RowIn { g, x, stats: [rstd, mean] }, both) = (row, weight.len() == bias.len());
    let (rstd, mean) = (*rstd, *mean);
    let product = |g: W, x: W| -> f64 {
        let (g, normed): (f64, f64) = (g.into(), ((x - mean) * rstd).into());
        g * normed
    };
    if both {
        for (((w, b), &g), &x) in weight.iter_mut().zip(bias).zip(*g).zip(*x) {
            *w += product(g, x);
            *b += g.into();
        }
        return;
    }
    weight.iter_mut().zip(*g).zip(*x).for_each(|((w, &g), &x)| *w += product(g, x));
    bias.iter_mut().zip(*g).for_each(|(b, &g)| *b += g.into());
}

fn launch_rows<T: Row<Wide: Kernel>>(l: &Launch, n: usize, lead: &[usize]) -> Result<()> {
    let count: usize = lead.iter().product();
    let [weight, bias] = l.params.map(|p| if p.is_some() { n } else { 0 });
    let each = weight + bias;
    if each == 0 {
        split(count, n, |range| part::<T>(l, lead, range, &mut [], &mut []));
        return Ok(());
    }
    let rows = rows_per_part(count, n, (MAX_PART_ELEMS / each).clamp(1, MAX_PARTS));
    let parts = count.div_ceil(rows).max(1);
    let mut sums = vec![0f64; parts * each];
    {
        let shares: Vec<Mutex<&mut [f64]>> = sums.chunks_mut(each).map(Mutex::new).collect();
        parallel::for_each(parts, |k| {
            let mut share = shares[k].lock();
            let (weight, bias) = share.split_at_mut(weight);
            part::<T>(l, lead, k * rows..((k + 1) * rows).min(count), weight, bias);
        });
    }
    let (total, others) = sums.split_at_mut(each);
    for share in others.chunks(each) {
        total.iter_mut().zip(share).for_each(|(t, s)| *t += s);
    }
    for (view, total) in l.params.iter().flatten().zip(total.chunks(n)) {
        // SAFETY: a vector of `n` elements that only this launch uses.
        unsafe {
            OutRows::<T>::new(view, n).put(0, |to| to.iter_mut().zip(total).for_each(|(t, &s)| *t = <T::Wide as Float>::of(s)))
        };
    }
    Ok(())
}

/// Works on some rows; `weight` and `bias` take their sums, or are empty.
fn part<T: Row<Wide: Kernel>>(l: &Launch, lead: &[usize], range: Range<usize>, weight: &mut [f64], bias: &mut [f64]) {
    let isa = Isa::get();
    let (mut gs, mut xs) = (Rows::<T>::new(l.g), Rows::<T>::new(l.x));
    let mut scale = l.weight.map(Rows::<T>::new);
    // SAFETY: one row.
    let scale = scale.as_mut().map(|v| unsafe { v.at(0) });
    let mut dx = l.dx.map(|v| OutRows::<T>::new(v, v.shape[v.shape.len() - 1]));
    let means = l.mean.unwrap_or(l.rstd);
    walk(lead, [l.g.strides, l.x.strides, l.rstd.strides, means.strides], range, |row, [g, x, rstd, mean]| {
        // SAFETY: the walk stays inside the inputs; the row of the output is this task's own.
        unsafe {
            let statistic = |view: &View, at: isize| *view.as_ptr::<T::Wide>().offset(at);
            let stats = [statistic(l.rstd, rstd), l.mean.map_or(T::Wide::default(), |m| statistic(m, mean))];
            let r = RowIn { g: gs.at(g), x: xs.at(x), stats };
            if let Some(dx) = &mut dx {
                dx.put(row, |d| Kernel::input(isa, l.mean.is_some(), &r, scale, d));
            }
            if weight.len() + bias.len() > 0 {
                Kernel::params(isa, &r, weight, bias);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::walk::sample::{Draw, Sample, same};
    use super::*;
    use crate::dtype::DType;

    /// The three gradients in f64.
    fn reference(rms: bool, g: &[f64], x: &[f64], w: &[f64], stats: (&[f64], &[f64])) -> [Vec<f64>; 3] {
        let n = w.len();
        let (mut dx, mut dw, mut db) = (Vec::new(), vec![0.0; n], vec![0.0; n]);
        for (r, (g, x)) in g.chunks(n).zip(x.chunks(n)).enumerate() {
            let (rstd, mean) = (stats.0[r], if rms { 0.0 } else { stats.1[r] });
            let normed: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
            let v: Vec<f64> = g.iter().zip(w).map(|(g, w)| g * w).collect();
            let first = if rms { 0.0 } else { v.iter().sum::<f64>() / n as f64 };
            let second = v.iter().zip(&normed).map(|(v, x)| v * x).sum::<f64>() / n as f64;
            for i in 0..n {
                dx.push(rstd * (v[i] - first - normed[i] * second));
                dw[i] += g[i] * normed[i];
                db[i] += g[i];
            }
        }
        [dx, dw, db]
    }

    struct Case {
        ins: Vec<Sample>,
        rms: bool,
        has_weight: bool,
    }

    fn case(draw: &mut Draw, dtype: DType, shape: &[usize], rms: bool, has_weight: bool) -> Case {
        let (n, lead) = (shape[shape.len() - 1], &shape[..shape.len() - 1]);
        let value = |d: &mut Draw| d.below(400) as f64 / 63.0 - 3.0;
        let mut ins = vec![Sample::strided(draw, dtype, shape, value), Sample::strided(draw, dtype, shape, value)];
        if has_weight {
            ins.push(Sample::strided(draw, dtype, &[n], value));
        }
        for _ in 0..2 - usize::from(rms) {
            ins.push(Sample::strided(draw, dtype.compute(), lead, |d| d.below(64) as f64 / 64.0 + 0.25));
        }
        Case { ins, rms, has_weight }
    }

    impl Case {
        fn run(&self, wanted: u8) -> Vec<Vec<f64>> {
            let x = &self.ins[1];
            let n = x.shape[x.shape.len() - 1];
            let shapes = [&x.shape[..], &[n], &[n]];
            let outs: Vec<Sample> = (0..3).filter(|b| wanted >> b & 1 == 1).map(|b| Sample::zeros(x.dtype, shapes[b])).collect();
            let ins: Vec<View> = self.ins.iter().map(Sample::view).collect();
            run(self.rms, self.has_weight, wanted, &ins, &outs.iter().map(Sample::view).collect::<Vec<_>>()).unwrap();
            outs.iter().map(Sample::values).collect()
        }

        fn expected(&self) -> [Vec<f64>; 3] {
            let all: Vec<Vec<f64>> = self.ins.iter().map(Sample::values).collect();
            let x = &self.ins[1];
            let ones = vec![1.0; x.shape[x.shape.len() - 1]];
            let (w, stats) = if self.has_weight { (&all[2], &all[3..]) } else { (&ones, &all[2..]) };
            reference(self.rms, &all[0], &all[1], w, (&stats[0], stats.last().unwrap()))
        }
    }

    proptest::proptest! {
        #[test]
        fn as_in_double_precision(seed: u64, rank in 1usize..4, rms: bool, has_weight: bool, wanted in 1u8..8, dtype in 0usize..4) {
            let (dtype, tolerance) = [(DType::F64, 1e-12), (DType::F32, 1e-5), (DType::F16, 2e-3), (DType::BF16, 1.6e-2)][dtype];
            let mut draw = Draw(seed);
            let mut shape = draw.shape(rank);
            shape[rank - 1] = [1, 2, 7, 16, 17, 83][draw.below(6)];
            let case = case(&mut draw, dtype, &shape, rms, has_weight);
            let (got, expected) = (case.run(wanted), case.expected());
            let chosen = (0..3).filter(|b| wanted >> b & 1 == 1).map(|b| &expected[b]);
            for (got, expected) in got.iter().zip(chosen) {
                proptest::prop_assert_eq!(got.len(), expected.len());
                for (g, e) in got.iter().zip(expected) {
                    proptest::prop_assert!((g - e).abs() <= tolerance * (20.0 + e.abs()), "{g} {e}");
                }
            }
        }
    }

    #[test]
    fn t16_many_parts_give_the_bits_that_one_thread_gives() {
        // In f64, where another order of the sums shows.
        let case = case(&mut Draw(5), DType::F64, &[4000, 96], false, true);
        let many = case.run(7);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let one = pool.install(|| case.run(7));
        assert!(many.iter().zip(&one).all(|(a, b)| same(a, b)));
        for (wanted, at) in [(1u8, 0), (2, 1), (4, 2)] {
            assert!(same(&case.run(wanted)[0], &many[at]), "alone as together");
        }
        for (got, expected) in many.iter().zip(case.expected()) {
            assert!(got.iter().zip(&expected).all(|(g, e)| (g - e).abs() <= 1e-12 * (4000.0 + e.abs())));
        }
    }
}
