//! Watching plans run: a thread's observer hears of every launch of its evaluations, with the bytes that are alive then.
use super::lives::Life;
use crate::graph::Node;
use std::cell::RefCell;
use std::sync::Arc;

/// One launch that is about to run.
pub struct LaunchEvent<'a> {
    /// Its position in the plan.
    pub index: usize,
    /// The node it stands for: its op, its line where that is known, its tapes. Of fused ones the last.
    pub node: &'a Node,
    /// Active bytes of the device while it runs: what was there before, and the plan's own that are alive.
    pub live_bytes: usize,
    /// What it makes.
    pub made: &'a [Life],
}

/// What hears of launches. Long plans call it from another thread; it must not evaluate.
pub type Observer = Arc<dyn Fn(&LaunchEvent) + Send + Sync>;

thread_local! {
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

/// Replaces the observer of the evaluations that this thread asks for, and gives back the former one.
pub fn observe(observer: Option<Observer>) -> Option<Observer> {
    OBSERVER.with(|o| o.replace(observer))
}

/// This thread's observer.
pub(super) fn observer() -> Option<Observer> {
    OBSERVER.with(|o| o.borrow().clone())
}
