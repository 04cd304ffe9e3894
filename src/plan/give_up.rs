//! Giving up computed values that an earlier plan kept for gradient rules: where a budget leaves no room beside them they are computed
//! again.
use super::program::{Program, is_repeatable};
use crate::backend::op::Op;
use crate::device::Device;
use crate::graph::{GivenUp, Node, Stage, Storage, TapeCore};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

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
    pub fn put_back(&mut self) {
        // Given up newest first.
        self.0.drain(..).rev().for_each(GivenUp::put_back);
    }
}

/// Nodes whose values the program reads and which can be computed again, since nobody in Python holds them.
pub(super) fn read_by(program: &Program) -> Vec<Arc<Node>> {
    let mut found: FxHashMap<*const Node, Arc<Node>> = FxHashMap::default();
    for node in &program.nodes {
        for t in &node.state.lock().inputs {
            if can_go(&t.node) {
                found.insert(Arc::as_ptr(&t.node), t.node.clone());
            }
        }
    }
    let mut found: Vec<Arc<Node>> = found.into_values().collect();
    found.sort_unstable_by_key(|n| n.id);
    found
}

/// Nodes on a device whose values a tape keeps for its gradient rules and nobody else needs.
pub(super) fn saved_by(tape: &TapeCore, device: Device) -> Vec<Arc<Node>> {
    let nodes: Vec<Arc<Node>> = tape.nodes.lock().iter().filter_map(Weak::upgrade).collect();
    nodes.into_iter().filter(|node| node.placing.device() == Some(device) && node.is_only_saved()).collect()
}

/// Makes nodes pending again whose recipes are whole, and puts their values aside; gives those that have gone.
pub(super) fn give_up(nodes: &[Arc<Node>], aside: &mut Aside) -> Vec<Arc<Node>> {
    let mut candidates: FxHashMap<*const Node, Arc<Node>> = FxHashMap::default();
    candidates.extend(nodes.iter().filter(|node| can_go(node)).map(|node| (Arc::as_ptr(node), node.clone())));
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
    let mut gone = Vec::new();
    for node in nodes.iter().rev() {
        let is_candidate = candidates.contains_key(&Arc::as_ptr(node));
        if is_candidate || (node.state.lock().values.iter().all(Option::is_none) && !broken.contains(&Arc::as_ptr(node))) {
            let given_up = node.reopen();
            if given_up.is_some() && is_candidate {
                gone.push(node.clone());
            }
            aside.0.extend(given_up);
        }
    }
    gone
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
