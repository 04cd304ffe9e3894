//! Softmax and its logarithm along the last axis, stable: the row's largest value is subtracted first.
use super::elementwise::isa::{Isa, versions};
use super::real::{Real, by_real};
use super::view::View;
use super::walk::runs;
use super::{math, parallel};
use crate::error::{Error, Result};
use half::slice::HalfFloatSliceExt;

/// Elements that are worked on side by side; the order of a row's sum depends on its length alone.
const LANES: usize = 16;
/// Elements that are worth a task of their own.
const GRAIN: usize = 16 << 10;

/// Softmax of every row (`log`: its logarithm). Rows with a NaN, an infinity or nothing but -infinity give NaN as in NumPy's formula.
pub fn run(log: bool, ins: &[View], outs: &[View]) -> Result<()> {
    let ([x], [out]) = (ins, outs) else { return Err(Error::Internal("softmax: operands")) };
    if x.shape != out.shape || x.dtype != out.dtype || !out.is_contiguous() {
        return Err(Error::Internal("softmax: output"));
    }
    by_real!(x.dtype, "softmax: dtype", rows(log, x, out))
}

/// What a stored float adds to `Real`: moving whole rows and the row kernel of its compute type.
trait Row: Real {
    /// Widens a row whose elements lie side by side.
    fn read(from: &[Self], to: &mut [Self::Wide]);

    /// Rounds a row to the stored type.
    fn write(from: &[Self::Wide], to: &mut [Self]);

    /// The row in place.
    fn row(isa: Isa, log: bool, row: &mut [Self::Wide]);
}

impl Row for f64 {
    fn read(from: &[f64], to: &mut [f64]) {
        to.copy_from_slice(from);
    }
    fn write(from: &[f64], to: &mut [f64]) {
        to.copy_from_slice(from);
    }
    fn row(_: Isa, log: bool, row: &mut [f64]) {
        let top = row.iter().fold(f64::NEG_INFINITY, |m, &x| if x > m { x } else { m });
        let mut sum = 0.0;
        for x in row.iter_mut() {
            let shifted = *x - top;
            let e = shifted.exp();
            sum += e;
            *x = if log { shifted } else { e };
        }
        let shift = sum.ln();
        row.iter_mut().for_each(|x| *x = if log { *x - shift } else { *x / sum });
    }
}

macro_rules! narrow_row {
    ($($t:ty, $read:ident, $write:ident;)*) => {$(
        impl Row for $t {
            fn read(from: &[$t], to: &mut [f32]) {
                from.$read(to);
            }
            fn write(from: &[f32], to: &mut [$t]) {
                to.$write(from);
            }
            fn row(isa: Isa, log: bool, row: &mut [f32]) {
                // SAFETY: `Isa::get` found the instructions.
                unsafe { row_f32(isa, log, row) }
            }
        }
    )*};
}
narrow_row! {
    f32, clone_into_slice, copy_from_slice;
    half::f16, convert_to_f32_slice, convert_from_f32_slice;
    half::bf16, convert_to_f32_slice, convert_from_f32_slice;
}

/// What the 16-bit floats' slices do by conversion.
trait CloneIntoSlice<T> {
    fn clone_into_slice(&self, to: &mut [T]);
}
impl CloneIntoSlice<f32> for [f32] {
    fn clone_into_slice(&self, to: &mut [f32]) {
        to.copy_from_slice(self);
    }
}

fn rows<T: Row>(log: bool, x: &View, out: &View) -> Result<()>
where
    T::Wide: Default,
{
    let (Some((&n, lead)), Some((&step, lead_strides))) = (x.shape.split_last(), x.strides.split_last()) else {
        return Err(Error::Internal("softmax: no axis"));
    };
    let count: usize = lead.iter().product();
    if n == 0 || count == 0 {
        return Ok(());
    }
    // A row of its own for `runs`, which wants an axis.
    let (lead, lead_strides) = if lead.is_empty() { (&[1][..], &[0][..]) } else { (lead, lead_strides) };
    let row_step = lead_strides[lead.len() - 1];
    let (isa, x, out) = (Isa::get(), *x, *out);
    let per_task = GRAIN.div_ceil(n);
    let tasks = if count * n <= 2 * GRAIN { 1 } else { count.div_ceil(per_task) };
    parallel::for_each(tasks, |t| {
        let range = if tasks == 1 { 0..count } else { t * per_task..((t + 1) * per_task).min(count) };
        let mut wide = vec![T::Wide::default(); n];
        runs(lead, [lead_strides], range, |flat, [offset], len| {
            for r in 0..len {
                // SAFETY: row flat + r of the input, and of the output, where it is this task's own.
                unsafe {
                    let from = x.as_ptr::<T>().cast_const().offset(offset + r as isize * row_step);
                    let to = std::slice::from_raw_parts_mut(out.as_ptr::<T>().add((flat + r) * n), n);
                    if step == 1 {
                        T::read(std::slice::from_raw_parts(from, n), &mut wide);
                    } else {
                        wide.iter_mut().enumerate().for_each(|(i, w)| *w = (*from.offset(i as isize * step)).widen());
                    }
                    T::row(isa, log, &mut wide);
                    T::write(&wide, to);
                }
            }
        });
    });
    Ok(())
}

versions!(
    wide
    /// The f32 row in place.
    row_f32(log: bool, row: &mut [f32]) = row_body
);

/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn row_body(log: bool, row: &mut [f32]) {
    let (full, rest) = row.as_chunks_mut::<LANES>();
    // The rest as one chunk, filled up with what changes neither the largest value nor the sum.
    let mut last = [f32::NEG_INFINITY; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let mut tops = last;
    for chunk in full.iter() {
        for l in 0..LANES {
            tops[l] = if chunk[l] > tops[l] { chunk[l] } else { tops[l] };
        }
    }
    // A NaN is passed over here, or stays if it comes last: either way it reaches the sum.
    let top = fold(tops, |a, b| if b > a { b } else { a });
    let mut sums = [0f64; LANES];
    for chunk in full.iter_mut() {
        add_exp(log, chunk, top, &mut sums);
    }
    if !rest.is_empty() {
        add_exp(log, &mut last, top, &mut sums);
    }
    rest.copy_from_slice(&last[..rest.len()]);
    let sum = fold(sums, |a, b| a + b);
    // Over the whole row, not by chunks, across which the compiler would gather and scatter.
    if log {
        let shift = sum.ln() as f32;
        row.iter_mut().for_each(|x| *x -= shift);
    } else {
        let scale = (1.0 / sum) as f32;
        row.iter_mut().for_each(|x| *x *= scale);
    }
}

/// The lanes' value, halves folded onto each other.
#[inline(always)]
fn fold<T: Copy>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = f(lanes[l], lanes[l + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Shifts a chunk, adds its exponentials to the sums and keeps them unless `log`.
#[inline(always)]
fn add_exp(log: bool, chunk: &mut [f32; LANES], top: f32, sums: &mut [f64; LANES]) {
    // Loops, not `map`, which would be a function of its own without the machine's instructions.
    let mut e = [0f32; LANES];
    for l in 0..LANES {
        chunk[l] -= top;
        e[l] = math::exp(chunk[l]);
    }
    for l in 0..LANES {
        sums[l] += f64::from(e[l]);
    }
    if !log {
        *chunk = e;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use half::{bf16, f16};
    use proptest::prelude::*;

    fn reference(log: bool, row: &[f64]) -> Vec<f64> {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - top).exp()).sum();
        row.iter().map(|x| if log { x - top - sum.ln() } else { (x - top).exp() / sum }).collect()
    }

    fn softmax<T: Copy + Default>(dtype: DType, log: bool, data: &[T], shape: &[usize], strides: &[isize]) -> Vec<T> {
        let mut out = vec![T::default(); shape.iter().product()];
        let own = crate::shape::strides(shape);
        let x = View { ptr: data.as_ptr().cast_mut().cast(), dtype, shape, strides };
        let y = View { ptr: out.as_mut_ptr().cast(), dtype, shape, strides: &own };
        assert_eq!(run(log, &[x], &[y]), Ok(()));
        out
    }

    fn near(a: f64, b: f64, tolerance: f64) -> bool {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * (1.0 + b.abs())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn as_in_double_precision(rows in 0usize..6, n in 0usize..70, log: bool, transposed: bool, scale in 0.1f64..50.0) {
            let value = |r: usize, c: usize| (((r * 131 + c * 7919) % 997) as f64 / 997.0 - 0.5) * scale;
            let strides = if transposed { [1, rows as isize] } else { [n as isize, 1] };
            let mut data = vec![0f64; rows * n];
            for r in 0..rows {
                for c in 0..n {
                    data[(r as isize * strides[0] + c as isize * strides[1]) as usize] = value(r, c);
                }
            }
            let single: Vec<f32> = data.iter().map(|&x| x as f32).collect();
            let halves: Vec<f16> = data.iter().map(|&x| f16::from_f64(x)).collect();
            let brain: Vec<bf16> = data.iter().map(|&x| bf16::from_f64(x)).collect();
            let a = softmax(DType::F64, log, &data, &[rows, n], &strides);
            let b = softmax(DType::F32, log, &single, &[rows, n], &strides);
            let c = softmax(DType::F16, log, &halves, &[rows, n], &strides);
            let d = softmax(DType::BF16, log, &brain, &[rows, n], &strides);
            for r in 0..rows {
                let row = |round: &dyn Fn(f64) -> f64| reference(log, &(0..n).map(|c| round(value(r, c))).collect::<Vec<_>>());
                for i in 0..n {
                    let at = r * n + i;
                    prop_assert!(near(a[at], row(&|x| x)[i], 1e-14));
                    prop_assert!(near(f64::from(b[at]), row(&|x| f64::from(x as f32))[i], 1e-6));
                    prop_assert!(near(c[at].to_f64(), row(&|x| f16::from_f64(x).to_f64())[i], 1e-3));
                    prop_assert!(near(d[at].to_f64(), row(&|x| bf16::from_f64(x).to_f64())[i], 8e-3));
                }
            }
        }
    }

    #[test]
    fn nan_and_infinity_as_in_the_formula() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        for n in [3, 16, 20, 33] {
            for special in [vec![nan], vec![inf], vec![-inf], vec![inf, inf], vec![-inf, nan], vec![inf, nan], vec![-inf; n]] {
                let mut row = vec![1.0f32; n];
                row[..special.len()].copy_from_slice(&special);
                for log in [false, true] {
                    let wide: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
                    let want = reference(log, &wide);
                    let got = softmax(DType::F32, log, &row, &[n], &[1]);
                    let got64 = softmax(DType::F64, log, &wide, &[n], &[1]);
                    for i in 0..n {
                        assert!(near(f64::from(got[i]), want[i], 1e-6), "{row:?} {log} {got:?}");
                        assert!(near(got64[i], want[i], 1e-6), "{row:?} {log} {got64:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn threads_and_broadcast_rows() {
        let data: Vec<f32> = (0..200).map(|i| (i % 13) as f32).collect();
        let one = softmax(DType::F32, false, &data, &[200], &[1]);
        let many = softmax(DType::F32, false, &data, &[700, 2, 200], &[0, 0, 1]);
        assert!(many.chunks(200).all(|row| row == one));
    }
}
