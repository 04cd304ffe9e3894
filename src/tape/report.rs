//! The tape's memory report: a fold over recorded nodes and what their gradient rules save, each storage counted once.
use crate::backend::op::Op;
use crate::graph::{Mark, Node, Out, TapeCore, Tensor};
use crate::pool::class_bytes;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// What one kind of op holds for backward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpRow {
    /// The op's name; `leaf` for parameters and other leaves.
    pub op: &'static str,
    /// Recorded nodes.
    pub nodes: usize,
    /// Bytes of their saved values, and of their recipes.
    pub bytes: usize,
}

/// A tape's report; sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Recorded nodes that are alive.
    pub nodes: usize,
    /// Saved leaves: parameters, inputs, whatever outlives the tape anyway.
    pub operands: usize,
    /// Saved values that were computed on the way.
    pub activations: usize,
    /// Host memory of the recipes.
    pub graph: usize,
    /// The part of operands and activations that has storage now.
    pub held: usize,
    /// The part of that which clearing the tape would free.
    pub freed_by_clear: usize,
    /// One row an op; complete.
    pub by_op: Vec<OpRow>,
}

/// Where a saved value's bytes are, and where they came from: views share their base's storage, unless they had to be copied.
struct Holder {
    /// The tensor whose storage holds the bytes, or will.
    bytes: Tensor,
    /// The tensor that they are charged to.
    origin: Tensor,
}

fn holder(t: &Tensor) -> Holder {
    let mut h = Holder { bytes: t.clone(), origin: t.clone() };
    while matches!(h.origin.node.op, Op::View(_)) && h.origin.node.variable.is_none() {
        let Some(next) = h.origin.node.state.lock().inputs.first().cloned() else { break };
        match (h.bytes.value(), next.value()) {
            (Some(mine), Some(its)) if !Arc::ptr_eq(&mine.storage, &its.storage) => break,
            (None, _) => h.bytes = next.clone(),
            _ => {}
        }
        h.origin = next;
    }
    h
}

#[derive(Default)]
struct Fold {
    report: Report,
    rows: BTreeMap<&'static str, (usize, usize)>,
    /// Storages counted, by address; values still pending by node and output.
    seen: FxHashSet<(usize, u32)>,
}

impl Fold {
    /// Counts a saved value once, in the row of the op that made it.
    fn saved(&mut self, t: &Tensor) {
        let Holder { bytes: t, origin } = holder(t);
        let value = t.value();
        let key = match &value {
            Some(v) => (Arc::as_ptr(&v.storage) as usize, u32::MAX),
            None => (Arc::as_ptr(&t.node) as usize, t.index),
        };
        if !self.seen.insert(key) {
            return;
        }
        let bytes = value.as_ref().and_then(|v| v.storage.bytes().ok()).unwrap_or_else(|| class_bytes(t.spec().bytes()));
        let is_leaf = origin.node.variable.is_some() || !origin.node.is_recorded();
        if is_leaf {
            self.report.operands += bytes;
        } else {
            self.report.activations += bytes;
        }
        self.rows.entry(if is_leaf { "leaf" } else { origin.node.op.name() }).or_default().1 += bytes;
        if let Some(v) = value {
            self.report.held += bytes;
            let is_wanted = |out: &Out| out.python.load(Relaxed) > 0 || out.pending.load(Relaxed) > 0;
            let is_held = is_wanted(t.out()) || is_wanted(origin.out());
            // Another value (a view that Python holds, an export) shares the storage: one count is the node's, one ours.
            if !is_held && Arc::strong_count(&v.storage) <= 2 {
                self.report.freed_by_clear += bytes;
            }
        }
    }
}

/// Host bytes of a node's recipe.
fn recipe_bytes(node: &Node, inputs: usize) -> usize {
    let heap = |n: usize, inline: usize, each: usize| if n > inline { n * each } else { 0 };
    std::mem::size_of::<Node>() + heap(inputs, 2, std::mem::size_of::<Tensor>()) + heap(node.args.len(), 2, 8)
}

/// The report of a tape, in its present generation. It evaluates nothing.
pub fn report(tape: &Arc<TapeCore>) -> Report {
    let nodes: Vec<Arc<Node>> = tape.nodes.lock().iter().filter_map(Weak::upgrade).collect();
    let mut fold = Fold::default();
    for node in &nodes {
        let is_live_on = |marks: &[Mark]| marks.iter().any(|m| Arc::ptr_eq(&m.tape, tape) && m.is_live());
        // What a segment's replay may compute is kept like what was recorded.
        if !is_live_on(&node.marks) && !node.segment.as_ref().is_some_and(|s| is_live_on(&s.marks)) {
            continue;
        }
        let (inputs, saved) = {
            let state = node.state.lock();
            (state.inputs.clone(), state.saved)
        };
        fold.report.nodes += 1;
        let bytes = recipe_bytes(node, inputs.len());
        fold.report.graph += bytes;
        let row = fold.rows.entry(node.op.name()).or_default();
        row.0 += 1;
        row.1 += bytes;
        for (i, t) in inputs.iter().enumerate() {
            if saved.inputs >> i.min(31) & 1 == 1 {
                fold.saved(t);
            }
        }
        for o in 0..node.outs.len() {
            if saved.outputs >> o & 1 == 1 {
                fold.saved(&Tensor { node: node.clone(), index: o as u32 });
            }
        }
    }
    let mut report = fold.report;
    report.by_op = fold.rows.into_iter().map(|(op, (nodes, bytes))| OpRow { op, nodes, bytes }).collect();
    report.by_op.sort_by_key(|r| std::cmp::Reverse(r.bytes));
    report
}
