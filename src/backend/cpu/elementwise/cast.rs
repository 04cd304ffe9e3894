//! Conversions between register types, 16-bit storage, selection and plain copies.
use super::isa::{Io, LANES, map1, versions};
use crate::dtype::DType;
use half::{bf16, f16};

versions! {
    /// Conversion between register types; to bool it is a test against zero.
    cast(from: DType, to: DType, io: &Io) = cast_body
}
versions! {
    /// 16-bit floats to f32 registers.
    widen(from: DType, io: &Io) = widen_body
}
versions! {
    /// f32 registers to 16-bit floats.
    narrow(to: DType, io: &Io) = narrow_body
}
versions! {
    /// f32 registers rounded to a 16-bit float type.
    round16(to: DType, io: &Io) = round16_body
}
versions! {
    /// `a` where the condition holds, else `b`, for elements of `size` bytes.
    select(size: usize, io: &Io) = select_body
}

/// f32 from f64 with inexact results made odd: rounding that to 16 bits is as rounding once.
#[inline(always)]
pub(super) fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    let over = back.abs() > x.abs();
    let inexact = (back != x) & !x.is_nan();
    let bits = near.to_bits() - u32::from(over);
    f32::from_bits(bits | u32::from(inexact))
}

/// An integer that f64 holds, whose rounding to 16 bits is that of x: beyond 53 bits the low ones are gathered in the last that counts.
#[inline(always)]
pub(super) fn sticky(x: i64) -> i64 {
    const LOW: i64 = 0x7ff;
    let is_wide = x.unsigned_abs() >> 53 != 0;
    let gathered = (x | ((x & LOW) + LOW)) & !LOW;
    if is_wide { gathered } else { x }
}

/// The bits of the bfloat16 nearest to x, half to even, NaN kept quiet.
#[inline(always)]
pub(super) fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { bits >> 16 | 0x40 } else { rounded }) as u16
}

/// f32 of the bits of a half.
#[inline(always)]
pub(super) fn f16_value(h: u16) -> f32 {
    let bits = u32::from(h);
    let (sign, rest) = ((bits & 0x8000) << 16, bits & 0x7fff);
    // Multiplying by 2^112 re-biases the exponent, denormals included; infinities and NaN need the rest of the bits.
    let scaled = (f32::from_bits(rest << 13) * f32::from_bits(0x7780_0000)).to_bits();
    let special = if rest >= 0x7c00 { 0x7f80_0000 | rest << 13 } else { scaled };
    f32::from_bits(special | sign)
}

/// The bits of the half nearest to x, half to even, NaN kept quiet.
#[inline(always)]
pub(super) fn f16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let (sign, abs) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    // Normal results: add half a unit (to even) and re-bias. Denormal ones: adding 0.5 rounds to a multiple of 2^-24.
    let normal = abs.wrapping_add(0xfff + (abs >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
    let denormal = (f32::from_bits(abs) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let finite = if abs < 0x3880_0000 { denormal } else { normal };
    let limited = if abs >= 0x477f_f000 { 0x7c00 } else { finite };
    let out = if abs > 0x7f80_0000 { 0x7e00 | (abs >> 13 & 0x3ff) } else { limited };
    (out | sign) as u16
}

#[inline(always)]
unsafe fn widen_body(from: DType, io: &Io) {
    match from {
        DType::F16 => map1!(io, u16 => f32, |x| f16_value(x)),
        _ => map1!(io, u16 => f32, |x| f32::from_bits(u32::from(x) << 16)),
    }
}

#[inline(always)]
unsafe fn narrow_body(to: DType, io: &Io) {
    match to {
        DType::F16 => map1!(io, f32 => u16, |x| f16_bits(x)),
        _ => map1!(io, f32 => u16, |x| bf16_bits(x)),
    }
}

#[inline(always)]
unsafe fn round16_body(to: DType, io: &Io) {
    match to {
        DType::F16 => map1!(io, f32 => f32, |x| f16_value(f16_bits(x))),
        _ => map1!(io, f32 => f32, |x| f32::from_bits(u32::from(bf16_bits(x)) << 16)),
    }
}

/// Casts from `$a` to the type named by a dtype; `$exact` is the number that rounds to 16 bits as `$x` does.
macro_rules! cast_from {
    ($io:expr, $to:expr, $a:ty, $zero:expr, |$x:ident| $exact:expr) => {
        match $to {
            DType::Bool => map1!($io, $a => u8, |x| u8::from(x != $zero)),
            DType::U8 => map1!($io, $a => u8, |x| x as u8),
            DType::I32 => map1!($io, $a => i32, |x| x as i32),
            DType::I64 => map1!($io, $a => i64, |x| x as i64),
            DType::F64 => map1!($io, $a => f64, |x| x as f64),
            DType::F32 => map1!($io, $a => f32, |x| x as f32),
            // Rounded to 16 bits by the instruction that follows.
            DType::F16 | DType::BF16 => map1!($io, $a => f32, |$x| to_odd($exact as f64)),
        }
    };
}

#[inline(always)]
unsafe fn cast_body(from: DType, to: DType, io: &Io) {
    match from {
        DType::Bool | DType::U8 => cast_from!(io, to, u8, 0, |x| x),
        DType::I32 => cast_from!(io, to, i32, 0, |x| x),
        DType::I64 => cast_from!(io, to, i64, 0, |x| sticky(x)),
        DType::F64 => cast_from!(io, to, f64, 0.0, |x| x),
        DType::F16 | DType::BF16 | DType::F32 if to.compute() == DType::F32 => map1!(io, f32 => f32, |x| x),
        DType::F16 | DType::BF16 | DType::F32 => cast_from!(io, to, f32, 0.0, |x| x),
    }
}

/// Selection on bits, so that no NaN is touched.
macro_rules! select_size {
    ($io:expr, $t:ty) => {{
        #[inline(always)]
        fn lanes(d: &mut [$t; LANES], c: &[u8; LANES], a: &[$t; LANES], b: &[$t; LANES]) {
            for i in 0..LANES {
                d[i] = if c[i] != 0 { a[i] } else { b[i] };
            }
        }
        let (d, c) = ($io.dst.cast::<$t>(), $io.src[0]);
        let (a, b) = ($io.src[1].cast::<$t>(), $io.src[2].cast::<$t>());
        for k in 0..$io.blocks {
            let at = |i: usize| k * LANES * $io.step[i];
            // SAFETY: the caller of the kernel promises whole blocks, and that `dst` overlaps no operand.
            unsafe { lanes(&mut *d.add(k * LANES).cast(), &*c.add(at(0)).cast(), &*a.add(at(1)).cast(), &*b.add(at(2)).cast()) }
        }
    }};
}

#[inline(always)]
unsafe fn select_body(size: usize, io: &Io) {
    match size {
        1 => select_size!(io, u8),
        2 => select_size!(io, u16),
        4 => select_size!(io, u32),
        _ => select_size!(io, u64),
    }
}

/// Copies elements of `size` bytes.
///
/// # Safety
/// As for the other loops.
pub unsafe fn copy(size: usize, io: &Io) {
    match size {
        1 => map1!(io, u8 => u8, |x| x),
        2 => map1!(io, u16 => u16, |x| x),
        4 => map1!(io, u32 => u32, |x| x),
        _ => map1!(io, u64 => u64, |x| x),
    }
}

/// The bits of a plan argument as a register of dtype `dtype` holds it (a 16-bit float as f32).
pub fn arg_bits(arg: u64, dtype: DType) -> u64 {
    let float = f64::from_bits(arg);
    match dtype {
        DType::Bool => u64::from(arg != 0),
        DType::U8 => arg & 0xff,
        DType::I32 => arg & 0xffff_ffff,
        DType::I64 | DType::F64 => arg,
        DType::F32 => u64::from((float as f32).to_bits()),
        DType::F16 => u64::from(f16::from_f32(to_odd(float)).to_f32().to_bits()),
        DType::BF16 => u64::from(bf16::from_f32(to_odd(float)).to_f32().to_bits()),
    }
}
