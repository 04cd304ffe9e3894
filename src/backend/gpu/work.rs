//! What a device was given to do so far, counted: for tests of how dispatches go together.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts that only grow.
#[derive(Debug, Default)]
pub(super) struct Work {
    submissions: AtomicU64,
    passes: AtomicU64,
    dispatches: AtomicU64,
}

/// They at one moment: submissions, compute passes, and dispatches in these.
pub type WorkCounts = (u64, u64, u64);

impl Work {
    /// Commands were handed over.
    pub fn note_submission(&self) {
        self.submissions.fetch_add(1, Relaxed);
    }

    /// A pass of so many dispatches was encoded.
    pub fn note_pass(&self, dispatches: usize) {
        self.passes.fetch_add(1, Relaxed);
        self.dispatches.fetch_add(dispatches as u64, Relaxed);
    }

    /// What was counted so far.
    pub fn counts(&self) -> WorkCounts {
        (self.submissions.load(Relaxed), self.passes.load(Relaxed), self.dispatches.load(Relaxed))
    }
}
