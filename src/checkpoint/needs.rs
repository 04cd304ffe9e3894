//! What a segment's replay computes and reads, from the recipes alone; and the report's row of each segment.
use crate::backend::op::Op;
use crate::graph::{Node, Saved, Segment, TapeCore, Tensor};
use crate::pool::class_bytes;
use crate::shape::elems;
use rustc_hash::FxHashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// One segment in a tape's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    /// Its name; those of the segments it is nested in stand before it.
    pub name: String,
    /// Bytes of the values from outside that are kept for its replay, parameters and other leaves apart, which live anyway.
    pub kept: usize,
    /// Bytes of the values that its gradient rules read and that nobody keeps: what it saves.
    pub dropped: usize,
    /// Units of work of one replay, as if each op were a kernel of its own.
    pub replay_cost: u64,
}

/// What the gradient rules of a segment read, and what must be computed for that.
pub(super) struct Needs<'a> {
    segment: &'a Arc<Segment>,
    /// The segment's nodes, newest first.
    pub nodes: Vec<Arc<Node>>,
    /// Nodes that a replay computes.
    computed: FxHashSet<*const Node>,
    /// Values of the segment that gradient rules read, each once.
    read: Vec<Tensor>,
}

/// The nodes of a tape made since a number was drawn, newest first.
fn nodes_since(tape: &TapeCore, id: u64) -> Vec<Arc<Node>> {
    let mut found = Vec::new();
    for node in tape.nodes.lock().iter().rev().filter_map(Weak::upgrade) {
        let is_older = node.id < id;
        // What is dropped here may be the last holder of a user's rule, so it is dropped after the lock.
        found.push(node);
        if is_older {
            break;
        }
    }
    found
}

impl Needs<'_> {
    /// Walks a segment's nodes once, from the newest back.
    pub fn new<'a>(segment: &'a Arc<Segment>, tape: &TapeCore) -> Needs<'a> {
        let mut nodes = nodes_since(tape, segment.id);
        nodes.retain(|n| segment.contains(n));
        let mut needs = Needs { segment, nodes: Vec::new(), computed: FxHashSet::default(), read: Vec::new() };
        let mut seen: FxHashSet<(*const Node, u32)> = FxHashSet::default();
        for node in &nodes {
            let state = node.state.lock();
            for (i, t) in state.inputs.iter().enumerate() {
                if state.reads.has_input(i) && segment.contains(&t.node) {
                    needs.computed.insert(Arc::as_ptr(&t.node));
                    if seen.insert((Arc::as_ptr(&t.node), t.index)) {
                        needs.read.push(t.clone());
                    }
                }
            }
            for o in (0..node.outs.len()).filter(|&o| state.reads.has_output(o)) {
                needs.computed.insert(Arc::as_ptr(node));
                if seen.insert((Arc::as_ptr(node), o as u32)) {
                    needs.read.push(Tensor { node: node.clone(), index: o as u32 });
                }
            }
            if needs.computed.contains(&Arc::as_ptr(node)) {
                needs.computed.extend(state.inputs.iter().filter(|t| segment.contains(&t.node)).map(|t| Arc::as_ptr(&t.node)));
            }
        }
        needs.nodes = nodes;
        needs
    }

    /// Bit mask of a node's inputs from outside of `root` that a replay or the node's own rule reads.
    pub fn kept(&self, node: &Node, root: &Arc<Segment>) -> u32 {
        let state = node.state.lock();
        let outside = root.outside(&state.inputs);
        if self.computed.contains(&std::ptr::from_ref(node)) { outside } else { outside & state.reads.inputs }
    }

    fn row(&self) -> SegmentRow {
        let mut names: Vec<&str> = self.segment.chain().map(|s| &*s.name).collect();
        names.reverse();
        let name = names.join(" / ");
        if let Some(f) = self.segment.figures.get() {
            return SegmentRow { name, kept: f.kept, dropped: f.dropped, replay_cost: f.replay_cost };
        }
        let mut kept = Storages::default();
        for node in &self.nodes {
            let mask = Saved { inputs: self.kept(node, self.segment), outputs: 0 };
            let inputs = node.state.lock().inputs.clone();
            for (_, t) in inputs.iter().enumerate().filter(|(i, _)| mask.has_input(*i)) {
                kept.add(t);
            }
        }
        let mut dropped = Storages::default();
        for t in self.read.iter().filter(|t| t.out().python.load(Relaxed) == 0 && t.out().saved.load(Relaxed) == 0) {
            dropped.add(t);
        }
        let computed = self.nodes.iter().filter(|n| self.computed.contains(&Arc::as_ptr(n)));
        SegmentRow { name, kept: kept.bytes, dropped: dropped.bytes, replay_cost: computed.map(|n| work(n)).sum() }
    }
}

/// Bytes of storages, each counted once; a view's bytes are its base's, and leaves are left out.
#[derive(Default)]
struct Storages {
    seen: FxHashSet<(usize, u32)>,
    bytes: usize,
}

impl Storages {
    fn add(&mut self, t: &Tensor) {
        let mut base = t.clone();
        while matches!(base.node.op, Op::View(_)) && base.node.variable.is_none() {
            let Some(next) = base.node.state.lock().inputs.first().cloned() else { break };
            base = next;
        }
        let is_leaf = base.node.variable.is_some() || base.node.op == Op::Leaf;
        if is_leaf || !self.seen.insert((Arc::as_ptr(&base.node) as usize, base.index)) {
            return;
        }
        let stored = base.value().and_then(|v| v.storage.bytes().ok());
        self.bytes += stored.unwrap_or_else(|| class_bytes(base.spec().bytes()));
    }
}

/// Units of work of a node by itself: 2mnk for a product, else 4 for each element moved.
fn work(node: &Node) -> u64 {
    let inputs = node.state.lock().inputs.clone();
    let out: usize = node.outs.iter().map(|o| elems(&o.spec.shape)).sum();
    match &node.op {
        Op::View(_) | Op::Const | Op::Custom | Op::Leaf => 0,
        Op::MatMul => 2 * (out * inputs.first().and_then(|a| a.shape().last().copied()).unwrap_or(0)) as u64,
        _ => 4 * (out + inputs.iter().filter(|t| t.node.op != Op::Const).map(Tensor::elems).sum::<usize>()) as u64,
    }
}

/// What each segment of a tape keeps and drops, in the order in which they began.
pub fn segments(tape: &TapeCore) -> Vec<SegmentRow> {
    let known: Vec<Arc<Segment>> = tape.segments.lock().iter().filter_map(Weak::upgrade).collect();
    let is_live = |s: &&Arc<Segment>| s.marks.iter().any(|m| std::ptr::eq(&*m.tape, tape) && m.is_live());
    known.iter().filter(is_live).map(|s| Needs::new(s, tape).row()).collect()
}
