//! Giving up computed values that an earlier plan kept for gradient rules: where a budget leaves no room beside them they are computed
//! again.
use super::program::{Program, is_repeatable};
use crate::backend::op::Op;
use crate::graph::{GivenUp, Node, Stage, Storage};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Values that were given up for a plan that is not made yet.
#[derive(Default)]
pub(super) struct Aside(Vec<GivenUp>);

impl Aside {
    /// Bytes of storages that nothing else holds.
    pub fn bytes(&self) -> usize {
        let mut found: FxHashMap<*const Storage, (usize, &Arc<Storage>)> = FxHashMap::default();
        for value in self.0.iter().flat_map(GivenUp::values) {
            found.entry(Arc::as_ptr(&value.storage)).or_insert((0, &value.storage)).0 += 1;
        }
        let only_here = found.values().filter(|(count, storage)| Arc::strong_count(storage) == *count);
        only_here.filter_map(|(_, storage)| storage.bytes().ok()).sum()
    }

    /// Everything is as it was before.
    pub fn put_back(self) {
        // Given up newest first.
        self.0.into_iter().rev().for_each(GivenUp::put_back);
    }
}

/// Makes nodes pending again whose values the program reads, which nobody in Python holds and whose recipes are whole, and puts their
/// values aside. Gives whether there were any.
pub(super) fn give_up(program: Program, aside: &mut Aside) -> bool {
    let mut candidates: FxHashMap<*const Node, Arc<Node>> = FxHashMap::default();
    for node in &program.nodes {
        for t in &node.state.lock().inputs {
            if can_go(&t.node) {
                candidates.insert(Arc::as_ptr(&t.node), t.node.clone());
            }
        }
    }
    drop(program);
    let mut nodes = beneath(&candidates);
    nodes.sort_unstable_by_key(|n| n.id);
    let mut broken: FxHashSet<*const Node> = FxHashSet::default();
    for node in &nodes {
        let is_candidate = candidates.contains_key(&Arc::as_ptr(node));
        let state = node.state.lock();
        // What is no candidate stands here because it has no value: without inputs its recipe is gone.
        // A copy from another device is made once.
        let has_recipe =
            !matches!(node.op, Op::Transfer(_)) && (!state.inputs.is_empty() || super::program::needs_no_inputs(&node.op));
        let is_whole = has_recipe && state.inputs.iter().all(|t| !broken.contains(&Arc::as_ptr(&t.node)));
        drop(state);
        if !is_whole {
            candidates.remove(&Arc::as_ptr(node));
            if !is_candidate {
                broken.insert(Arc::as_ptr(node));
            }
        }
    }
    // Newest first, with what was computed without a value beneath them, so that each counts as a reader of what it needs.
    let mut any = false;
    for node in nodes.iter().rev() {
        let is_candidate = candidates.contains_key(&Arc::as_ptr(node));
        if is_candidate || (node.state.lock().values.iter().all(Option::is_none) && !broken.contains(&Arc::as_ptr(node))) {
            let given_up = node.reopen();
            any |= given_up.is_some() && is_candidate;
            aside.0.extend(given_up);
        }
    }
    any
}

fn can_go(node: &Node) -> bool {
    let state = node.state.lock();
    state.stage == Stage::Computed
        && !state.inputs.is_empty()
        && node.variable.is_none()
        && is_repeatable(&node.op)
        && node.outs.iter().all(|out| out.python.load(Relaxed) == 0)
}

/// The candidates, and what they would be computed from that has no value of its own.
fn beneath(candidates: &FxHashMap<*const Node, Arc<Node>>) -> Vec<Arc<Node>> {
    let mut seen: FxHashSet<*const Node> = candidates.keys().copied().collect();
    let mut stack: Vec<Arc<Node>> = candidates.values().cloned().collect();
    let mut found = Vec::new();
    while let Some(node) = stack.pop() {
        for t in &node.state.lock().inputs {
            if t.value().is_none() && seen.insert(Arc::as_ptr(&t.node)) {
                stack.push(t.node.clone());
            }
        }
        found.push(node);
    }
    found
}
