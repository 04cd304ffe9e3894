//! Numbers that shaders, which have no f64, cannot derive from a launch's args themselves: computed in f64 and rounded once.
use crate::backend::cpu::{round_bits, update_numbers};
use crate::backend::op::UpdateKind;
use crate::dtype::DType;

/// Bits of a ramp's numbers: three words and their sign, with room for a sum.
const RAMP_BITS: i32 = 93;

/// A number derived from the args of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Derived {
    /// A word of memory filled with arg 0 in this type; of an 8-byte type the high word if so said.
    Fill(DType, bool),
    /// A number of an optimizer's rule, in the order of `update_numbers`.
    Update(UpdateKind, u8),
    /// Of a uniform draw in this type between args 2 and 3: low (0), high - low (1), the largest value that may be given (2).
    Uniform(DType, u8),
    /// Of start + i * step for so many elements (args 0 and 1) as fixed-point numbers of three words, lowest first: start (0 to 2), step
    /// (3 to 5), the exponent of their last bit (6), and whether they are finite (7).
    Ramp(u32, u8),
}

impl Derived {
    /// The number as the bits of a word.
    pub fn of(self, args: &[u64]) -> u32 {
        let arg = |i: usize| args.get(i).copied().unwrap_or(0);
        match self {
            Derived::Fill(dtype, high) => filled(dtype, high, arg(0)),
            Derived::Update(kind, k) => (update_numbers(kind, args)[usize::from(k)] as f32).to_bits(),
            Derived::Uniform(dtype, k) => {
                let bounds = uniform(dtype, f64::from_bits(arg(2)), f64::from_bits(arg(3)));
                bounds[usize::from(k)].to_bits()
            }
            Derived::Ramp(count, k) => ramp(count, f64::from_bits(arg(0)), f64::from_bits(arg(1)))[usize::from(k)],
        }
    }
}

/// A word full of elements.
fn filled(dtype: DType, high: bool, arg: u64) -> u32 {
    let (float, int) = (f64::from_bits(arg), arg as i64);
    match dtype {
        DType::Bool => u32::from(int != 0) * 0x0101_0101,
        DType::U8 => u32::from(int as u8) * 0x0101_0101,
        DType::F16 | DType::BF16 => u32::from(round_bits(float, dtype)) * 0x0001_0001,
        DType::I32 => int as u32,
        DType::F32 => (float as f32).to_bits(),
        DType::I64 | DType::F64 if high => (arg >> 32) as u32,
        DType::I64 | DType::F64 => arg as u32,
    }
}

/// Low, high - low, and the largest value below high in the type (where low is below it).
fn uniform(dtype: DType, low: f64, high: f64) -> [f32; 3] {
    let (a, b) = (low as f32, high as f32);
    let top = if a < b { b.next_down() } else { b };
    let narrow = |x: f64| {
        let bits = round_bits(x, dtype);
        if dtype == DType::F16 { half::f16::from_bits(bits).to_f32() } else { half::bf16::from_bits(bits).to_f32() }
    };
    if !matches!(dtype, DType::F16 | DType::BF16) || narrow(low) >= narrow(high) {
        return [a, b - a, top];
    }
    // What lies above the largest 16-bit value below high would be rounded to it or past it.
    let bits = round_bits(high, dtype);
    let below = match bits {
        0 | 0x8000 => 0x8001,
        b if b & 0x8000 == 0 => b - 1,
        b => b + 1,
    };
    let below = if dtype == DType::F16 { half::f16::from_bits(below).to_f32() } else { half::bf16::from_bits(below).to_f32() };
    [a, b - a, if below < top { below } else { top }]
}

/// The numbers of `Derived::Ramp`.
fn ramp(count: u32, start: f64, step: f64) -> [u32; 8] {
    let bound = start.abs() + f64::from(count) * step.abs();
    if !bound.is_finite() {
        return [0; 8];
    }
    // bound < 2^exponent.
    let exponent = if bound == 0.0 { 0 } else { exponent_above(bound) };
    let last = exponent - RAMP_BITS;
    let (a, b) = (fixed(start, last), fixed(step, last));
    let words = |x: i128| [x as u32, (x >> 32) as u32, (x >> 64) as u32];
    let ([a0, a1, a2], [b0, b1, b2]) = (words(a), words(b));
    [a0, a1, a2, b0, b1, b2, last as u32, 1]
}

/// An e with |x| < 2^e.
fn exponent_above(x: f64) -> i32 {
    let biased = (x.to_bits() >> 52 & 0x7ff) as i32;
    (biased.max(1) - 1023) + 1
}

/// x in units of 2^last, what is smaller left off.
fn fixed(x: f64, last: i32) -> i128 {
    let biased = (x.to_bits() >> 52 & 0x7ff) as i32;
    let fraction = (x.to_bits() & ((1 << 52) - 1)) as i128;
    let mantissa = if biased == 0 { fraction } else { fraction | 1 << 52 };
    let shift = biased.max(1) - 1075 - last;
    let size = if shift >= 0 { mantissa << shift.min(74) } else { mantissa >> (-shift).min(127) };
    if x < 0.0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_once() {
        let adam = [1e-3f64, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001, 1.0].map(f64::to_bits);
        let number = |k| f32::from_bits(Derived::Update(UpdateKind::Adam, k).of(&adam));
        assert_eq!(number(5), (1.0 - 0.999f64) as f32);
        assert_eq!(number(0), (1e-3 / 0.1) as f32);
        assert_eq!(Derived::Fill(DType::U8, false).of(&[258]), 0x0202_0202);
        assert_eq!(Derived::Fill(DType::F16, false).of(&[1f64.to_bits()]), 0x3c00_3c00);
        assert_eq!(Derived::Fill(DType::I64, true).of(&[u64::MAX << 32]), u32::MAX);
    }

    #[test]
    fn ramps_are_exact_in_fixed_point() {
        for (count, start, step) in [(11u32, 0.0f64, 0.1f64), (1000, -1e6, 3.25), (5, 1e-30, -7e-31), (3, 0.0, 0.0)] {
            let w = ramp(count, start, step);
            let wide = |k: usize| i128::from(w[k + 2] as i32) << 64 | i128::from(w[k + 1]) << 32 | i128::from(w[k]);
            for i in [0, 1, count - 1] {
                let sum = (wide(0) + i128::from(i) * wide(3)) as f64 * 2f64.powi(w[6] as i32);
                let expected = start + f64::from(i) * step;
                assert!((sum - expected).abs() <= 1e-14 * (start.abs() + f64::from(count) * step.abs()), "{sum} {expected}");
            }
        }
        assert_eq!(ramp(3, f64::INFINITY, 1.0)[7], 0);
    }
}
