//! Floating-point element types and the type each is computed in.
use half::{bf16, f16};

/// A stored float and its compute type.
pub(super) trait Real: Copy + Send + Sync + 'static {
    /// f32, or f64 for f64.
    type Wide: Float;

    /// The stored value in the compute type.
    fn widen(self) -> Self::Wide;
}

/// A type that arithmetic is done in.
pub(super) trait Float:
    Copy
    + PartialOrd
    + Send
    + Sync
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + 'static
{
    /// Rounded from f64.
    fn of(x: f64) -> Self;
    /// Square root.
    fn root(self) -> Self;
    /// The number, or 0 for a denormal one.
    fn flushed(self) -> Self;
}

impl Float for f32 {
    #[inline(always)]
    fn of(x: f64) -> f32 {
        x as f32
    }

    #[inline(always)]
    fn root(self) -> f32 {
        self.sqrt()
    }

    #[inline(always)]
    fn flushed(self) -> f32 {
        if self.abs() < f32::MIN_POSITIVE { 0.0 } else { self }
    }
}

impl Float for f64 {
    #[inline(always)]
    fn of(x: f64) -> f64 {
        x
    }

    #[inline(always)]
    fn root(self) -> f64 {
        self.sqrt()
    }

    #[inline(always)]
    fn flushed(self) -> f64 {
        if self.abs() < f64::MIN_POSITIVE { 0.0 } else { self }
    }
}

macro_rules! real {
    ($($t:ty, $wide:ty, $x:ident, $widen:expr;)*) => {
        $(impl Real for $t {
            type Wide = $wide;

            #[inline(always)]
            fn widen(self) -> $wide {
                let $x = self;
                $widen
            }
        })*
    };
}

real! {
    f32, f32, x, x;
    f64, f64, x, x;
    f16, f32, x, x.to_f32();
    bf16, f32, x, x.to_f32();
}

/// Calls a function that is generic over `Real` for a float dtype; anything else is a broken invariant.
macro_rules! by_real {
    ($dtype:expr, $what:literal, $call:ident($($arg:expr),* $(,)?)) => {
        match $dtype {
            $crate::dtype::DType::F32 => $call::<f32>($($arg),*),
            $crate::dtype::DType::F64 => $call::<f64>($($arg),*),
            $crate::dtype::DType::F16 => $call::<half::f16>($($arg),*),
            $crate::dtype::DType::BF16 => $call::<half::bf16>($($arg),*),
            _ => Err($crate::error::Error::Internal($what)),
        }
    };
}
pub(super) use by_real;
