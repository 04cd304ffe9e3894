//! One vector register's arithmetic, as the product's inner loop wants it: AVX-512, AVX2 and a portable form.

/// A few elements side by side.
///
/// # Safety
/// Every method needs the instruction set that the implementing type stands for, and pointers good for the elements it names.
#[allow(clippy::missing_safety_doc)]
pub trait Vector: Copy {
    /// What the lanes hold.
    type Elem: Copy;
    /// Elements side by side.
    const LANES: usize;
    /// Rows and columns of the square that `transpose` handles.
    const SQUARE: usize;
    /// Whether loading the first few lanes costs no more than loading all.
    const MASKS_FREELY: bool = false;
    /// Rows of a register tile, 8 or 4: with three vectors a row, what the registers hold.
    const TILE: usize;
    /// All zero.
    unsafe fn zero() -> Self;
    /// One element in every lane.
    unsafe fn splat(from: *const Self::Elem) -> Self;
    /// `LANES` elements.
    unsafe fn load(from: *const Self::Elem) -> Self;
    /// The first `count` (at most `LANES`) elements, the other lanes zero.
    unsafe fn load_first(from: *const Self::Elem, count: usize) -> Self;
    /// Writes `LANES` elements.
    unsafe fn store(self, to: *mut Self::Elem);
    /// Writes the first `count` (at most `LANES`) elements.
    unsafe fn store_first(self, to: *mut Self::Elem, count: usize);
    /// `self + other`
    unsafe fn add(self, other: Self) -> Self;
    /// `self * by + to`, rounded once where the type has such an instruction.
    unsafe fn mul_add(self, by: Self, to: Self) -> Self;
    /// Keeps what is read after it from being read before it, where a tile fills all registers: the compiler would fetch several rows'
    /// elements at once and put sums into memory for them.
    #[inline(always)]
    unsafe fn in_turn() {}

    /// Writes the transpose of a square: row i is read at `from + i * step`, column i is written at `to + i`, rows `to_step` apart.
    #[inline(always)]
    unsafe fn transpose(from: *const Self::Elem, step: isize, to: *mut Self::Elem, to_step: usize) {
        for j in 0..Self::SQUARE {
            for i in 0..Self::SQUARE {
                // SAFETY: both indices lie inside the squares that the caller vouches for.
                unsafe { *to.add(j * to_step + i) = *from.offset(i as isize * step).add(j) };
            }
        }
    }
}

/// Numbers that `Lanes` can hold.
pub trait Number: Copy {
    /// 0
    const ZERO: Self;
    /// `self + other`, wrapping for integers.
    fn plus(self, other: Self) -> Self;
    /// `self * by + to`, wrapping for integers.
    fn times_plus(self, by: Self, to: Self) -> Self;
}

macro_rules! number {
    (int $($t:ty),*) => {$(
        impl Number for $t {
            const ZERO: Self = 0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times_plus(self, by: Self, to: Self) -> Self {
                self.wrapping_mul(by).wrapping_add(to)
            }
        }
    )*};
    (float $($t:ty),*) => {$(
        impl Number for $t {
            const ZERO: Self = 0.0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times_plus(self, by: Self, to: Self) -> Self {
                // Without the instruction, mul_add would be a call for every element.
                if cfg!(any(target_arch = "aarch64", target_feature = "fma")) { self.mul_add(by, to) } else { self * by + to }
            }
        }
    )*};
}
number!(int u8, i32, i64);
number!(float f32, f64);

/// `N` lanes in an array: the compiler makes of it what the target has.
#[derive(Clone, Copy)]
pub struct Lanes<E, const N: usize>([E; N]);

impl<E: Number, const N: usize> Vector for Lanes<E, N> {
    type Elem = E;
    const LANES: usize = N;
    const SQUARE: usize = 4;
    const TILE: usize = if cfg!(target_arch = "aarch64") { 8 } else { 4 };
    #[inline(always)]
    unsafe fn zero() -> Self {
        Lanes([E::ZERO; N])
    }
    #[inline(always)]
    unsafe fn splat(from: *const E) -> Self {
        // SAFETY: the caller vouches for one element.
        Lanes([unsafe { *from }; N])
    }
    #[inline(always)]
    unsafe fn load(from: *const E) -> Self {
        // SAFETY: the caller vouches for N elements.
        Lanes(unsafe { from.cast::<[E; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_first(from: *const E, count: usize) -> Self {
        // SAFETY: the caller vouches for `count` elements.
        Lanes(std::array::from_fn(|i| if i < count { unsafe { *from.add(i) } } else { E::ZERO }))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut E) {
        // SAFETY: the caller vouches for N elements.
        unsafe { to.cast::<[E; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut E, count: usize) {
        for (i, &x) in self.0.iter().enumerate().take(count) {
            // SAFETY: the caller vouches for `count` elements.
            unsafe { *to.add(i) = x };
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Lanes(std::array::from_fn(|i| self.0[i].plus(other.0[i])))
    }
    #[inline(always)]
    unsafe fn mul_add(self, by: Self, to: Self) -> Self {
        Lanes(std::array::from_fn(|i| self.0[i].times_plus(by.0[i], to.0[i])))
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{F32x8, F32x16, F64x4, F64x8};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::asm;
    use std::arch::x86_64::*;

    /// Implements `Vector` for a register. Every unsafe block: the caller has the instruction set and vouches for the pointers.
    macro_rules! register {
        ($(#[$doc:meta])* $name:ident($reg:ty) of $elem:ty, $lanes:literal, masks_freely $free:literal, square $square:literal by $transpose:ident, mask $mask:expr;
            $zero:ident $splat:ident $load:ident $load_first:expr; $store:ident $store_first:expr; $add:ident $fma:ident) => {
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub struct $name($reg);

            // SAFETY (of each block): see the trait's contract, which the caller of the method keeps.
            impl Vector for $name {
                type Elem = $elem;
                const LANES: usize = $lanes;
                const TILE: usize = if size_of::<$reg>() == 64 { 8 } else { 4 };
                const SQUARE: usize = $square;
                const MASKS_FREELY: bool = $free;
                #[inline(always)]
                unsafe fn in_turn() {
                    if Self::TILE == 4 {
                        // SAFETY: no instruction; the compiler must assume that memory has changed.
                        unsafe { asm!("", options(nostack, preserves_flags)) };
                    }
                }
                #[inline(always)]
                unsafe fn zero() -> Self {
                    $name(unsafe { $zero() })
                }
                #[inline(always)]
                unsafe fn splat(from: *const $elem) -> Self {
                    $name(unsafe { $splat(*from) })
                }
                #[inline(always)]
                unsafe fn load(from: *const $elem) -> Self {
                    $name(unsafe { $load(from) })
                }
                #[inline(always)]
                unsafe fn load_first(from: *const $elem, count: usize) -> Self {
                    $name(unsafe { $load_first($mask(count), from) })
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $elem) {
                    unsafe { $store(to, self.0) }
                }
                #[inline(always)]
                unsafe fn store_first(self, to: *mut $elem, count: usize) {
                    unsafe { $store_first(to, $mask(count), self.0) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    $name(unsafe { $add(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn mul_add(self, by: Self, to: Self) -> Self {
                    $name(unsafe { $fma(self.0, by.0, to.0) })
                }
                #[inline(always)]
                unsafe fn transpose(from: *const $elem, step: isize, to: *mut $elem, to_step: usize) {
                    unsafe { $transpose(from, step, to, to_step) }
                }
            }
        };
    }

    register!(
        /// 16 floats in an AVX-512 register.
        F32x16(__m512) of f32, 16, masks_freely true, square 8 by transpose_f32, mask |n: usize| ((1u32 << n) - 1) as __mmask16;
        _mm512_setzero_ps _mm512_set1_ps _mm512_loadu_ps _mm512_maskz_loadu_ps;
        _mm512_storeu_ps _mm512_mask_storeu_ps; _mm512_add_ps _mm512_fmadd_ps
    );
    register!(
        /// 8 doubles in an AVX-512 register.
        F64x8(__m512d) of f64, 8, masks_freely true, square 4 by transpose_f64, mask |n: usize| ((1u32 << n) - 1) as __mmask8;
        _mm512_setzero_pd _mm512_set1_pd _mm512_loadu_pd _mm512_maskz_loadu_pd;
        _mm512_storeu_pd _mm512_mask_storeu_pd; _mm512_add_pd _mm512_fmadd_pd
    );
    register!(
        /// 8 floats in an AVX register.
        F32x8(__m256) of f32, 8, masks_freely false, square 4 by transpose_f32_by_4, mask mask32;
        _mm256_setzero_ps _mm256_set1_ps _mm256_loadu_ps |m, p| _mm256_maskload_ps(p, m);
        _mm256_storeu_ps _mm256_maskstore_ps; _mm256_add_ps _mm256_fmadd_ps
    );
    register!(
        /// 4 doubles in an AVX register.
        F64x4(__m256d) of f64, 4, masks_freely false, square 4 by transpose_f64, mask mask64;
        _mm256_setzero_pd _mm256_set1_pd _mm256_loadu_pd |m, p| _mm256_maskload_pd(p, m);
        _mm256_storeu_pd _mm256_maskstore_pd; _mm256_add_pd _mm256_fmadd_pd
    );

    /// A mask whose first `count` lanes are on.
    #[inline(always)]
    unsafe fn mask32(count: usize) -> __m256i {
        // SAFETY: register arithmetic; the caller has AVX2.
        unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
    }

    /// A mask whose first `count` lanes are on.
    #[inline(always)]
    unsafe fn mask64(count: usize) -> __m256i {
        // SAFETY: register arithmetic; the caller has AVX2.
        unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(count as i64), _mm256_setr_epi64x(0, 1, 2, 3)) }
    }

    /// An 8 x 8 square.
    #[inline(always)]
    unsafe fn transpose_f32(from: *const f32, step: isize, to: *mut f32, to_step: usize) {
        // SAFETY: the caller has AVX and vouches for both squares.
        unsafe {
            let pair = |i: isize| {
                // Rows i and i + 4: each half-register then holds a 4 x 4 block after the in-lane shuffles.
                let lo = from.offset(i * step);
                let hi = from.offset((i + 4) * step);
                let left = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(lo)), _mm_loadu_ps(hi));
                let right = _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(lo.add(4))), _mm_loadu_ps(hi.add(4)));
                (left, right)
            };
            let (r0, r1, r2, r3) = (pair(0), pair(1), pair(2), pair(3));
            for (half, [a, b, c, d]) in [[r0.0, r1.0, r2.0, r3.0], [r0.1, r1.1, r2.1, r3.1]].into_iter().enumerate() {
                let (ab0, ab1) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
                let (cd0, cd1) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
                let rows = [
                    _mm256_shuffle_ps::<0x44>(ab0, cd0),
                    _mm256_shuffle_ps::<0xEE>(ab0, cd0),
                    _mm256_shuffle_ps::<0x44>(ab1, cd1),
                    _mm256_shuffle_ps::<0xEE>(ab1, cd1),
                ];
                for (j, row) in rows.into_iter().enumerate() {
                    _mm256_storeu_ps(to.add((half * 4 + j) * to_step), row);
                }
            }
        }
    }

    /// A 4 x 4 square, for panels of four rows.
    #[inline(always)]
    unsafe fn transpose_f32_by_4(from: *const f32, step: isize, to: *mut f32, to_step: usize) {
        // SAFETY: every x86-64 has SSE; the caller vouches for both squares.
        unsafe {
            let row = |i: isize| _mm_loadu_ps(from.offset(i * step));
            let (mut a, mut b, mut c, mut d) = (row(0), row(1), row(2), row(3));
            _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
            for (j, column) in [a, b, c, d].into_iter().enumerate() {
                _mm_storeu_ps(to.add(j * to_step), column);
            }
        }
    }

    /// A 4 x 4 square.
    #[inline(always)]
    unsafe fn transpose_f64(from: *const f64, step: isize, to: *mut f64, to_step: usize) {
        // SAFETY: the caller has AVX and vouches for both squares.
        unsafe {
            let row = |i: isize| _mm256_loadu_pd(from.offset(i * step));
            let (a, b, c, d) = (row(0), row(1), row(2), row(3));
            let (ab0, ab1) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            let (cd0, cd1) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
            _mm256_storeu_pd(to, _mm256_permute2f128_pd::<0x20>(ab0, cd0));
            _mm256_storeu_pd(to.add(to_step), _mm256_permute2f128_pd::<0x20>(ab1, cd1));
            _mm256_storeu_pd(to.add(2 * to_step), _mm256_permute2f128_pd::<0x31>(ab0, cd0));
            _mm256_storeu_pd(to.add(3 * to_step), _mm256_permute2f128_pd::<0x31>(ab1, cd1));
        }
    }
}
