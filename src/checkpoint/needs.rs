//! What a segment's replay computes and reads, from the recipes alone; and the report's row of each segment.
use crate::backend::op::Op;
use crate::graph::{Figures, HeldValue, Log, Node, Saved, Segment, TapeCore, Tensor, work};
use crate::pool::class_bytes;
use rustc_hash::{FxHashMap, FxHashSet};
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
    /// Of the segment that ends now: its nodes are the newest.
    pub fn new<'a>(segment: &'a Arc<Segment>, tape: &TapeCore) -> Needs<'a> {
        let mut nodes = nodes_since(tape, segment.id);
        nodes.retain(|n| segment.contains(n));
        Needs::of(segment, nodes)
    }

    /// Walks a segment's nodes once, from the newest back.
    fn of(segment: &Arc<Segment>, nodes: Vec<Arc<Node>>) -> Needs<'_> {
        let mut needs = Needs { segment, nodes: Vec::new(), computed: FxHashSet::default(), read: Vec::new() };
        let mut seen: FxHashSet<(*const Node, u32)> = FxHashSet::default();
        let is_inside = |t: &Tensor| t.node.op != Op::Const && segment.contains(&t.node);
        for node in &nodes {
            let state = node.state.lock();
            for (i, t) in state.inputs.iter().enumerate() {
                if state.reads.has_input(i) && is_inside(t) {
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
                needs.computed.extend(state.inputs.iter().filter(|t| is_inside(t)).map(|t| Arc::as_ptr(&t.node)));
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
        self.add_base(&base);
    }

    fn add_base(&mut self, base: &Tensor) {
        let is_leaf = base.node.variable.is_some() || matches!(base.node.op, Op::Leaf | Op::Const);
        if is_leaf || !self.seen.insert((Arc::as_ptr(&base.node) as usize, base.index)) {
            return;
        }
        let stored = base.value().and_then(|v| v.storage.bytes().ok());
        self.bytes += stored.unwrap_or_else(|| class_bytes(base.spec().bytes()));
    }
}

/// What each segment of a tape keeps and drops, in the order in which they began.
pub fn segments(tape: &TapeCore) -> Vec<SegmentRow> {
    let known: Vec<Arc<Segment>> = tape.segments.lock().iter().filter_map(Weak::upgrade).collect();
    let is_live = |s: &&Arc<Segment>| s.marks.iter().any(|m| std::ptr::eq(&*m.tape, tape) && m.is_live());
    let live: Vec<&Arc<Segment>> = known.iter().filter(is_live).collect();
    let Some(oldest) = live.iter().map(|s| s.id).min() else { return Vec::new() };
    // The tape is walked once, however many segments it has.
    let at: FxHashMap<*const Segment, usize> = live.iter().enumerate().map(|(i, s)| (Arc::as_ptr(s), i)).collect();
    let mut inside: Vec<Vec<Arc<Node>>> = vec![Vec::new(); live.len()];
    for node in nodes_since(tape, oldest) {
        for segment in node.segment.iter().flat_map(|s| s.chain()) {
            if let Some(&i) = at.get(&Arc::as_ptr(segment)) {
                inside[i].push(node.clone());
            }
        }
    }
    live.iter().zip(inside).map(|(segment, nodes)| Needs::of(segment, nodes).row()).collect()
}

/// The values of a first run, and of those nested in it, that Python tensors hold; its results are no interior.
pub fn held(tape: &TapeCore, log: &Log, name: &str, results: &[Tensor]) -> Vec<HeldValue> {
    let nested: Vec<Arc<Segment>> = tape.segments.lock().iter().filter_map(Weak::upgrade).collect();
    let mut found: Vec<HeldValue> = nested.iter().filter_map(|s| s.held.get()).flatten().cloned().collect();
    for node in log.take_made() {
        let segment = node.segment.as_ref().map_or(name, |s| &s.name);
        let is_result = |o: usize| results.iter().any(|t| Arc::ptr_eq(&t.node, &node) && t.index() == o);
        let held = (0..node.outs.len()).filter(|&o| node.outs[o].python.load(Relaxed) > 0 && !is_result(o));
        found.extend(held.map(|index| HeldValue { node: Arc::downgrade(&node), index, segment: segment.into() }));
    }
    found
}

/// What a first run did not keep: what the gradient rules of its tape would have saved. `kept` are the tensors that the replay is given.
pub fn figures(tape: &TapeCore, log: &Log, kept: &[Tensor]) -> Figures {
    let (mut dropped, mut stays) = (Storages::default(), Storages::default());
    kept.iter().for_each(|t| stays.add(t));
    for node in nodes_since(tape, 0) {
        let (inputs, reads) = {
            let state = node.state.lock();
            (state.inputs.clone(), state.reads)
        };
        for (_, t) in inputs.iter().enumerate().filter(|(i, t)| reads.has_input(*i) && !log.is_outside(&t.node)) {
            dropped.add(t);
        }
        for o in (0..node.outs.len()).filter(|&o| reads.has_output(o)) {
            dropped.add_base(&Tensor { node: node.clone(), index: o as u32 });
        }
    }
    Figures { kept: stays.bytes, dropped: dropped.bytes, replay_cost: log.work() }
}
