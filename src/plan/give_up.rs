//! Giving up computed values that an earlier plan kept for gradient rules: where a budget leaves no room beside them they are computed
//! again.
use super::program::{Program, is_repeatable};
use crate::graph::{Node, Stage};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Makes nodes pending again whose values the program reads, which nobody in Python holds and whose recipes are whole. Gives whether
/// there were any.
pub(super) fn give_up(program: Program) -> bool {
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
        let has_recipe = !state.inputs.is_empty() || super::program::needs_no_inputs(&node.op);
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
            any |= node.reopen() && is_candidate;
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
