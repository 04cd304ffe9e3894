//! `Const` and `Arange`: values made from arguments alone.
use super::elementwise::round_bits;
use super::view::View;
use super::walk::{by_size, split};
use crate::dtype::DType;
use crate::error::{Error, Result};
use std::mem::MaybeUninit;
use std::ops::Range;

/// `Const`: every element is argument 0 (f64 bits for floats, i64 bits for the others), rounded or wrapped to the dtype.
pub fn run_const(_ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
    let ([out], &[arg, ..]) = (outs, args) else { return Err(Error::Internal("full: operands")) };
    let (float, int) = (f64::from_bits(arg), arg as i64);
    let bits = match out.dtype {
        DType::Bool => u64::from(int != 0),
        DType::U8 => u64::from(int as u8),
        DType::I32 => u64::from(int as u32),
        DType::I64 | DType::F64 => arg,
        DType::F16 | DType::BF16 => u64::from(round_bits(float, out.dtype)),
        DType::F32 => u64::from((float as f32).to_bits()),
    };
    let size = out.dtype.size_bytes();
    split(out.elems(), size, |range| {
        by_size!(size, fill(out, range, bits));
        Ok(())
    })
}

/// An element as its bits.
trait Bits: Copy {
    fn from_low(bits: u64) -> Self;
}

macro_rules! bits {
    ($($t:ty),*) => {$(
        impl Bits for $t {
            fn from_low(bits: u64) -> $t { bits as $t }
        }
    )*};
}
bits!(u8, u16, u32, u64);

fn fill<T: Bits>(out: &View, range: Range<usize>, bits: u64) {
    // SAFETY: the range lies in the output and belongs to this task.
    unsafe { window::<T>(out, range) }.fill(MaybeUninit::new(T::from_low(bits)));
}

/// Part of a row-major output whose bytes may never have been written.
///
/// # Safety
/// The range lies in the output, nobody else uses it, and `T` has the size of the elements.
#[expect(clippy::mut_from_ref, reason = "a view is a pointer; the caller owns the range")]
unsafe fn window<'a, T>(out: &'a View, range: Range<usize>) -> &'a mut [MaybeUninit<T>] {
    // SAFETY: as the caller promised.
    unsafe { std::slice::from_raw_parts_mut(out.as_ptr::<MaybeUninit<T>>().add(range.start), range.len()) }
}

/// `Arange`: start + i * step, from arguments 0 and 1: computed in f64 and rounded once for floats, in wrapping i64 for the others.
pub fn run_arange(_ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
    let ([out], &[start, step, ..]) = (outs, args) else { return Err(Error::Internal("arange: operands")) };
    let (start_float, step_float) = (f64::from_bits(start), f64::from_bits(step));
    let float = |i: usize| start_float + i as i64 as f64 * step_float;
    let int = |i: usize| (start as i64).wrapping_add((i as i64).wrapping_mul(step as i64));
    match out.dtype {
        DType::Bool => each(out, |i| u8::from(int(i) != 0)),
        DType::U8 => each(out, |i| int(i) as u8),
        DType::I32 => each(out, |i| int(i) as i32),
        DType::I64 => each(out, int),
        DType::F16 => each(out, |i| round_bits(float(i), DType::F16)),
        DType::BF16 => each(out, |i| round_bits(float(i), DType::BF16)),
        DType::F32 => each(out, |i| float(i) as f32),
        DType::F64 => each(out, float),
    }
}

/// Writes `value(i)` to every position i.
fn each<T>(out: &View, value: impl Fn(usize) -> T + Sync) -> Result<()> {
    split(out.elems(), size_of::<T>(), |range| {
        let first = range.start;
        // SAFETY: the range lies in the output and belongs to this task; the caller has matched the dtype.
        for (i, at) in unsafe { window::<T>(out, range) }.iter_mut().enumerate() {
            at.write(value(first + i));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::walk::sample::Sample;
    use super::*;
    use crate::dtype::Scalar;

    #[test]
    fn fills_and_counts_in_every_dtype() {
        for dtype in DType::ALL {
            for n in [0, 1, 7, 300_000] {
                let out = Sample::zeros(dtype, &[n]);
                run_const(&[], &[out.view()], &[Scalar::Float(3.0).to_arg(dtype)]).unwrap();
                let three = if dtype == DType::Bool { 1.0 } else { 3.0 };
                assert!(out.values().iter().all(|&v| v == three));
                let args = [Scalar::Int(2), Scalar::Int(-3)].map(|s| s.to_arg(dtype));
                run_arange(&[], &[out.view()], &args).unwrap();
                let expected = Sample::of(dtype, &[n], &(0..n).map(|i| 2.0 - 3.0 * i as f64).collect::<Vec<_>>());
                // A bool argument is 0 or 1 already: 1, 2, 3, ...
                assert!(if dtype == DType::Bool {
                    out.values().iter().all(|&v| v == 1.0)
                } else {
                    out.values() == expected.values()
                });
            }
        }
    }

    #[test]
    fn integers_wrap_and_floats_round_once() {
        let out = Sample::zeros(DType::I64, &[2]);
        run_arange(&[], &[out.view()], &[i64::MAX as u64, 1]).unwrap();
        assert_eq!(out.bytes[1] as i64, i64::MIN);
        let out = Sample::zeros(DType::F32, &[11]);
        run_arange(&[], &[out.view()], &[0f64.to_bits(), 0.1f64.to_bits()]).unwrap();
        assert_eq!(out.values()[3], f64::from((3.0 * 0.1f64) as f32));
        assert!(run_const(&[], &[out.view()], &[]).is_err());
    }

    #[test]
    fn halves_round_once_beside_a_tie() {
        // Just above the middle between 1 and its neighbour, by less than f32 can say; and the same by steps.
        for (dtype, half_unit, up) in [(DType::F16, 2f64.powi(-11), 0x3c01), (DType::BF16, 2f64.powi(-8), 0x3f81)] {
            let out = Sample::zeros(dtype, &[2]);
            let above = half_unit + 2f64.powi(-40);
            run_const(&[], &[out.view()], &[(1.0 + above).to_bits()]).unwrap();
            assert_eq!(out.bytes[0] & 0xffff, up);
            run_arange(&[], &[out.view()], &[1f64.to_bits(), above.to_bits()]).unwrap();
            assert_eq!(out.bytes[0] >> 16 & 0xffff, up);
        }
    }
}
