//! Loops of two operands, by the type that registers hold.
use super::isa::{Io, LANES, call2, map2, versions};
use crate::backend::kind::BinaryKind;

versions! {
    /// f32 registers (also those that hold 16-bit floats).
    f32(kind: BinaryKind, io: &Io) = f32_body
}
versions! {
    /// f64 registers.
    f64(kind: BinaryKind, io: &Io) = f64_body
}
versions! {
    /// i32 registers.
    i32(kind: BinaryKind, io: &Io) = i32_body
}
versions! {
    /// i64 registers.
    i64(kind: BinaryKind, io: &Io) = i64_body
}
versions! {
    /// u8 registers.
    u8(kind: BinaryKind, io: &Io) = u8_body
}

/// The loops of a float type; `$rest` handles the kinds that call functions.
macro_rules! float_body {
    ($name:ident, $t:ident, $divmod:ident, $pow:ident) => {
        #[inline(always)]
        unsafe fn $name(kind: BinaryKind, io: &Io) {
            use BinaryKind::*;
            match kind {
                Add => map2!(io, $t => $t, |x, y| x + y),
                Sub => map2!(io, $t => $t, |x, y| x - y),
                Mul => map2!(io, $t => $t, |x, y| x * y),
                Div => map2!(io, $t => $t, |x, y| x / y),
                // A NaN on the left is kept by the second test, one on the right by the first.
                Maximum => map2!(io, $t => $t, |x, y| if (x > y) | x.is_nan() { x } else { y }),
                Minimum => map2!(io, $t => $t, |x, y| if (x < y) | x.is_nan() { x } else { y }),
                ReluGrad => map2!(io, $t => $t, |x, y| if y > 0.0 { x } else { 0.0 }),
                Eq => map2!(io, $t => u8, |x, y| u8::from(x == y)),
                Ne => map2!(io, $t => u8, |x, y| u8::from(x != y)),
                Lt => map2!(io, $t => u8, |x, y| u8::from(x < y)),
                Le => map2!(io, $t => u8, |x, y| u8::from(x <= y)),
                Gt => map2!(io, $t => u8, |x, y| u8::from(x > y)),
                Ge => map2!(io, $t => u8, |x, y| u8::from(x >= y)),
                FloorDiv => call2!(io, $t => $t, |x, y| $divmod(x, y).0),
                Rem => call2!(io, $t => $t, |x, y| $divmod(x, y).1),
                Pow => call2!(io, $t => $t, |x, y| $pow(x, y)),
                Arctan2 => call2!(io, $t => $t, |x, y| x.atan2(y)),
                _ => {}
            }
        }
    };
}
float_body!(f32_body, f32, divmod_f32, pow_f32);
float_body!(f64_body, f64, divmod_f64, pow_f64);

/// Quotient and remainder as NumPy's `npy_divmod`, and powers with the common exponents computed directly.
macro_rules! float_functions {
    ($divmod:ident, $pow:ident, $t:ident) => {
        #[inline]
        fn $divmod(a: $t, b: $t) -> ($t, $t) {
            let rem = a % b;
            if b == 0.0 {
                return (a / b, rem);
            }
            let (mut div, mut rem) = ((a - rem) / b, rem);
            if rem == 0.0 {
                rem = (0.0 as $t).copysign(b);
            } else if (b < 0.0) != (rem < 0.0) {
                rem += b;
                div -= 1.0;
            }
            if div == 0.0 {
                return ((0.0 as $t).copysign(a / b), rem);
            }
            let floor = div.floor();
            (if div - floor > 0.5 { floor + 1.0 } else { floor }, rem)
        }

        // By value and not by operand: whether the exponent is a constant of the kernel may not change a bit.
        #[inline]
        fn $pow(a: $t, b: $t) -> $t {
            if b == 2.0 {
                a * a
            } else if b == 1.0 {
                a
            } else {
                a.powf(b)
            }
        }
    };
}
float_functions!(divmod_f32, pow_f32, f32);
float_functions!(divmod_f64, pow_f64, f64);

/// The loops of an integer type; `$negative` says whether a number is below zero.
macro_rules! int_body {
    ($name:ident, $t:ident, $functions:ident) => {
        #[inline(always)]
        unsafe fn $name(kind: BinaryKind, io: &Io) {
            use BinaryKind::*;
            match kind {
                Add => map2!(io, $t => $t, |x, y| x.wrapping_add(y)),
                Sub => map2!(io, $t => $t, |x, y| x.wrapping_sub(y)),
                Mul => map2!(io, $t => $t, |x, y| x.wrapping_mul(y)),
                Maximum => map2!(io, $t => $t, |x, y| x.max(y)),
                Minimum => map2!(io, $t => $t, |x, y| x.min(y)),
                ReluGrad => map2!(io, $t => $t, |x, y| if y > 0 { x } else { 0 }),
                Eq => map2!(io, $t => u8, |x, y| u8::from(x == y)),
                Ne => map2!(io, $t => u8, |x, y| u8::from(x != y)),
                Lt => map2!(io, $t => u8, |x, y| u8::from(x < y)),
                Le => map2!(io, $t => u8, |x, y| u8::from(x <= y)),
                Gt => map2!(io, $t => u8, |x, y| u8::from(x > y)),
                Ge => map2!(io, $t => u8, |x, y| u8::from(x >= y)),
                And => map2!(io, $t => $t, |x, y| x & y),
                Or => map2!(io, $t => $t, |x, y| x | y),
                Xor => map2!(io, $t => $t, |x, y| x ^ y),
                _ => call2!(io, $t => $t, |x, y| $functions(kind, x, y)),
            }
        }

        /// Quotients, remainders, powers and shifts, total on every pair.
        #[inline]
        #[allow(unused_comparisons)]
        fn $functions(kind: BinaryKind, a: $t, b: $t) -> $t {
            use BinaryKind::*;
            let wide = !(0..$t::BITS as i64).contains(&(b as i64));
            match kind {
                FloorDiv | Rem if b == 0 => 0,
                FloorDiv => {
                    let turned = a.wrapping_rem(b) != 0 && (a < 0) != (b < 0);
                    a.wrapping_div(b).wrapping_sub(turned as $t)
                }
                Rem => {
                    let rem = a.wrapping_rem(b);
                    if rem != 0 && (rem < 0) != (b < 0) { rem.wrapping_add(b) } else { rem }
                }
                Shr if wide && a < 0 => !0,
                Shl | Shr if wide => 0,
                Shl => a.wrapping_shl(b as u32),
                Shr => a.wrapping_shr(b as u32),
                Pow if b < 0 => match a as i64 {
                    1 => 1,
                    // -1, as far as the type has it.
                    -1 => if b & 1 == 0 { 1 } else { a },
                    _ => 0,
                },
                Pow => {
                    let (mut base, mut left, mut out) = (a, b, 1 as $t);
                    while left > 0 {
                        if left & 1 == 1 {
                            out = out.wrapping_mul(base);
                        }
                        base = base.wrapping_mul(base);
                        left >>= 1;
                    }
                    out
                }
                _ => 0,
            }
        }
    };
}
int_body!(i32_body, i32, i32_functions);
int_body!(i64_body, i64, i64_functions);
int_body!(u8_body, u8, u8_functions);
