//! Dropping chains of nodes with a work list: a chain of a million nodes must not recurse.
use super::node::{Node, Stage, Tensor};
use super::placing::count_transfer;
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

thread_local! {
    /// Inputs of nodes that are being dropped on this thread; `None` when no drop is under way.
    static WAITING: RefCell<Option<Vec<Tensor>>> = const { RefCell::new(None) };
}

impl Drop for Node {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let inputs = std::mem::take(&mut state.inputs);
        if state.stage == Stage::Pending {
            count_transfer(&self.op, false);
        }
        for (i, t) in inputs.iter().enumerate() {
            if state.stage == Stage::Pending {
                t.out().pending.fetch_sub(1, Relaxed);
            }
            if state.saved.has_input(i) {
                t.out().saved.fetch_sub(1, Relaxed);
            }
        }
        if inputs.is_empty() {
            return;
        }
        let mut inputs = Some(inputs);
        let nested = WAITING
            .try_with(|w| match (w.try_borrow_mut().as_deref_mut(), inputs.take()) {
                (Ok(Some(list)), Some(mine)) => {
                    list.extend(mine);
                    true
                }
                (Ok(slot @ None), Some(mine)) => {
                    *slot = Some(mine.into_vec());
                    false
                }
                (_, mine) => {
                    inputs = mine;
                    true
                }
            })
            .unwrap_or(true);
        // Thread-local storage is gone at thread exit: what is left then is dropped in place.
        drop(inputs);
        if nested {
            return;
        }
        while let Ok(Some(next)) = WAITING.try_with(|w| w.borrow_mut().as_mut().and_then(Vec::pop)) {
            // Freed here only if other nodes keep it alive; otherwise its own drop follows and pushes its inputs.
            next.node.free_if_unwanted(next.index());
            drop(next);
        }
        let _ = WAITING.try_with(|w| *w.borrow_mut() = None);
    }
}
