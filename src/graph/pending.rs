//! This thread's pending nodes: what an evaluation point that takes everything finds.
use super::node::{Node, Stage, Tensor};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// More pending nodes than this are evaluated at once.
const MAX_NODES: usize = 10_000;
/// So are pending nodes that keep alive more bytes than this which nothing else holds.
const MAX_BYTES: usize = 256 << 20;

thread_local! {
    static PENDING: RefCell<Vec<Weak<Node>>> = const { RefCell::new(Vec::new()) };
    /// Bytes of computed values that Python let go of while pending nodes still read them, since the list was last swept.
    static KEPT_ALIVE: Cell<usize> = const { Cell::new(0) };
}

/// Counts a value that only pending nodes keep alive from now on.
pub(super) fn keep_alive(bytes: usize) {
    KEPT_ALIVE.set(KEPT_ALIVE.get().saturating_add(bytes));
}

/// Whether so much is pending that it must be evaluated.
pub fn is_pending_full() -> bool {
    KEPT_ALIVE.get() > MAX_BYTES || PENDING.with(|p| p.borrow().len()) > MAX_NODES
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
                if out.python.load(Relaxed) > 0 {
                    held = true;
                    roots.push(Tensor { node: node.clone(), index: i as u32 });
                }
            }
            held
        });
        roots
    })
}
