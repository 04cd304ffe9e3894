//! This thread's pending nodes: what an evaluation point that takes everything finds.
use super::node::{Node, Stage, Tensor};
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// More pending nodes than this are evaluated at once.
pub const PENDING_LIMIT: usize = 10_000;

thread_local! {
    static PENDING: RefCell<Vec<Weak<Node>>> = const { RefCell::new(Vec::new()) };
}

/// Adds a new node.
pub(super) fn push(node: &Arc<Node>) {
    PENDING.with(|p| p.borrow_mut().push(Arc::downgrade(node)));
}

/// How many nodes were recorded since the list was last swept.
pub fn pending_len() -> usize {
    PENDING.with(|p| p.borrow().len())
}

/// Takes the list: the pending outputs that Python holds, oldest first. What is pending but unheld stays out: its consumers own it.
/// The outputs given back are remembered until they are computed or dropped, so an evaluation that fails loses none.
pub fn pending_roots() -> Vec<Tensor> {
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
