//! Running sums and products along an axis: floats accumulate in f64, integers wrap.
use super::elementwise::round_bits;
use super::parallel;
use super::view::View;
use super::walk::runs;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape;
use half::{bf16, f16};
use smallvec::SmallVec;

/// Lines that advance side by side: their additions do not wait for each other.
const LANES: usize = 32;
/// Elements that are worth a task of their own.
const GRAIN: usize = 32 << 10;

/// Running sum, from the end if `reverse`.
pub fn cumsum(axis: usize, reverse: bool, ins: &[View], outs: &[View]) -> Result<()> {
    run(axis, reverse, false, ins, outs)
}

/// Running product.
pub fn cumprod(axis: usize, ins: &[View], outs: &[View]) -> Result<()> {
    run(axis, false, true, ins, outs)
}

fn run(axis: usize, reverse: bool, product: bool, ins: &[View], outs: &[View]) -> Result<()> {
    let ([x], [out]) = (ins, outs) else { return Err(Error::Internal("cumulative: operands")) };
    if axis >= x.shape.len() || x.shape != out.shape || x.dtype != out.dtype || !out.is_contiguous() {
        return Err(Error::Internal("cumulative: output"));
    }
    let call = match x.dtype {
        DType::F32 => lines::<f32>,
        DType::F64 => lines::<f64>,
        DType::F16 => lines::<f16>,
        DType::BF16 => lines::<bf16>,
        DType::I64 => lines::<i64>,
        DType::I32 => lines::<i32>,
        DType::U8 => lines::<u8>,
        DType::Bool => return Err(Error::Internal("cumulative: bool")),
    };
    call(axis, reverse, product, x, out);
    Ok(())
}

/// A stored number and its accumulator.
trait Sums: Copy + Send + Sync + 'static {
    type Wide: Copy;
    const ZERO: Self::Wide;
    const ONE: Self::Wide;
    fn plus(sum: Self::Wide, x: Self) -> Self::Wide;
    fn times(sum: Self::Wide, x: Self) -> Self::Wide;
    fn narrow(sum: Self::Wide) -> Self;
}

macro_rules! sums {
    ($($t:ty, $wide:ty, $zero:literal, $one:literal, $plus:expr, $times:expr, $widen:expr, $narrow:expr;)*) => {$(
        impl Sums for $t {
            type Wide = $wide;
            const ZERO: $wide = $zero;
            const ONE: $wide = $one;
            #[inline(always)]
            fn plus(sum: $wide, x: $t) -> $wide {
                $plus(sum, $widen(x))
            }
            #[inline(always)]
            fn times(sum: $wide, x: $t) -> $wide {
                $times(sum, $widen(x))
            }
            #[inline(always)]
            fn narrow(sum: $wide) -> $t {
                $narrow(sum)
            }
        }
    )*};
}
sums! {
    f32, f64, 0.0, 1.0, |s, x| s + x, |s, x| s * x, f64::from, |s| s as f32;
    f64, f64, 0.0, 1.0, |s, x| s + x, |s, x| s * x, |x| x, |s| s;
    f16, f64, 0.0, 1.0, |s, x| s + x, |s, x| s * x, f64::from, |s| f16::from_bits(round_bits(s, DType::F16));
    bf16, f64, 0.0, 1.0, |s, x| s + x, |s, x| s * x, f64::from, |s| bf16::from_bits(round_bits(s, DType::BF16));
    i64, i64, 0, 1, i64::wrapping_add, i64::wrapping_mul, |x| x, |s| s;
    i32, i32, 0, 1, i32::wrapping_add, i32::wrapping_mul, |x| x, |s| s;
    u8, u8, 0, 1, u8::wrapping_add, u8::wrapping_mul, |x| x, |s| s;
}

/// Goes along every line of the axis, a few neighbouring lines at a time.
fn lines<T: Sums>(axis: usize, reverse: bool, product: bool, x: &View, out: &View) {
    let n = x.shape[axis];
    let own = shape::strides(out.shape);
    // The other axes; one of size 1 stands in if there is none.
    let mut others: SmallVec<[usize; 4]> = x.shape.into();
    let (mut from, mut to): (SmallVec<[isize; 4]>, _) = (x.strides.into(), own.clone());
    others.remove(axis);
    from.remove(axis);
    to.remove(axis);
    if others.is_empty() {
        others.push(1);
        from.push(0);
        to.push(0);
    }
    let last = others.len() - 1;
    let (x, out) = (*x, *out);
    let count: usize = if n == 0 { 0 } else { others.iter().product() };
    parallel::ranges(count, GRAIN / n.max(1), |range| {
        runs(&others, [&from, &to], range, |_, [a, b], len| {
            for l in (0..len).step_by(LANES) {
                let skip = l as isize;
                let (mut lanes, width) =
                    (Lanes { from: x.as_ptr::<T>(), to: out.as_ptr::<T>(), ..Lanes::EMPTY }, LANES.min(len - l));
                (lanes.from_step, lanes.to_step) = (from[last], to[last]);
                (lanes.from_next, lanes.to_next) = (x.strides[axis], own[axis]);
                // SAFETY: the offsets are those of the first elements of lines inside the views; each line is one task's.
                unsafe {
                    lanes.from = lanes.from.offset(a + skip * lanes.from_step);
                    lanes.to = lanes.to.offset(b + skip * lanes.to_step);
                    if reverse {
                        let end = n as isize - 1;
                        lanes.from = lanes.from.offset(end * lanes.from_next);
                        lanes.to = lanes.to.offset(end * lanes.to_next);
                        (lanes.from_next, lanes.to_next) = (-lanes.from_next, -lanes.to_next);
                    }
                    if product { lanes.run(n, width, T::ONE, T::times) } else { lanes.run(n, width, T::ZERO, T::plus) }
                }
            }
        });
    });
}

/// Neighbouring lines: where they start, the steps to the neighbour and along the line.
struct Lanes<T> {
    from: *mut T,
    to: *mut T,
    from_step: isize,
    to_step: isize,
    from_next: isize,
    to_next: isize,
}

impl<T: Sums> Lanes<T> {
    const EMPTY: Lanes<T> =
        Lanes { from: std::ptr::null_mut(), to: std::ptr::null_mut(), from_step: 0, to_step: 0, from_next: 0, to_next: 0 };

    /// Runs `width` lines over `n` elements.
    ///
    /// # Safety
    /// The lines lie in memory that is good for reading, and for writing at `to`.
    unsafe fn run(self, n: usize, width: usize, start: T::Wide, step: impl Fn(T::Wide, T) -> T::Wide) {
        let mut sums = [start; LANES];
        for i in 0..n as isize {
            for (l, sum) in sums[..width].iter_mut().enumerate() {
                let l = l as isize;
                // SAFETY: element i of line l, both below what the caller vouches for.
                unsafe {
                    *sum = step(*sum, *self.from.offset(i * self.from_next + l * self.from_step));
                    *self.to.offset(i * self.to_next + l * self.to_step) = T::narrow(*sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scanned<T: Copy + Default>(
        dtype: DType,
        data: &[T],
        first: usize,
        shape: &[usize],
        strides: &[isize],
        axis: usize,
        (reverse, product): (bool, bool),
    ) -> Vec<T> {
        let mut out = vec![T::default(); shape.iter().product()];
        let own = crate::shape::strides(shape);
        let x = View { ptr: data[first..].as_ptr().cast_mut().cast(), dtype, shape, strides };
        let y = View { ptr: out.as_mut_ptr().cast(), dtype, shape, strides: &own };
        let done = if product { cumprod(axis, &[x], &[y]) } else { cumsum(axis, reverse, &[x], &[y]) };
        assert_eq!(done, Ok(()));
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn as_one_by_one(
            shape in prop::collection::vec(prop_oneof![Just(0usize), Just(1), 2usize..9, Just(37)], 1..4), axis in 0usize..3,
            reverse: bool, product: bool, flip: bool, swap: bool,
        ) {
            let (rank, reverse) = (shape.len(), reverse && !product);
            let axis = axis % rank;
            let mut stored = shape.clone();
            if swap { stored.reverse(); }
            let mut strides = crate::shape::strides(&stored).to_vec();
            if swap { strides.reverse(); }
            let elems: usize = shape.iter().product();
            let first = if flip && elems > 0 { shape.iter().zip(&strides).map(|(&d, &s)| d.saturating_sub(1) * s as usize).sum() } else { 0 };
            if flip { strides.iter_mut().for_each(|s| *s = -*s); }
            let ints: Vec<i64> = (0..=elems as i64).map(|i| i * 7 % 5 - 2).collect();
            let floats: Vec<f32> = ints.iter().map(|&i| i as f32).collect();
            let small: Vec<i32> = ints.iter().map(|&i| i as i32).collect();
            let halves: Vec<f16> = ints.iter().map(|&i| f16::from_f64(i as f64)).collect();
            let got = scanned(DType::I64, &ints, first, &shape, &strides, axis, (reverse, product));
            let got32 = scanned(DType::I32, &small, first, &shape, &strides, axis, (reverse, product));
            let gotf = scanned(DType::F32, &floats, first, &shape, &strides, axis, (reverse, product));
            let goth = scanned(DType::F16, &halves, first, &shape, &strides, axis, (reverse, product));
            let own = crate::shape::strides(&shape);
            for flat in 0..elems {
                let index: Vec<usize> = (0..rank).map(|i| flat / own[i] as usize % shape[i]).collect();
                let range = if reverse { index[axis]..shape[axis] } else { 0..index[axis] + 1 };
                let (mut sum, mut sumf) = if product { (1i64, 1f64) } else { (0, 0.0) };
                for i in range {
                    let mut at = index.clone();
                    at[axis] = i;
                    let offset: isize = at.iter().zip(&strides).map(|(&i, &s)| i as isize * s).sum();
                    let x = ints[(first as isize + offset) as usize];
                    sum = if product { sum.wrapping_mul(x) } else { sum.wrapping_add(x) };
                    sumf = if product { sumf * x as f64 } else { sumf + x as f64 };
                }
                prop_assert_eq!(got[flat], sum);
                prop_assert_eq!(got32[flat], sum as i32);
                prop_assert_eq!(gotf[flat], sumf as f32);
                prop_assert_eq!(goth[flat], f16::from_f64(sumf));
            }
        }
    }

    #[test]
    fn halves_round_once_beside_a_tie() {
        let one = bf16::from_f32(1.0);
        let small = [bf16::from_f64(2f64.powi(-8)), bf16::from_f64(2f64.powi(-40)), one];
        let sums = scanned(DType::BF16, &small, 0, &[3], &[1], 0, (true, false));
        assert_eq!(sums[0], bf16::from_f64(1.0 + 2f64.powi(-7)));
        let x = [f16::from_f64(2f64.powi(-24)), f16::from_f64(2f64.powi(-11)), f16::from_f32(1.0)];
        let sums = scanned(DType::F16, &x, 0, &[3], &[1], 0, (true, false));
        assert_eq!(sums[0].to_bits(), 0x3c01);
    }

    #[test]
    fn nan_spreads_and_bytes_wrap() {
        let x = scanned(DType::F32, &[1.0, f32::NAN, 2.0], 0, &[3], &[1], 0, (false, false));
        assert!(x[0] == 1.0 && x[1].is_nan() && x[2].is_nan());
        assert_eq!(scanned(DType::U8, &[200u8, 100], 0, &[2], &[1], 0, (false, false)), [200, 44]);
    }

    #[test]
    fn long_sums_are_accurate_and_alike_on_all_threads() {
        let x = vec![0.1f32; 1 << 20];
        let sum = scanned(DType::F32, &x, 0, &[1 << 20], &[1], 0, (false, false));
        assert!((f64::from(sum[(1 << 20) - 1]) - f64::from(0.1f32) * f64::from(1 << 20)).abs() < 0.01);
        let rows = scanned(DType::F32, &x, 0, &[1024, 1024], &[1024, 1], 1, (false, false));
        assert!(rows.chunks(1024).all(|r| r == &sum[..1024]));
    }
}
