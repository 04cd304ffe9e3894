//! Several machine versions of each kernel family, and the loops that all of them share.
use std::sync::atomic::{AtomicU8, Ordering};

/// Elements that a kernel's inner loop handles at once: a fixed trip count keeps the loops free of prologues and tails.
pub const LANES: usize = 128;

/// Bytes of one block of `LANES` elements of the widest type.
pub const BLOCK_BYTES: usize = LANES * 8;

/// The machine versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Isa {
    /// What the target always has.
    Base = 1,
    /// x86-64-v3.
    Avx2 = 2,
    /// x86-64-v4.
    Avx512 = 3,
}

impl Isa {
    /// The best version that this machine runs, found once.
    #[inline]
    pub fn get() -> Isa {
        static FOUND: AtomicU8 = AtomicU8::new(0);
        match FOUND.load(Ordering::Relaxed) {
            1 => Isa::Base,
            2 => Isa::Avx2,
            3 => Isa::Avx512,
            _ => {
                let isa = Isa::detect();
                FOUND.store(isa as u8, Ordering::Relaxed);
                isa
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn detect() -> Isa {
        macro_rules! all {
            ($($f:tt),*) => { $(std::arch::is_x86_feature_detected!($f))&&* };
        }
        if !all!("avx2", "fma", "bmi1", "bmi2", "f16c") {
            Isa::Base
        } else if all!("avx512f", "avx512bw", "avx512vl", "avx512dq") {
            Isa::Avx512
        } else {
            Isa::Avx2
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detect() -> Isa {
        Isa::Base
    }
}

/// The memory that one kernel call reads and writes: whole blocks of `LANES` elements.
#[derive(Clone, Copy)]
pub struct Io {
    /// Where results go: disjoint from every operand.
    pub dst: *mut u8,
    /// Operands.
    pub src: [*const u8; 3],
    /// 1, or 0 for an operand whose one block stands for all of them (a broadcast number).
    pub step: [usize; 3],
    /// Blocks.
    pub blocks: usize,
    /// Elements that matter, at most `blocks * LANES`: loops that call scalar functions stop here.
    pub n: usize,
}

/// Returns through the version of `$body` for the machines that have `$features`, if this is one.
macro_rules! version {
    ($isa:ident >= $level:ident, $features:literal, $body:path, ($($arg:ident: $ty:ty),*)) => {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = $features)]
            unsafe fn version($($arg: $ty),*) {
                // SAFETY: the caller's promise is passed on.
                unsafe { $body($($arg),*) }
            }
            if $isa as u8 >= $crate::backend::cpu::elementwise::isa::Isa::$level as u8 {
                // SAFETY: `Isa::get` found these features; the caller's promise is passed on.
                return unsafe { version($($arg),*) };
            }
        }
    };
}
pub(crate) use version;

/// Declares `$name` as a dispatcher over the versions of the `#[inline(always)]` function `$body`. Loops that only move and add are
/// best in 256-bit vectors (measured); those of long functions gain from 512, which `wide` adds.
macro_rules! versions {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) = $body:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the body: pointers valid for what the call describes, the destination disjoint from the operands.
        pub unsafe fn $name(isa: $crate::backend::cpu::elementwise::isa::Isa, $($arg: $ty),*) {
            $crate::backend::cpu::elementwise::isa::version!(isa >= Avx2, "avx2,fma,bmi1,bmi2,f16c", $body, ($($arg: $ty),*));
            let _ = isa;
            // SAFETY: the caller's promise is passed on.
            unsafe { $body($($arg),*) }
        }
    };
    (wide $(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) = $body:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the body: pointers valid for what the call describes, the destination disjoint from the operands.
        pub unsafe fn $name(isa: $crate::backend::cpu::elementwise::isa::Isa, $($arg: $ty),*) {
            $crate::backend::cpu::elementwise::isa::version!(
                isa >= Avx512, "avx2,fma,bmi1,bmi2,f16c,avx512f,avx512bw,avx512vl,avx512dq", $body, ($($arg: $ty),*)
            );
            $crate::backend::cpu::elementwise::isa::version!(isa >= Avx2, "avx2,fma,bmi1,bmi2,f16c", $body, ($($arg: $ty),*));
            let _ = isa;
            // SAFETY: the caller's promise is passed on.
            unsafe { $body($($arg),*) }
        }
    };
}
pub(crate) use versions;

/// Runs a one-operand loop over an `Io`; the body becomes a function of whole blocks, so that it vectorises.
macro_rules! map1 {
    ($io:expr, $a:ty => $u:ty, |$x:ident| $e:expr) => {{
        #[inline(always)]
        fn lanes(d: &mut [$u; LANES], a: &[$a; LANES]) {
            for i in 0..LANES {
                let $x = a[i];
                d[i] = $e;
            }
        }
        let (d, a) = ($io.dst.cast::<$u>(), $io.src[0].cast::<$a>());
        for c in 0..$io.blocks {
            // SAFETY: the caller of the kernel promises whole blocks, and that `dst` overlaps no operand.
            unsafe { lanes(&mut *d.add(c * LANES).cast(), &*a.add(c * LANES * $io.step[0]).cast()) }
        }
    }};
}
pub(crate) use map1;

/// Runs a two-operand loop over an `Io`.
macro_rules! map2 {
    ($io:expr, $a:ty => $u:ty, |$x:ident, $y:ident| $e:expr) => {{
        #[inline(always)]
        fn lanes(d: &mut [$u; LANES], a: &[$a; LANES], b: &[$a; LANES]) {
            for i in 0..LANES {
                let ($x, $y) = (a[i], b[i]);
                d[i] = $e;
            }
        }
        let (d, a, b) = ($io.dst.cast::<$u>(), $io.src[0].cast::<$a>(), $io.src[1].cast::<$a>());
        for c in 0..$io.blocks {
            // SAFETY: the caller of the kernel promises whole blocks, and that `dst` overlaps no operand.
            unsafe {
                lanes(
                    &mut *d.add(c * LANES).cast(),
                    &*a.add(c * LANES * $io.step[0]).cast(),
                    &*b.add(c * LANES * $io.step[1]).cast(),
                )
            }
        }
    }};
}
pub(crate) use map2;

/// A one-operand loop that calls a scalar function on the elements that matter only.
macro_rules! call1 {
    ($io:expr, $a:ty => $u:ty, |$x:ident| $e:expr) => {{
        let (d, a) = ($io.dst.cast::<$u>(), $io.src[0].cast::<$a>());
        for i in 0..$io.n {
            let at = if $io.step[0] == 0 { i % LANES } else { i };
            // SAFETY: `n` elements lie within the blocks that the caller of the kernel promises.
            unsafe {
                let $x = *a.add(at);
                *d.add(i) = $e;
            }
        }
    }};
}
pub(crate) use call1;

/// A two-operand loop that calls a scalar function on the elements that matter only.
macro_rules! call2 {
    ($io:expr, $a:ty => $u:ty, |$x:ident, $y:ident| $e:expr) => {{
        let (d, a, b) = ($io.dst.cast::<$u>(), $io.src[0].cast::<$a>(), $io.src[1].cast::<$a>());
        for i in 0..$io.n {
            let at = |k: usize| if $io.step[k] == 0 { i % LANES } else { i };
            // SAFETY: `n` elements lie within the blocks that the caller of the kernel promises.
            unsafe {
                let ($x, $y) = (*a.add(at(0)), *b.add(at(1)));
                *d.add(i) = $e;
            }
        }
    }};
}
pub(crate) use call2;
