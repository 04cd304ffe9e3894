//! Room for blocks of matrices, kept by each thread for its next product.
use std::cell::Cell;

/// A cache line: what packed panels start on.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

thread_local! {
    /// Room for each use, kept for the next product of this thread.
    static ROOM: [Cell<Vec<Line>>; 3] = const { [const { Cell::new(Vec::new()) }; 3] };
}

/// What room is for: one of each may be lent at a time.
#[derive(Clone, Copy)]
pub enum Use {
    /// Packed blocks.
    Packed,
    /// Blocks converted to the type that is multiplied, and their sums.
    Converted,
    /// A product that only its epilogue sees.
    Results,
}

/// Room that starts on a cache line, lent by this thread until it is dropped.
pub struct Room {
    lines: Vec<Line>,
    of: Use,
}

impl Room {
    /// Room for `elems` elements.
    #[inline]
    pub fn new<E>(of: Use, elems: usize) -> Room {
        let lines = (elems * size_of::<E>()).div_ceil(64);
        let mut room = Room { lines: Vec::new(), of };
        if lines > 0 {
            // Taken, not borrowed: a nested call finds an empty vector instead of failing.
            room.lines = ROOM.with(|cells| cells[of as usize].take());
            if room.lines.capacity() < lines {
                room.lines = Vec::with_capacity(lines);
            }
        }
        room
    }

    /// The first element.
    #[inline]
    pub fn as_ptr<E>(&mut self) -> *mut E {
        self.lines.as_mut_ptr().cast()
    }
}

impl Drop for Room {
    #[inline]
    fn drop(&mut self) {
        if self.lines.capacity() > 0 {
            let lines = std::mem::take(&mut self.lines);
            // A thread that is ending has given its room back already.
            let _ = ROOM.try_with(|cells| cells[self.of as usize].set(lines));
        }
    }
}
