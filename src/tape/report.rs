//! The tape's memory report: a fold over recorded nodes and what their gradient rules save, each storage counted once.
use super::SegmentRow;
use super::saved_storages::{Fate, Group, SavedStorages, is_kept_by_another};
use crate::dtype::DType;
use crate::graph::{CustomRule, Mark, Node, Segment, TapeCore, Tensor, may_fail};
use crate::shape::Shape;
use rustc_hash::{FxHashMap, FxHashSet};
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

/// What the ops that one line of the user's program called hold for backward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRow {
    /// File and line; "leaves" for what no recorded op made.
    pub line: String,
    /// Recorded nodes.
    pub nodes: usize,
    /// Bytes of their saved values, and of their recipes.
    pub bytes: usize,
}

/// One storage that backward needs.
#[derive(Clone, Debug)]
pub struct StorageRow {
    /// The op that made it; `leaf` for parameters and other leaves.
    pub op: &'static str,
    /// The shape of what it holds, or of the largest part that is known.
    pub shape: Shape,
    /// Its element type.
    pub dtype: DType,
    /// Bytes of the storage: its size class.
    pub bytes: usize,
    /// Bytes of the values in it that gradient rules read, at most all of it.
    pub bytes_read: usize,
    /// Values in it that gradient rules read: one, or several views and aliases.
    pub values: usize,
    /// Counted among the operands, not the activations.
    pub is_operand: bool,
    /// Has memory now.
    pub is_held: bool,
    /// What clearing the tape does to it.
    pub fate: Fate,
    /// The line that called the op, where lines are recorded.
    pub line: Option<String>,
    /// Tells storages apart while they live; 0 for one that has no memory yet.
    pub key: usize,
}

/// A value made inside a segment that has memory because a Python tensor holds it.
#[derive(Clone, Debug)]
pub struct InteriorRow {
    /// The segment's name.
    pub segment: String,
    /// The op that made it.
    pub op: &'static str,
    /// Its shape.
    pub shape: Shape,
    /// Its element type.
    pub dtype: DType,
    /// Bytes of its storage.
    pub bytes: usize,
    /// Tells storages apart while they live.
    pub key: usize,
}

/// A tape's report; sizes in bytes.
#[derive(Clone, Debug, Default)]
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
    /// One row a segment, in the order in which they began.
    pub by_segment: Vec<SegmentRow>,
    /// Values made inside segments that Python tensors hold.
    pub held_in_segments: Vec<InteriorRow>,
    /// One row a line; complete, or empty where lines are not recorded.
    pub by_line: Vec<LineRow>,
    /// One row a storage; complete.
    pub by_storage: Vec<StorageRow>,
}

/// Nodes and bytes of a row under way.
type Sums = (usize, usize);

#[derive(Default)]
struct Fold {
    report: Report,
    ops: BTreeMap<&'static str, Sums>,
    lines: FxHashMap<Option<String>, Sums>,
    has_lines: bool,
}

impl Fold {
    /// Counts a node and its recipe.
    fn node(&mut self, node: &Node, inputs: usize) {
        let bytes = recipe_bytes(node, inputs);
        self.report.nodes += 1;
        self.report.graph += bytes;
        let row = self.ops.entry(node.op.name()).or_default();
        (row.0, row.1) = (row.0 + 1, row.1 + bytes);
        let place = node.place.as_deref();
        self.has_lines |= place.is_some() && !may_fail(&node.op);
        let row = self.lines.entry(Some(place.unwrap_or("unknown").to_owned())).or_default();
        (row.0, row.1) = (row.0 + 1, row.1 + bytes);
    }

    /// Counts a storage, in the row of the op that made it.
    fn storage(&mut self, group: &Group, fate: Fate) {
        let origin = group.origin();
        let is_operand = group.is_operand();
        let line = match is_operand {
            true => None,
            false => Some(origin.node.place.as_deref().unwrap_or("unknown").to_owned()),
        };
        let row = StorageRow {
            op: if is_operand { "leaf" } else { origin.node.op.name() },
            shape: origin.spec().shape.clone(),
            dtype: origin.dtype(),
            bytes: group.bytes(),
            bytes_read: group.bytes_read(),
            values: group.values(),
            is_operand,
            is_held: group.key() != 0,
            fate,
            line: origin.node.place.as_deref().map(str::to_owned),
            key: group.key(),
        };
        *if is_operand { &mut self.report.operands } else { &mut self.report.activations } += row.bytes;
        self.report.held += if row.is_held { row.bytes } else { 0 };
        self.report.freed_by_clear += if fate == Fate::Freed { row.bytes } else { 0 };
        self.ops.entry(row.op).or_default().1 += row.bytes;
        self.lines.entry(line).or_default().1 += row.bytes;
        self.report.by_storage.push(row);
    }

    /// The report, every list with its largest row first.
    fn finish(self) -> Report {
        let mut report = self.report;
        report.by_op = self.ops.into_iter().map(|(op, (nodes, bytes))| OpRow { op, nodes, bytes }).collect();
        report.by_op.sort_by_key(|r| std::cmp::Reverse(r.bytes));
        if self.has_lines {
            let row = |(line, (nodes, bytes)): (Option<String>, Sums)| LineRow {
                line: line.unwrap_or_else(|| "leaves".to_owned()),
                nodes,
                bytes,
            };
            report.by_line = self.lines.into_iter().map(row).collect();
            report.by_line.sort_by(|a, b| (b.bytes, &a.line).cmp(&(a.bytes, &b.line)));
        }
        report.by_storage.sort_by_key(|r| std::cmp::Reverse(r.bytes));
        report
    }
}

/// Host bytes of a node's recipe.
fn recipe_bytes(node: &Node, inputs: usize) -> usize {
    let heap = |n: usize, inline: usize, each: usize| if n > inline { n * each } else { 0 };
    std::mem::size_of::<Node>() + heap(inputs, 2, std::mem::size_of::<Tensor>()) + heap(node.args.len(), 2, 8)
}

/// What Python tensors hold of the segments' own values, each storage once: those of recorded nodes, and those of first runs.
fn interiors(nodes: &[Arc<Node>], tape: &TapeCore) -> Vec<InteriorRow> {
    let (mut rows, mut seen) = (Vec::new(), FxHashSet::default());
    let mut add = |node: &Node, o: usize, segment: &str| {
        let (out, value) = (&node.outs[o], node.state.lock().values[o].clone());
        let Some(storage) = value.filter(|_| out.python.load(Relaxed) > 0).map(|v| v.storage) else { return };
        let key = Arc::as_ptr(&storage) as usize;
        if seen.insert(key) {
            let (shape, dtype, bytes) = (out.spec.shape.clone(), out.spec.dtype, storage.bytes().unwrap_or(0));
            rows.push(InteriorRow { segment: segment.to_owned(), op: node.op.name(), shape, dtype, bytes, key });
        }
    };
    for (node, segment) in nodes.iter().filter_map(|n| Some((n, n.segment.as_ref()?))) {
        (0..node.outs.len()).for_each(|o| add(node, o, &segment.name));
    }
    let segments: Vec<Arc<Segment>> = tape.segments.lock().iter().filter_map(Weak::upgrade).collect();
    let is_live = |s: &&Arc<Segment>| s.marks.iter().any(|m| std::ptr::eq(&*m.tape, tape) && m.is_live());
    for held in segments.iter().filter(is_live).filter_map(|s| s.held.get()).flatten() {
        if let Some(node) = held.node.upgrade() {
            add(&node, held.index, &held.segment);
        }
    }
    rows
}

/// The rules of segments that are called again, in the tape's present generation, and that go when it is cleared.
pub fn replays(tape: &Arc<TapeCore>) -> Vec<Arc<dyn CustomRule>> {
    let nodes: Vec<Arc<Node>> = tape.nodes.lock().iter().filter_map(Weak::upgrade).collect();
    let own = nodes.iter().filter(|node| is_live_on(node, tape) && !is_kept_by_another(node, tape));
    own.filter_map(|node| node.state.lock().rule.clone().filter(|rule| rule.is_replay())).collect()
}

/// The report of a tape, in its present generation. It evaluates nothing. `alone`: tensors that Python holds and will not when the tape is
/// cleared, once for each time that it does.
pub fn report(tape: &Arc<TapeCore>, alone: Vec<Tensor>) -> Report {
    let mut nodes: Vec<Arc<Node>> = tape.nodes.lock().iter().filter_map(Weak::upgrade).collect();
    nodes.retain(|node| is_live_on(node, tape));
    let mut fold = Fold::default();
    let mut storages = SavedStorages::default();
    for node in &nodes {
        let inputs = storages.add(node, tape);
        fold.node(node, inputs);
    }
    // A leaf that goes takes its gradient along.
    let grads: Vec<Tensor> = alone.iter().filter_map(|t| t.node.variable.as_ref()?.grad()).collect();
    alone.into_iter().chain(grads).for_each(|t| storages.add_alone(&t));
    for (group, fate) in storages.groups(tape) {
        fold.storage(&group, fate);
    }
    fold.report.by_segment = super::segments(tape);
    fold.report.held_in_segments = interiors(&nodes, tape);
    fold.finish()
}

/// Whether the tape keeps the node in its present generation: recorded, or made in a segment that a replay may compute again.
fn is_live_on(node: &Node, tape: &Arc<TapeCore>) -> bool {
    let is_live = |marks: &[Mark]| marks.iter().any(|m| Arc::ptr_eq(&m.tape, tape) && m.is_live());
    is_live(&node.marks) || node.segment.as_ref().is_some_and(|s| is_live(&s.marks))
}
