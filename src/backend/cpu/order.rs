//! The order of elements as signed integers, so that sorts and searches compare nothing else.
use half::{bf16, f16};
use std::ops::Not;

/// An element whose order an integer key tells: -0.0 and 0.0 have one key, NaN the largest in either direction.
pub(super) trait Ordered: Copy {
    type Key: Key;
    /// A key no larger than any other.
    const LEAST: Self::Key;
    /// Grows with the element, or falls with it if `reversed`.
    fn key(self, reversed: bool) -> Self::Key;
}

/// A key that can carry a position below it, and whose bits inverted order the other way.
pub(super) trait Key: Copy + Ord + Not<Output = Self> + Send + Sync {
    type Entry: Copy + Ord + Send + Sync;
    /// Orders by the key, then by the position.
    fn with(self, position: u32) -> Self::Entry;
    fn position(entry: Self::Entry) -> u32;
}

/// Implements `Key` with the next wider integers: one comparison does for both parts.
macro_rules! keys {
    ($($key:ty, $entry:ty;)*) => {$(
        impl Key for $key {
            type Entry = $entry;
            #[inline(always)]
            fn with(self, position: u32) -> $entry { <$entry>::from(self) << 32 | <$entry>::from(position) }
            #[inline(always)]
            fn position(entry: $entry) -> u32 { entry as u32 }
        }
    )*};
}
keys! { i32, i64; i64, i128; }

/// Implements the order of floats, whose bits order like signed integers once those of negative numbers are turned round.
macro_rules! ordered_floats {
    ($($t:ty, $bits:ty, $key:ty, $infinity:expr;)*) => {$(
        impl Ordered for $t {
            type Key = $key;
            const LEAST: $key = <$key>::MIN;
            #[inline(always)]
            fn key(self, reversed: bool) -> $key {
                let bits = self.to_bits() as $bits;
                let magnitude = bits & <$bits>::MAX;
                let key = if bits < 0 { -magnitude } else { magnitude };
                let key = if reversed { -key } else { key };
                (if magnitude > $infinity { <$bits>::MAX } else { key }) as $key
            }
        }
    )*};
}
ordered_floats! {
    f16, i16, i32, 0x7c00;
    bf16, i16, i32, 0x7f80;
    f32, i32, i32, 0x7f80_0000;
    f64, i64, i64, 0x7ff0_0000_0000_0000;
}

/// Implements the order of integers.
macro_rules! ordered_ints {
    ($($t:ty, $key:ty;)*) => {$(
        impl Ordered for $t {
            type Key = $key;
            const LEAST: $key = <$key>::MIN;
            #[inline(always)]
            fn key(self, reversed: bool) -> $key {
                let key = self as $key;
                // Not the negation, which the smallest integer lacks.
                if reversed { !key } else { key }
            }
        }
    )*};
}
ordered_ints! { u8, i32; i32, i32; i64, i64; }

/// Calls a function that is generic over an `Ordered` for a dtype; bools order as their bytes.
macro_rules! by_order {
    ($dtype:expr, $call:ident($($arg:expr),* $(,)?)) => {
        match $dtype {
            DType::Bool | DType::U8 => $call::<u8>($($arg),*),
            DType::I32 => $call::<i32>($($arg),*),
            DType::I64 => $call::<i64>($($arg),*),
            DType::F16 => $call::<half::f16>($($arg),*),
            DType::BF16 => $call::<half::bf16>($($arg),*),
            DType::F32 => $call::<f32>($($arg),*),
            DType::F64 => $call::<f64>($($arg),*),
        }
    };
}
pub(super) use by_order;
