//! What each op gives, one scalar at a time: the reference that tests compare with.
use crate::backend::cpu::math;
use crate::backend::kind::{BinaryKind, UnaryKind};
use crate::dtype::DType;
use half::{bf16, f16};

/// A value as a register holds it.
#[derive(Clone, Copy, Debug)]
pub enum V {
    /// Bool or u8.
    U8(u8),
    /// i32.
    I32(i32),
    /// i64.
    I64(i64),
    /// f32 or a 16-bit float.
    F32(f32),
    /// f64.
    F64(f64),
}

pub fn read(p: *const u8, i: isize, d: DType) -> V {
    unsafe {
        match d {
            DType::Bool | DType::U8 => V::U8(*p.offset(i)),
            DType::I32 => V::I32(*p.cast::<i32>().offset(i)),
            DType::I64 => V::I64(*p.cast::<i64>().offset(i)),
            DType::F16 => V::F32(f16::from_bits(*p.cast::<u16>().offset(i)).to_f32()),
            DType::BF16 => V::F32(bf16::from_bits(*p.cast::<u16>().offset(i)).to_f32()),
            DType::F32 => V::F32(*p.cast::<f32>().offset(i)),
            DType::F64 => V::F64(*p.cast::<f64>().offset(i)),
        }
    }
}

pub fn round(v: V, d: DType) -> V {
    match (v, d) {
        (V::F32(x), DType::F16) => V::F32(f16::from_f32(x).to_f32()),
        (V::F32(x), DType::BF16) => V::F32(bf16::from_f32(x).to_f32()),
        _ => v,
    }
}

pub fn arg(bits: u64, d: DType) -> V {
    match d {
        DType::Bool => V::U8(u8::from(bits != 0)),
        DType::U8 => V::U8(bits as u8),
        DType::I32 => V::I32(bits as i32),
        DType::I64 => V::I64(bits as i64),
        DType::F64 => V::F64(f64::from_bits(bits)),
        DType::F32 => V::F32(f64::from_bits(bits) as f32),
        DType::F16 => V::F32(f16::from_f32(odd(f64::from_bits(bits))).to_f32()),
        DType::BF16 => V::F32(bf16::from_f32(odd(f64::from_bits(bits))).to_f32()),
    }
}

pub fn same(a: V, b: V) -> bool {
    match (a, b) {
        (V::U8(a), V::U8(b)) => a == b,
        (V::I32(a), V::I32(b)) => a == b,
        (V::I64(a), V::I64(b)) => a == b,
        (V::F32(a), V::F32(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
        (V::F64(a), V::F64(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
        _ => false,
    }
}

pub fn cast(v: V, to: DType) -> V {
    let f = match v {
        V::U8(x) => f64::from(x),
        V::I32(x) => f64::from(x),
        V::I64(x) => x as f64,
        V::F32(x) => f64::from(x),
        V::F64(x) => x,
    };
    match (v, to) {
        (_, DType::Bool) => V::U8(u8::from(f != 0.0)),
        (V::I64(x), DType::U8) => V::U8(x as u8),
        (V::I32(x), DType::U8) => V::U8(x as u8),
        (V::I64(x), DType::I32) => V::I32(x as i32),
        (V::I64(x), DType::I64) => V::I64(x),
        (V::I64(x), DType::F32) => V::F32(x as f32),
        (_, DType::U8) => V::U8(f as u8),
        (_, DType::I32) => V::I32(f as i32),
        (_, DType::I64) => V::I64(f as i64),
        (_, DType::F32) => V::F32(f as f32),
        (_, DType::F64) => V::F64(f),
        (V::F32(x), DType::F16) => V::F32(f16::from_f32(x).to_f32()),
        (V::F32(x), DType::BF16) => V::F32(bf16::from_f32(x).to_f32()),
        (V::I64(x), DType::F16) => V::F32(f16::from_f32(odd_int(x)).to_f32()),
        (V::I64(x), DType::BF16) => V::F32(bf16::from_f32(odd_int(x)).to_f32()),
        (_, DType::F16) => V::F32(f16::from_f32(odd(f)).to_f32()),
        (_, DType::BF16) => V::F32(bf16::from_f32(odd(f)).to_f32()),
    }
}

/// As `odd`, from an integer that f64 may not hold.
fn odd_int(x: i64) -> f32 {
    let near = x as f32;
    let (exact, there) = (i128::from(x), near as i128);
    if there == exact {
        return near;
    }
    f32::from_bits((near.to_bits() - u32::from(there.abs() > exact.abs())) | 1)
}

/// Rounded to odd, so that rounding once more to 16 bits is as if it were done at once; `from_f64` drops the last bits before it rounds.
fn odd(f: f64) -> f32 {
    let near = f as f32;
    if f64::from(near) == f || f.is_nan() {
        return near;
    }
    let is_beyond = f64::from(near).abs() > f.abs();
    f32::from_bits((near.to_bits() - u32::from(is_beyond)) | 1)
}

pub fn unary(k: UnaryKind, v: V) -> V {
    use UnaryKind::*;
    match (k, v) {
        (Neg, V::F32(x)) => V::F32(-x),
        (Neg, V::F64(x)) => V::F64(-x),
        (Neg, V::I32(x)) => V::I32(x.wrapping_neg()),
        (Neg, V::I64(x)) => V::I64(x.wrapping_neg()),
        (Neg, V::U8(x)) => V::U8(x.wrapping_neg()),
        (Relu, V::F32(x)) => V::F32(if x < 0.0 { 0.0 } else { x }),
        (Exp, V::F32(x)) => V::F32(math::exp(x)),
        (Tanh, V::F32(x)) => V::F32(math::tanh(x)),
        (Exp, V::F64(x)) => V::F64(x.exp()),
        (Tanh, V::F64(x)) => V::F64(x.tanh()),
        (IsNan, V::F32(x)) => V::U8(u8::from(x.is_nan())),
        (IsNan, V::F64(x)) => V::U8(u8::from(x.is_nan())),
        (IsFinite, V::F32(x)) => V::U8(u8::from(x.is_finite())),
        (IsFinite, V::F64(x)) => V::U8(u8::from(x.is_finite())),
        (IsNan, _) => V::U8(0),
        (IsFinite, _) => V::U8(1),
        (LogicalNot, v) => match cast(v, DType::Bool) {
            V::U8(x) => V::U8(1 - x),
            v => v,
        },
        _ => panic!("{k:?} {v:?}"),
    }
}

pub fn binary(k: BinaryKind, a: V, b: V, d: DType) -> V {
    use BinaryKind::*;
    macro_rules! compare {
        ($x:ident, $y:ident) => {
            match k {
                Eq => V::U8(u8::from($x == $y)),
                Lt => V::U8(u8::from($x < $y)),
                Ge => V::U8(u8::from($x >= $y)),
                Ne => V::U8(u8::from($x != $y)),
                _ => panic!("{k:?}"),
            }
        };
    }
    macro_rules! float {
        ($w:path, $x:ident, $y:ident) => {
            match k {
                Add => $w($x + $y),
                Sub => $w($x - $y),
                Mul => $w($x * $y),
                Div => $w($x / $y),
                Maximum => $w(if $x.is_nan() || $x > $y { $x } else { $y }),
                Minimum => $w(if $x.is_nan() || $x < $y { $x } else { $y }),
                ReluGrad => $w(if $y > 0.0 { $x } else { 0.0 }),
                _ => compare!($x, $y),
            }
        };
    }
    macro_rules! int {
        ($w:path, $x:ident, $y:ident) => {
            match k {
                Add if d == DType::Bool => $w($x | $y),
                Mul if d == DType::Bool => $w($x & $y),
                Sub if d == DType::Bool => $w($x ^ $y),
                Add => $w($x.wrapping_add($y)),
                Sub => $w($x.wrapping_sub($y)),
                Mul => $w($x.wrapping_mul($y)),
                Maximum => $w($x.max($y)),
                Minimum => $w($x.min($y)),
                ReluGrad => $w(if $y > 0 { $x } else { 0 }),
                _ => compare!($x, $y),
            }
        };
    }
    match (a, b) {
        (V::F32(x), V::F32(y)) => float!(V::F32, x, y),
        (V::F64(x), V::F64(y)) => float!(V::F64, x, y),
        (V::I32(x), V::I32(y)) => int!(V::I32, x, y),
        (V::I64(x), V::I64(y)) => int!(V::I64, x, y),
        (V::U8(x), V::U8(y)) => int!(V::U8, x, y),
        _ => panic!("mixed"),
    }
}
