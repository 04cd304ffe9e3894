//! Stores that go past the caches.

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
