//! Softmax and its logarithm along the last axis, stable: the row's largest value is subtracted first.
use super::elementwise::isa::{Isa, versions};
use super::math;
use super::real::{Float, by_real};
use super::rows::{LANES, Lane, OutRows, Row, Rows, filled, fold, largest, split, walk};
use super::view::View;
use crate::error::{Error, Result};

/// Softmax of every row (`log`: its logarithm), of all its elements or of those that a `causal` one sees. Rows with a NaN, an infinity or nothing but -infinity give NaN as in NumPy's formula.
pub fn run(log: bool, causal: bool, ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
    let ([x], [out]) = (ins, outs) else { return Err(Error::Internal("softmax: operands")) };
    if x.shape != out.shape || x.dtype != out.dtype || !out.is_contiguous() {
        return Err(Error::Internal("softmax: output"));
    }
    let how = How { log, causal, scale: args.first().map(|&bits| f64::from_bits(bits)) };
    by_real!(x.dtype, "softmax: dtype", rows(how, x, out))
}

/// Which softmax, and of what multiple of the input.
#[derive(Clone, Copy)]
struct How {
    log: bool,
    causal: bool,
    scale: Option<f64>,
}

/// A type whose rows have a kernel.
trait Kernel: Lane {
    /// The row in place.
    fn row(isa: Isa, log: bool, row: &mut [Self]);
}

impl Kernel for f64 {
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

impl Kernel for f32 {
    fn row(isa: Isa, log: bool, row: &mut [f32]) {
        // SAFETY: `Isa::get` found the instructions.
        unsafe { row_f32(isa, log, row) }
    }
}

fn rows<T: Row<Wide: Kernel>>(how: How, x: &View, out: &View) -> Result<()> {
    let Some((&n, lead)) = x.shape.split_last() else { return Err(Error::Internal("softmax: no axis")) };
    let count: usize = lead.iter().product();
    if n == 0 || count == 0 {
        return Ok(());
    }
    let (isa, matrix) = (Isa::get(), lead.last().copied().unwrap_or(1));
    let scale = how.scale.map(<T::Wide as Float>::of);
    split(count, n, |range| {
        let (mut from, mut to) = (Rows::<T>::new(x), OutRows::<T>::new(out, n));
        walk(lead, [x.strides], range, |row, [offset]| {
            let seen = if how.causal { n.min(row % matrix + 1) } else { n };
            // SAFETY: the walk stays inside the input; the row of the output is this task's own.
            unsafe {
                let x = from.at(offset);
                to.put(row, |y| {
                    let (y, unseen) = y.split_at_mut(seen);
                    match scale {
                        None => y.copy_from_slice(&x[..seen]),
                        Some(s) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * s),
                    }
                    Kernel::row(isa, how.log, y);
                    unseen.fill(Default::default());
                });
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
    let top = largest(row);
    let (full, rest) = row.as_chunks_mut::<LANES>();
    // The rest as one chunk, filled up with what does not change the sum.
    let mut last = filled(rest, f32::NEG_INFINITY);
    // A NaN that `largest` passed over reaches the sum.
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
        assert_eq!(run(log, false, &[x], &[y], &[]), Ok(()));
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
    fn causal_rows_see_half_of_what_is_not_later() {
        for (rows, n) in [(5, 7), (40, 40), (9, 4)] {
            let data: Vec<f32> = (0..3 * rows * n).map(|i| ((i * 37) % 29) as f32 / 7.0).collect();
            let (shape, strides) = ([3, rows, n], [(rows * n) as isize, n as isize, 1]);
            let mut out = vec![f32::NAN; data.len()];
            let x = View { ptr: data.as_ptr().cast_mut().cast(), dtype: DType::F32, shape: &shape, strides: &strides };
            let y = View { ptr: out.as_mut_ptr().cast(), ..x };
            assert_eq!(run(false, true, &[x], &[y], &[0.5f64.to_bits()]), Ok(()));
            let data: Vec<f32> = data.iter().map(|x| x * 0.5).collect();
            for (r, (x, y)) in data.chunks(n).zip(out.chunks(n)).enumerate() {
                let seen = n.min(r % rows + 1);
                assert!(
                    y[..seen] == softmax(DType::F32, false, &x[..seen], &[seen], &[1]) && y[seen..].iter().all(|&v| v == 0.0)
                );
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
