//! Loops of one operand, by the type that registers hold.
use super::isa::{Io, LANES, call1, map1, versions};
use crate::backend::cpu::math;
use crate::backend::kind::UnaryKind;

versions! {
    /// f32 registers (also those that hold 16-bit floats): the kinds that `is_long` denies.
    f32(kind: UnaryKind, io: &Io) = f32_body
}
versions! {
    wide
    /// f32 registers: the functions of `math`.
    f32_long(kind: UnaryKind, io: &Io) = f32_functions
}
versions! {
    /// f64 registers.
    f64(kind: UnaryKind, io: &Io) = f64_body
}
versions! {
    /// i32 registers.
    i32(kind: UnaryKind, io: &Io) = i32_body
}
versions! {
    /// i64 registers.
    i64(kind: UnaryKind, io: &Io) = i64_body
}

/// -1, 0 or 1 with the sign of zero and NaN kept.
macro_rules! sign {
    ($x:ident) => {
        if $x > 0.0 {
            1.0
        } else if $x < 0.0 {
            -1.0
        } else {
            $x
        }
    };
}

#[inline(always)]
unsafe fn f32_body(kind: UnaryKind, io: &Io) {
    use UnaryKind::*;
    match kind {
        Neg => map1!(io, f32 => f32, |x| -x),
        Abs => map1!(io, f32 => f32, |x| x.abs()),
        Sign => map1!(io, f32 => f32, |x| sign!(x)),
        Square => map1!(io, f32 => f32, |x| x * x),
        Sqrt => map1!(io, f32 => f32, |x| x.sqrt()),
        Rsqrt => map1!(io, f32 => f32, |x| 1.0 / x.sqrt()),
        Reciprocal => map1!(io, f32 => f32, |x| 1.0 / x),
        Relu => map1!(io, f32 => f32, |x| if x < 0.0 { 0.0 } else { x }),
        Floor => map1!(io, f32 => f32, |x| x.floor()),
        Ceil => map1!(io, f32 => f32, |x| x.ceil()),
        Round => map1!(io, f32 => f32, |x| x.round_ties_even()),
        Trunc => map1!(io, f32 => f32, |x| x.trunc()),
        // On the bits: no optimiser may assume anything about them.
        LogicalNot => map1!(io, u32 => u8, |x| u8::from(x & 0x7fff_ffff == 0)),
        IsNan => map1!(io, u32 => u8, |x| u8::from(x & 0x7fff_ffff > 0x7f80_0000)),
        IsFinite => map1!(io, u32 => u8, |x| u8::from(x & 0x7fff_ffff < 0x7f80_0000)),
        IsInf => map1!(io, u32 => u8, |x| u8::from(x & 0x7fff_ffff == 0x7f80_0000)),
        Tan => call1!(io, f32 => f32, |x| x.tan()),
        Arcsin => call1!(io, f32 => f32, |x| x.asin()),
        Arccos => call1!(io, f32 => f32, |x| x.acos()),
        Arctan => call1!(io, f32 => f32, |x| x.atan()),
        Arcsinh => call1!(io, f32 => f32, |x| x.asinh()),
        Arccosh => call1!(io, f32 => f32, |x| x.acosh()),
        Arctanh => call1!(io, f32 => f32, |x| x.atanh()),
        _ => {}
    }
}

/// Whether `f32_long` has the kind, and not `f32`.
pub const fn is_long(kind: UnaryKind) -> bool {
    use UnaryKind::*;
    !kind.is_cheap() && !matches!(kind, Tan | Arcsin | Arccos | Arctan | Arcsinh | Arccosh | Arctanh)
}

/// The functions of `math`.
#[inline(always)]
unsafe fn f32_functions(kind: UnaryKind, io: &Io) {
    use UnaryKind::*;
    match kind {
        Sin => {
            map1!(io, f32 => f32, |x| math::sin(x));
            trig_rest(io, f32::sin);
        }
        Cos => {
            map1!(io, f32 => f32, |x| math::cos(x));
            trig_rest(io, f32::cos);
        }
        Exp => map1!(io, f32 => f32, |x| math::exp(x)),
        Expm1 => map1!(io, f32 => f32, |x| math::expm1(x)),
        Log => map1!(io, f32 => f32, |x| math::log(x)),
        Log1p => map1!(io, f32 => f32, |x| math::log1p(x)),
        Log2 => map1!(io, f32 => f32, |x| math::log2(x)),
        Log10 => map1!(io, f32 => f32, |x| math::log10(x)),
        Sinh => map1!(io, f32 => f32, |x| math::sinh(x)),
        Cosh => map1!(io, f32 => f32, |x| math::cosh(x)),
        Tanh => map1!(io, f32 => f32, |x| math::tanh(x)),
        Sigmoid => map1!(io, f32 => f32, |x| math::sigmoid(x)),
        GeluTanh => map1!(io, f32 => f32, |x| math::gelu_tanh(x)),
        Gelu => map1!(io, f32 => f32, |x| math::gelu(x)),
        Silu => map1!(io, f32 => f32, |x| math::silu(x)),
        GeluTanhSlope => map1!(io, f32 => f32, |x| math::gelu_tanh_slope(x)),
        GeluSlope => map1!(io, f32 => f32, |x| math::gelu_slope(x)),
        SiluSlope => map1!(io, f32 => f32, |x| math::silu_slope(x)),
        Softplus => map1!(io, f32 => f32, |x| math::softplus(x)),
        Erf => map1!(io, f32 => f32, |x| math::erf(x)),
        _ => {}
    }
}

/// Corrects the rare results whose arguments need a long reduction.
#[inline(always)]
fn trig_rest(io: &Io, exact: fn(f32) -> f32) {
    let (d, a) = (io.dst.cast::<f32>(), io.src[0].cast::<f32>());
    for c in 0..io.blocks {
        // SAFETY: the caller of the kernel promises whole blocks, and that `dst` overlaps no operand.
        let (d, a) =
            unsafe { (&mut *d.add(c * LANES).cast::<[f32; LANES]>(), &*a.add(c * LANES * io.step[0]).cast::<[f32; LANES]>()) };
        let mut any = false;
        for x in a {
            any |= x.abs() >= math::TRIG_MAX;
        }
        if any {
            for (d, x) in d.iter_mut().zip(a).filter(|(_, x)| x.abs() >= math::TRIG_MAX) {
                *d = exact(*x);
            }
        }
    }
}

/// The derivative of x sigmoid(y) for a y with derivative `dy`: s + x s (1 - s) dy.
fn gated_slope(x: f64, y: f64, dy: f64) -> f64 {
    let e = (-y.abs()).exp();
    let (large, small) = (1.0 / (1.0 + e), e / (1.0 + e));
    (if y < 0.0 { small } else { large }) + x * (large * small) * dy
}

#[inline(always)]
unsafe fn f64_body(kind: UnaryKind, io: &Io) {
    use UnaryKind::*;
    match kind {
        Neg => map1!(io, f64 => f64, |x| -x),
        Abs => map1!(io, f64 => f64, |x| x.abs()),
        Sign => map1!(io, f64 => f64, |x| sign!(x)),
        Square => map1!(io, f64 => f64, |x| x * x),
        Sqrt => map1!(io, f64 => f64, |x| x.sqrt()),
        Rsqrt => map1!(io, f64 => f64, |x| 1.0 / x.sqrt()),
        Reciprocal => map1!(io, f64 => f64, |x| 1.0 / x),
        Relu => map1!(io, f64 => f64, |x| if x < 0.0 { 0.0 } else { x }),
        Floor => map1!(io, f64 => f64, |x| x.floor()),
        Ceil => map1!(io, f64 => f64, |x| x.ceil()),
        Round => map1!(io, f64 => f64, |x| x.round_ties_even()),
        Trunc => map1!(io, f64 => f64, |x| x.trunc()),
        LogicalNot => map1!(io, u64 => u8, |x| u8::from(x << 1 == 0)),
        IsNan => map1!(io, u64 => u8, |x| u8::from(x << 1 > 0x7ff0_0000_0000_0000 << 1)),
        IsFinite => map1!(io, u64 => u8, |x| u8::from(x << 1 < 0x7ff0_0000_0000_0000 << 1)),
        IsInf => map1!(io, u64 => u8, |x| u8::from(x << 1 == 0x7ff0_0000_0000_0000 << 1)),
        // SAFETY: passed on.
        _ => unsafe { f64_functions(kind, io) },
    }
}

/// Scalar functions of f64: std's, and `libm` for erf.
#[inline(never)]
unsafe fn f64_functions(kind: UnaryKind, io: &Io) {
    use UnaryKind::*;
    let f: fn(f64) -> f64 = match kind {
        Exp => f64::exp,
        Expm1 => f64::exp_m1,
        Log => f64::ln,
        Log1p => f64::ln_1p,
        Log2 => f64::log2,
        Log10 => f64::log10,
        Sin => f64::sin,
        Cos => f64::cos,
        Tan => f64::tan,
        Arcsin => f64::asin,
        Arccos => f64::acos,
        Arctan => f64::atan,
        Sinh => f64::sinh,
        Cosh => f64::cosh,
        Tanh => f64::tanh,
        Arcsinh => f64::asinh,
        Arccosh => f64::acosh,
        Arctanh => f64::atanh,
        Sigmoid => |x| {
            let e = (-x.abs()).exp();
            (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
        },
        // A product with zero where x is -infinity would be NaN.
        Silu => |x| if x == f64::NEG_INFINITY { -0.0 } else { x / (1.0 + (-x).exp()) },
        GeluTanh => |x| {
            let y = 1.595_769_121_605_730_7 * (x + 0.044_715 * x * x * x);
            if x == f64::NEG_INFINITY { -0.0 } else { x / (1.0 + (-y).exp()) }
        },
        Gelu => |x| {
            let y = 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
            if x == f64::NEG_INFINITY { -0.0 } else { y }
        },
        GeluTanhSlope => |x| {
            let x = x.clamp(-40.0, 40.0);
            let y = 1.595_769_121_605_730_7 * (x + 0.044_715 * x * x * x);
            gated_slope(x, y, 1.595_769_121_605_730_7 * (1.0 + 3.0 * 0.044_715 * x * x))
        },
        GeluSlope => |x| {
            let x = x.clamp(-40.0, 40.0);
            let density = (-0.5 * x * x).exp() * (0.5 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2);
            0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2) + x * density
        },
        SiluSlope => |x| {
            let x = x.clamp(-800.0, 800.0);
            gated_slope(x, x, 1.0)
        },
        Softplus => |x| (if x < 0.0 { 0.0 } else { x }) + (-x.abs()).exp().ln_1p(),
        Erf => libm::erf,
        _ => return,
    };
    call1!(io, f64 => f64, |x| f(x))
}

/// The loops of a signed integer type.
macro_rules! int_body {
    ($name:ident, $t:ident) => {
        #[inline(always)]
        unsafe fn $name(kind: UnaryKind, io: &Io) {
            use UnaryKind::*;
            match kind {
                Neg => map1!(io, $t => $t, |x| x.wrapping_neg()),
                Abs => map1!(io, $t => $t, |x| x.wrapping_abs()),
                Sign => map1!(io, $t => $t, |x| $t::from(x > 0) - $t::from(x < 0)),
                Square => map1!(io, $t => $t, |x| x.wrapping_mul(x)),
                Relu => map1!(io, $t => $t, |x| x.max(0)),
                Floor | Ceil | Round | Trunc => map1!(io, $t => $t, |x| x),
                LogicalNot => map1!(io, $t => u8, |x| u8::from(x == 0)),
                BitNot => map1!(io, $t => $t, |x| !x),
                IsNan | IsInf => map1!(io, $t => u8, |_x| 0),
                IsFinite => map1!(io, $t => u8, |_x| 1),
                _ => {}
            }
        }
    };
}
int_body!(i32_body, i32);
int_body!(i64_body, i64);

/// u8 registers, and bool ones if `bool`: the target's base version is enough for bytes.
///
/// # Safety
/// As for `f32`.
pub unsafe fn u8(bool: bool, kind: UnaryKind, io: &Io) {
    use UnaryKind::*;
    match kind {
        Neg if !bool => map1!(io, u8 => u8, |x| x.wrapping_neg()),
        Square if !bool => map1!(io, u8 => u8, |x| x.wrapping_mul(x)),
        Sign => map1!(io, u8 => u8, |x| u8::from(x != 0)),
        BitNot if !bool => map1!(io, u8 => u8, |x| !x),
        BitNot | LogicalNot => map1!(io, u8 => u8, |x| u8::from(x == 0)),
        IsNan | IsInf => map1!(io, u8 => u8, |_x| 0),
        IsFinite => map1!(io, u8 => u8, |_x| 1),
        _ => map1!(io, u8 => u8, |x| x),
    }
}
