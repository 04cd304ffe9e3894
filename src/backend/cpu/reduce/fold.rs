//! The ways to combine elements, and the two loops that do it: along rows and down columns.
use crate::backend::cpu::elementwise::isa::Isa;

/// Lanes that a row is summed in; part of the definition of the result.
const ROW_LANES: usize = 16;
/// Elements that a row loop combines in input precision before it widens.
const ROW_BLOCK: usize = 8 * ROW_LANES;
/// Rows that a column loop combines before it widens.
pub const ROW_GROUP: usize = 8;

/// A reduction of elements `T` in accumulators `A`.
pub trait Fold: Send + Sync + 'static {
    /// What registers hold.
    type T: Copy + Send + Sync;
    /// What sums are kept in.
    type A: Copy + Send + Sync;
    /// The result of nothing.
    const EMPTY: Self::A;
    /// Whether eight elements are combined by `pair`, as a tree, before they are widened.
    const TREE: bool;
    /// One element as an accumulator.
    fn lift(x: Self::T) -> Self::A;
    /// Two elements combined in their own type.
    fn pair(x: Self::T, y: Self::T) -> Self::T;
    /// Two accumulators combined.
    fn join(x: Self::A, y: Self::A) -> Self::A;
}

macro_rules! fold {
    ($(#[$doc:meta])* $name:ident, $t:ty => $a:ty, $empty:expr, $tree:expr, |$x:ident, $y:ident| $pair:expr, $join:expr) => {
        $(#[$doc])*
        pub struct $name;
        impl Fold for $name {
            type T = $t;
            type A = $a;
            const EMPTY: $a = $empty;
            const TREE: bool = $tree;
            #[inline(always)]
            fn lift(x: $t) -> $a {
                x as $a
            }
            #[inline(always)]
            fn pair($x: $t, $y: $t) -> $t {
                $pair
            }
            #[inline(always)]
            fn join($x: $a, $y: $a) -> $a {
                $join
            }
        }
    };
}

// Trees of eight in f32 lose at most 3 * 2^-24 of the magnitudes; everything longer is added in f64.
fold!(/** Sum of f32. */ SumF32, f32 => f64, 0.0, true, |x, y| x + y, x + y);
fold!(/** Sum of f64. */ SumF64, f64 => f64, 0.0, true, |x, y| x + y, x + y);
fold!(/** Sum of i64. */ SumI64, i64 => i64, 0, true, |x, y| x.wrapping_add(y), x.wrapping_add(y));
fold!(/** Sum of i32. */ SumI32, i32 => i32, 0, true, |x, y| x.wrapping_add(y), x.wrapping_add(y));
fold!(/** Sum of u8. */ SumU8, u8 => u8, 0, true, |x, y| x.wrapping_add(y), x.wrapping_add(y));
fold!(/** Product of f32. */ ProdF32, f32 => f64, 1.0, false, |x, y| x * y, x * y);
fold!(/** Product of f64. */ ProdF64, f64 => f64, 1.0, false, |x, y| x * y, x * y);
fold!(/** Product of i64. */ ProdI64, i64 => i64, 1, true, |x, y| x.wrapping_mul(y), x.wrapping_mul(y));
fold!(/** Product of i32. */ ProdI32, i32 => i32, 1, true, |x, y| x.wrapping_mul(y), x.wrapping_mul(y));
fold!(/** Product of u8. */ ProdU8, u8 => u8, 1, true, |x, y| x.wrapping_mul(y), x.wrapping_mul(y));

/// The extremes of a type.
macro_rules! extremes {
    ($max:ident, $min:ident, $t:ty, $low:expr, $high:expr, |$x:ident, $y:ident| $larger:expr, $smaller:expr) => {
        fold!(/** Largest. */ $max, $t => $t, $low, true, |$x, $y| $larger, $larger);
        fold!(/** Smallest. */ $min, $t => $t, $high, true, |$x, $y| $smaller, $smaller);
    };
}
extremes!(
    MaxF32,
    MinF32,
    f32,
    f32::NEG_INFINITY,
    f32::INFINITY,
    |x, y| if (x > y) | x.is_nan() { x } else { y },
    if (x < y) | x.is_nan() { x } else { y }
);
extremes!(
    MaxF64,
    MinF64,
    f64,
    f64::NEG_INFINITY,
    f64::INFINITY,
    |x, y| if (x > y) | x.is_nan() { x } else { y },
    if (x < y) | x.is_nan() { x } else { y }
);
extremes!(MaxI64, MinI64, i64, i64::MIN, i64::MAX, |x, y| x.max(y), x.min(y));
extremes!(MaxI32, MinI32, i32, i32::MIN, i32::MAX, |x, y| x.max(y), x.min(y));
extremes!(MaxU8, MinU8, u8, u8::MIN, u8::MAX, |x, y| x.max(y), x.min(y));
// `any` and `all` are the extremes of 0 and 1; only the smallest of nothing differs.
fold!(/** Conjunction of bools. */ AllBool, u8 => u8, 1, true, |x, y| x & y, x & y);

/// Combines a list in pairs of neighbours, so that errors grow with its logarithm.
pub fn pairwise<F: Fold>(parts: &[F::A]) -> F::A {
    match parts {
        [] => F::EMPTY,
        [x] => *x,
        _ => {
            let (low, high) = parts.split_at(parts.len().next_power_of_two() / 2);
            F::join(pairwise::<F>(low), pairwise::<F>(high))
        }
    }
}

#[inline(always)]
fn fold_row<F: Fold>(row: &[F::T]) -> F::A {
    if row.len() < ROW_LANES {
        return row.iter().fold(F::EMPTY, |a, &x| F::join(a, F::lift(x)));
    }
    let mut acc = [F::EMPTY; ROW_LANES];
    let mut rest = row;
    if F::TREE {
        let (blocks, tail) = row.as_chunks::<ROW_BLOCK>();
        rest = tail;
        for b in blocks {
            for j in 0..ROW_LANES {
                let at = |k: usize| b[k * ROW_LANES + j];
                let low = F::pair(F::pair(at(0), at(1)), F::pair(at(2), at(3)));
                let high = F::pair(F::pair(at(4), at(5)), F::pair(at(6), at(7)));
                acc[j] = F::join(acc[j], F::lift(F::pair(low, high)));
            }
        }
    }
    let (lanes, tail) = rest.as_chunks::<ROW_LANES>();
    for x in lanes {
        for j in 0..ROW_LANES {
            acc[j] = F::join(acc[j], F::lift(x[j]));
        }
    }
    for (a, &x) in acc.iter_mut().zip(tail) {
        *a = F::join(*a, F::lift(x));
    }
    let mut width = ROW_LANES / 2;
    while width > 0 {
        for j in 0..width {
            acc[j] = F::join(acc[j], acc[j + width]);
        }
        width /= 2;
    }
    acc[0]
}

#[inline(always)]
unsafe fn rows_body<F: Fold>(x: *const F::T, len: usize, out: &mut [F::A]) {
    for (k, o) in out.iter_mut().enumerate() {
        // SAFETY: the caller vouches for `out.len()` rows of `len` elements.
        *o = fold_row::<F>(unsafe { std::slice::from_raw_parts(x.add(k * len), len) });
    }
}

#[inline(always)]
unsafe fn columns_body<F: Fold>(x: *const F::T, pitch: usize, rows: usize, acc: &mut [F::A]) {
    let n = acc.len();
    // SAFETY: the caller vouches for `rows` rows of `n` elements, `pitch` apart.
    let row = |k: usize| unsafe { std::slice::from_raw_parts(x.add(k * pitch), n) };
    if rows == ROW_GROUP {
        let r: [&[F::T]; ROW_GROUP] = std::array::from_fn(row);
        for j in 0..n {
            if F::TREE {
                let low = F::pair(F::pair(r[0][j], r[1][j]), F::pair(r[2][j], r[3][j]));
                let high = F::pair(F::pair(r[4][j], r[5][j]), F::pair(r[6][j], r[7][j]));
                acc[j] = F::join(acc[j], F::lift(F::pair(low, high)));
            } else {
                acc[j] = r.iter().fold(acc[j], |a, r| F::join(a, F::lift(r[j])));
            }
        }
        return;
    }
    for k in 0..rows {
        for (a, &x) in acc.iter_mut().zip(row(k)) {
            *a = F::join(*a, F::lift(x));
        }
    }
}

/// Declares a dispatcher over the machine versions of a generic loop.
macro_rules! fold_versions {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) = $body:ident) => {
        $(#[$doc])*
        pub unsafe fn $name<F: Fold>(isa: Isa, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,bmi1,bmi2,f16c")]
                unsafe fn v3<F: Fold>($($arg: $ty),*) {
                    // SAFETY: the caller's promise is passed on.
                    unsafe { $body::<F>($($arg),*) }
                }
                #[target_feature(enable = "avx2,fma,bmi1,bmi2,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
                unsafe fn v4<F: Fold>($($arg: $ty),*) {
                    // SAFETY: the caller's promise is passed on.
                    unsafe { $body::<F>($($arg),*) }
                }
                match isa {
                    // SAFETY: `Isa::get` found these features; the caller's promise is passed on.
                    Isa::Avx512 => return unsafe { v4::<F>($($arg),*) },
                    // SAFETY: as above.
                    Isa::Avx2 => return unsafe { v3::<F>($($arg),*) },
                    Isa::Base => {}
                }
            }
            let _ = isa;
            // SAFETY: the caller's promise is passed on.
            unsafe { $body::<F>($($arg),*) }
        }
    };
}

fold_versions! {
    /// Reduces each of `out.len()` rows of `len` elements that follow each other at `x`.
    ///
    /// # Safety
    /// Those elements are readable.
    fold_rows(x: *const F::T, len: usize, out: &mut [F::A]) = rows_body
}
fold_versions! {
    /// Adds `rows` rows of `acc.len()` elements, `pitch` apart, to the accumulators of their columns.
    ///
    /// # Safety
    /// Those elements are readable.
    fold_columns(x: *const F::T, pitch: usize, rows: usize, acc: &mut [F::A]) = columns_body
}
