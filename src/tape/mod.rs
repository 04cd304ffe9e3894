//! Tapes: opening, recording, clearing, and the walk that builds gradients.
mod backward;
mod former;
mod gradient_sum;
mod report;
mod saved_storages;
mod seed;
mod targets;

pub use crate::checkpoint::{SegmentRow, segments};
pub use backward::{Backward, LastBackward, backward, gradients, last_backward, watch};
pub use report::{InteriorRow, LineRow, OpRow, Report, StorageRow, replays, report};
pub use saved_storages::Fate;
pub use targets::Targets;

use crate::device::Device;
use crate::error::Result;
use crate::graph::{Budget, Node, Probe, Scope, Stage, TapeCore, pools, scope};
use crate::plan::{evaluate_pending, lock_engine};
use parking_lot::Mutex;
use smallvec::smallvec;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};

static NEXT_TAPE: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// This thread's newest tape, for reports.
    static NEWEST: RefCell<Weak<TapeCore>> = const { RefCell::new(Weak::new()) };
}

/// A new tape with a pass pool of its own, and a bound on active bytes from here on if it has a budget; opening a top-level tape is an
/// evaluation point.
pub fn open(budget: Option<usize>) -> Result<Arc<TapeCore>> {
    let outer = scope(|s| s.around());
    if outer.is_empty() {
        evaluate_pending(&[])?;
    }
    let tape = new_tape(outer, None, budget)?;
    set_newest(Arc::downgrade(&tape));
    Ok(tape)
}

/// The tape of one run of a segment's function, inside tapes with these numbers.
pub fn open_probe(probe: Probe, outer: Vec<u32>) -> Result<Arc<TapeCore>> {
    new_tape(outer, Some(probe), None)
}

/// Ends the tape of a run.
pub fn close_probe(tape: &TapeCore) -> Result<()> {
    end_generation(tape);
    forget(tape)
}

fn new_tape(outer: Vec<u32>, probe: Option<Probe>, budget: Option<usize>) -> Result<Arc<TapeCore>> {
    let pool = pools(Device::CPU).lock().create_pass()?;
    Ok(Arc::new(TapeCore {
        id: NEXT_TAPE.fetch_add(1, Relaxed),
        pools: Mutex::new(smallvec![(Device::CPU, pool)]),
        outer,
        generation: AtomicU32::new(0),
        nodes: Mutex::new(Vec::new()),
        segments: Mutex::new(Vec::new()),
        probe,
        budget: budget.map(Budget::new),
    }))
}

/// This thread's newest tape, which reports may mean.
pub fn newest() -> Weak<TapeCore> {
    NEWEST.with(|n| n.borrow().clone())
}

/// Makes another tape this thread's newest.
pub fn set_newest(tape: Weak<TapeCore>) {
    NEWEST.with(|n| *n.borrow_mut() = tape);
}

/// Records on the tape until the scope is dropped.
pub fn enter(tape: &Arc<TapeCore>) -> Scope {
    Scope::enter(|s| {
        s.tapes.push(tape.clone());
        s.paused = false;
    })
}

/// The innermost recording tape, else this thread's newest.
pub fn current() -> Option<Arc<TapeCore>> {
    scope(|s| s.tapes.last().cloned()).or_else(|| NEWEST.with(|n| n.borrow().upgrade()))
}

/// Frees the tape's saved set and makes its records stale; what others still need moves to the persistent pool.
pub fn clear(tape: &Arc<TapeCore>) -> Result<()> {
    evaluate_pending(&[])?;
    end_generation(tape);
    forget(tape)
}

/// Starts a new generation and takes back what the old one saved.
fn end_generation(tape: &TapeCore) {
    tape.generation.fetch_add(1, Relaxed);
    let nodes: Vec<Weak<Node>> = tape.nodes.lock().clone();
    for node in nodes.iter().filter_map(Weak::upgrade) {
        if !node.keeps_recipe() {
            node.release_saved();
        }
    }
}

/// Computed nodes of ended generations forget their inputs; their values change owner.
fn forget(tape: &TapeCore) -> Result<()> {
    let _engine = lock_engine();
    let nodes = std::mem::take(&mut *tape.nodes.lock());
    let mut still_recorded = Vec::new();
    // Newest first, so that a value is freed as soon as its last reader has forgotten it.
    for weak in nodes.into_iter().rev() {
        let Some(node) = weak.upgrade() else { continue };
        if node.marks.iter().any(|m| std::ptr::eq(&*m.tape, tape) && m.is_live()) {
            still_recorded.push(weak);
            continue;
        }
        if node.state.lock().stage == Stage::Computed {
            node.complete();
            if !node.is_recorded() {
                move_values(&node)?;
            }
        }
    }
    if let Some(budget) = &tape.budget {
        budget.end_step();
    }
    still_recorded.reverse();
    tape.segments.lock().retain(|weak| weak.upgrade().is_some_and(|s| s.is_live()));
    let mut list = tape.nodes.lock();
    still_recorded.append(&mut list);
    *list = still_recorded;
    Ok(())
}

/// Values that outlive their tape move to the persistent pool, without a copy.
fn move_values(node: &Node) -> Result<()> {
    let state = node.state.lock();
    for value in state.values.iter().flatten() {
        let mut pools = pools(value.storage.device()).lock();
        let persistent = pools.persistent();
        if !persistent.has_number_of(value.storage.handle()) {
            value.storage.move_to(&mut pools, persistent)?;
        }
    }
    Ok(())
}
