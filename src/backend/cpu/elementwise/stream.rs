//! Stores that go past the caches, and loads before their time.

/// Bytes that memory hands over at once.
pub const LINE: usize = 64;

/// Asks for the cache line at an address, which need not be valid.
#[inline(always)]
pub fn prefetch<E>(at: *const E) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it reads nothing that the program could see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Copies a staged tile to its output, past the caches if `stream`.
///
/// # Safety
/// `bytes` bytes are readable at `from` and writable at `to`, which do not overlap.
pub unsafe fn store(from: *const u8, to: *mut u8, bytes: usize, stream: bool) {
    #[cfg(target_arch = "x86_64")]
    if stream {
        use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        let head = to.align_offset(16).min(bytes);
        let vectors = (bytes - head) / 16;
        let done = head + vectors * 16;
        // SAFETY: as below, in three parts; the middle one is aligned at its destination.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            let (src, dst) = (from.add(head).cast::<__m128i>(), to.add(head).cast::<__m128i>());
            if src.is_aligned() {
                (0..vectors).for_each(|k| _mm_stream_si128(dst.add(k), _mm_load_si128(src.add(k))));
            } else {
                (0..vectors).for_each(|k| _mm_stream_si128(dst.add(k), _mm_loadu_si128(src.add(k))));
            }
            _mm_sfence();
            std::ptr::copy_nonoverlapping(from.add(done), to.add(done), bytes - done);
        }
        return;
    }
    let _ = stream;
    // SAFETY: the caller vouches for both ends, which do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}
