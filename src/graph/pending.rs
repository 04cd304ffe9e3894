//! This thread's pending nodes: what an evaluation point that takes everything finds.
use super::budget::limiting_tapes;
use super::node::{Node, Stage, Tensor};
use rustc_hash::FxHashSet;
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// More pending nodes than this are evaluated at once.
const MAX_NODES: usize = 10_000;
/// What a bound loses so that many nodes, or bytes, lie between two looks at everything that is pending.
const SLACK: usize = 16;
/// So are pending nodes that keep alive more bytes than this which nothing else holds.
const MAX_BYTES: usize = 256 << 20;

thread_local! {
    static PENDING: RefCell<Vec<Weak<Node>>> = const { RefCell::new(Vec::new()) };
    /// Bytes of computed values that Python let go of while pending nodes still read them, since the list was last swept.
    static KEPT_ALIVE: Cell<usize> = const { Cell::new(0) };
    /// Inside a forecast, which computes nothing.
    static IS_FORECASTING: Cell<bool> = const { Cell::new(false) };
    /// Inside a backward walk, which bounds what is pending itself.
    static IS_WALKING: Cell<bool> = const { Cell::new(false) };
}

/// Counts a value that only pending nodes keep alive from now on.
pub(super) fn keep_alive(bytes: usize) {
    KEPT_ALIVE.set(KEPT_ALIVE.get().saturating_add(bytes));
}

/// Runs a backward walk: until it ends, `is_pending_full` is false for everybody but the walk, which asks `is_walk_full`.
pub fn walking<R>(walk: impl FnOnce() -> R) -> R {
    let before = IS_WALKING.replace(true);
    let out = walk();
    IS_WALKING.set(before);
    out
}

/// Runs user code inside a backward walk: what it records is bounded as anywhere else, since the walk holds what it needs.
pub fn outside_walk<R>(code: impl FnOnce() -> R) -> R {
    let before = IS_WALKING.replace(false);
    let out = code();
    IS_WALKING.set(before);
    out
}

/// While it lives nothing is computed on this thread: what is pending stays so.
pub struct Forecast(bool);

impl Forecast {
    /// Begins one.
    pub fn enter() -> Forecast {
        Forecast(IS_FORECASTING.replace(true))
    }
}

impl Drop for Forecast {
    fn drop(&mut self) {
        IS_FORECASTING.set(self.0);
    }
}

/// Whether this thread is inside a forecast.
pub fn is_forecasting() -> bool {
    IS_FORECASTING.get()
}

/// Whether so much is pending that it must be evaluated.
pub fn is_pending_full() -> bool {
    !IS_WALKING.get() && is_walk_full()
}

/// Whether a backward walk must evaluate what it has made so far. How many nodes there are does not cut a tape with a budget: its plans
/// are the better the more they see.
pub fn is_walk_full() -> bool {
    let is_long = || PENDING.with(|p| p.borrow().len()) > MAX_NODES && limiting_tapes().is_empty();
    !is_forecasting() && (KEPT_ALIVE.get() > MAX_BYTES || is_long()) && is_full_without_the_done()
}

/// Whether too much is pending once those nodes are off the list that were computed by name or dropped, and what they kept alive is not
/// counted: they do not cut a plan wherever the 10,000th of them happens to be.
fn is_full_without_the_done() -> bool {
    let pending: Vec<Arc<Node>> = PENDING.with(|p| {
        let mut list = p.borrow_mut();
        let mut alive = Vec::new();
        list.retain(|weak| {
            let Some(node) = weak.upgrade() else { return false };
            let is_pending = node.state.try_lock().is_none_or(|state| state.stage != Stage::Computed);
            if is_pending {
                alive.push(node);
            }
            is_pending
        });
        alive
    });
    let mut seen = FxHashSet::default();
    let mut bytes = 0usize;
    for node in &pending {
        let inputs = node.state.try_lock().map(|state| state.inputs.clone()).unwrap_or_default();
        for t in inputs.iter().filter(|t| t.out().python.load(Relaxed) == 0) {
            let is_computed = t.node.state.try_lock().is_some_and(|state| state.values[t.index()].is_some());
            if is_computed && seen.insert((Arc::as_ptr(&t.node), t.index())) {
                bytes = bytes.saturating_add(t.spec().bytes());
            }
        }
    }
    KEPT_ALIVE.set(bytes);
    let is_long = pending.len() > MAX_NODES - MAX_NODES / SLACK && limiting_tapes().is_empty();
    is_long || bytes > MAX_BYTES - MAX_BYTES / SLACK
}

/// Adds a new node.
pub(super) fn push(node: &Arc<Node>) {
    PENDING.with(|p| p.borrow_mut().push(Arc::downgrade(node)));
}

/// Takes the list: the pending outputs that Python holds, oldest first. What is pending but unheld stays out: its consumers own it.
/// The outputs given back are remembered until they are computed or dropped, so an evaluation that fails loses none.
pub fn pending_roots() -> Vec<Tensor> {
    KEPT_ALIVE.set(0);
    PENDING.with(|p| {
        let mut list = p.borrow_mut();
        let mut roots = Vec::new();
        list.retain(|weak| {
            let Some(node) = weak.upgrade() else { return false };
            if node.state.lock().stage == Stage::Computed {
                return false;
            }
            let mut held = false;
            for (i, out) in node.outs.iter().enumerate() {
                if out.python.load(Relaxed) == 0 {
                    continue;
                }
                held = true;
                roots.push(Tensor { node: node.clone(), index: i as u32 });
            }
            held
        });
        roots
    })
}
