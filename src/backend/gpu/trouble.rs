//! What went wrong on a device outside any call: the first uncaptured error, and its loss; and the faults that tests inject.
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

/// The shader whose dispatches leave out their last workgroup: for tests of what must find a wrong kernel.
static SPOILED: Mutex<Option<String>> = Mutex::new(None);
static IS_ANY_SPOILED: AtomicBool = AtomicBool::new(false);

/// What a device has reported since it was opened.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    is_lost: AtomicBool,
    reason: Mutex<String>,
    has_error: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl Trouble {
    /// The device is gone.
    pub fn lose(&self, reason: String) {
        *self.reason.lock() = reason;
        self.is_lost.store(true, Relaxed);
    }

    /// Whether it is gone.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// Remembers an error that nobody was waiting for; the first one says most.
    pub fn note(&self, error: Error) {
        self.error.lock().get_or_insert(error);
        self.has_error.store(true, Relaxed);
    }

    /// The loss or the error noted since the last look.
    pub fn check(&self, name: &str) -> Result<()> {
        if self.is_lost() {
            let reason = self.reason.lock();
            let message = format!(
                "{name} was lost ({}): its tensors are gone; tensors on the CPU and saved files are untouched, and ag.reset(\"{name}\") \
                 opens it again",
                if reason.is_empty() { "no reason given" } else { reason.trim() }
            );
            return Err(Error::device(message));
        }
        if self.has_error.swap(false, Relaxed) {
            return self.error.lock().take().map_or(Ok(()), Err);
        }
        Ok(())
    }
}

/// A point at which a test can make things fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A device is opened.
    Open,
    /// A buffer is created.
    Allocate,
    /// A buffer is mapped to be read.
    Map,
    /// Work is submitted.
    Submit,
    /// The device is lost when work is submitted.
    Lose,
    /// Earlier work is waited for because too much is under way.
    Land,
    /// The device is waited for.
    Wait,
    /// What a mapped buffer holds is looked at.
    View,
    /// A probe's answer is read.
    Probe,
    /// The device is asked to make something, or handed work, and has no memory for it.
    Exhaust,
    /// A command is encoded that the device refuses.
    Encode,
    /// A shader is compiled that is none.
    Compile,
}

/// Calls left until each point fails; negative for never.
static LEFT: [AtomicI64; 12] = [const { AtomicI64::new(-1) }; 12];

/// Makes the `n`-th call (from 0) at a point from now on fail; a negative number takes that back. Allocations go on failing until then,
/// since the first to fail is tried again when cached buffers have been returned.
pub fn inject(fault: Fault, n: i64) {
    LEFT[fault as usize].store(n, Relaxed);
}

/// Whether this call is to fail.
pub(super) fn strikes(fault: Fault) -> bool {
    let after = |left: i64| match left {
        0 if fault == Fault::Allocate => Some(0),
        0.. => Some(left - 1),
        _ => None,
    };
    LEFT[fault as usize].fetch_update(Relaxed, Relaxed, after) == Ok(0)
}

/// Makes every dispatch of the shaders of a name leave out its last workgroup from now on; `None` takes that back.
pub fn spoil(name: Option<String>) {
    let mut spoiled = SPOILED.lock();
    IS_ANY_SPOILED.store(name.is_some(), Relaxed);
    *spoiled = name;
}

/// The workgroups that a dispatch is to have.
pub(super) fn workgroups(name: &str, [x, y, z]: [u32; 3]) -> [u32; 3] {
    if !IS_ANY_SPOILED.load(Relaxed) || SPOILED.lock().as_deref() != Some(name) {
        return [x, y, z];
    }
    match (y, z) {
        (1, 1) => [x - 1, y, z],
        (_, 1) => [x, y - 1, z],
        _ => [x, y, z - 1],
    }
}
