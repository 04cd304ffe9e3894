//! The structure of one evaluation: pending nodes in creation order, their wiring, and the leaves they read.
use super::PlanOptions;
use super::key::WordSink;
use crate::backend::op::{Op, UpdateKind};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Node, Stage, Tensor, Value, is_forecasting};
use smallvec::SmallVec;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An input of a node in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// Output of a node of the program.
    Node(u32, u32),
    /// A leaf.
    Leaf(u32),
}

/// A value that exists already.
pub(crate) struct Leaf {
    pub value: Value,
    pub dtype: DType,
    /// Nobody outside this program needs it.
    pub overwritable: bool,
}

/// One evaluation, ready to be keyed.
pub(crate) struct Program {
    pub nodes: Vec<Arc<Node>>,
    pub inputs: Vec<SmallVec<[Input; 2]>>,
    /// Bit mask of outputs that are still needed afterwards.
    pub keep: Vec<u32>,
    /// The part of it that only gradient rules of live tapes need: what is not kept stays pending and is computed when they ask.
    saved_only: Vec<u32>,
    pub leaves: Vec<Leaf>,
    pub args: Vec<u64>,
    /// Where each node's args begin.
    pub arg_start: Vec<u32>,
    pub key: Vec<u64>,
    /// Where it is computed.
    pub device: Device,
}

static EPOCH: AtomicU64 = AtomicU64::new(1);
const POSITION: u64 = 0xffff_ffff;

/// The marks that one walk leaves in `Node::walk`: a tag in the upper half, a position in the lower.
#[derive(Clone, Copy)]
struct Walk(u64);

impl Walk {
    fn new() -> Walk {
        Walk((EPOCH.fetch_add(1, Relaxed) & 0x7fff_ffff) << 1)
    }

    fn set(self, node: &Node, is_leaf: bool, position: usize) {
        node.walk.store((self.0 | u64::from(is_leaf)) << 32 | position as u64, Relaxed);
    }

    /// The position of a node of the program.
    fn node(self, node: &Node) -> Option<usize> {
        let walk = node.walk.load(Relaxed);
        (walk >> 32 == self.0).then_some((walk & POSITION) as usize)
    }

    /// The position of a leaf met before.
    fn leaf(self, node: &Node) -> Option<usize> {
        let walk = node.walk.load(Relaxed);
        (walk >> 32 == self.0 | 1).then_some((walk & POSITION) as usize)
    }
}

/// Whether the op reads no inputs, so that it has its recipe whatever its node forgets.
pub(super) fn needs_no_inputs(op: &Op) -> bool {
    matches!(op, Op::Const | Op::Arange | Op::Random(_))
}

/// Whether a node is a copy from another device that a forecast takes to have arrived when what reads it begins.
fn is_awaited(node: &Node) -> bool {
    matches!(node.op, Op::Transfer(_)) && is_forecasting()
}

/// Pending nodes that the roots need, oldest first. The caller holds the engine's lock, so no input is forgotten meanwhile.
fn collect<'t>(roots: impl Iterator<Item = &'t Tensor>, walk: Walk) -> Result<Vec<Arc<Node>>> {
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    let mut stack: Vec<Arc<Node>> = Vec::new();
    let visit = |t: &Tensor, stack: &mut Vec<Arc<Node>>| -> Result<()> {
        if walk.node(&t.node).is_some() {
            return Ok(());
        }
        {
            let state = t.node.state.lock();
            if state.values[t.index()].is_some() {
                return Ok(());
            }
            if state.inputs.is_empty() && !needs_no_inputs(&t.node.op) {
                return Err(Error::Internal("evaluation: a value is needed whose recipe is gone"));
            }
        }
        walk.set(&t.node, false, 0);
        stack.push(t.node.clone());
        Ok(())
    };
    for root in roots {
        visit(root, &mut stack)?;
        while let Some(node) = stack.pop() {
            for t in node.state.lock().inputs.iter().filter(|_| !is_awaited(&node)) {
                // Locking an input while holding its consumer is safe: the graph has no cycles.
                visit(t, &mut stack)?;
            }
            nodes.push(node);
        }
    }
    nodes.sort_unstable_by_key(|n| n.id);
    for (i, n) in nodes.iter().enumerate() {
        walk.set(n, false, i);
    }
    Ok(nodes)
}

/// Inputs that a launch of the op may overwrite, as (output, input).
pub(crate) fn in_place(op: &Op) -> &'static [(usize, usize)] {
    match op {
        Op::Update(UpdateKind::Sgd) => &[(0, 0)],
        Op::Update(UpdateKind::SgdMomentum) => &[(0, 0), (1, 2)],
        Op::Update(UpdateKind::Adam) => &[(0, 0), (1, 2), (2, 3)],
        Op::SliceAssign(_) | Op::ScatterAdd(_) | Op::ScatterAlong(_) | Op::IndexPut(_) => &[(0, 0)],
        _ => &[],
    }
}

/// Whether a launch of the op may overwrite a leaf: it must not fail half way, since the old value could not be had again.
fn overwrites_leaves(op: &Op) -> bool {
    matches!(op, Op::Update(_) | Op::SliceAssign(_))
}

/// Whether the kernel may refuse values.
fn may_fail(op: &Op) -> bool {
    matches!(
        op,
        Op::Gather(_) | Op::ScatterAdd(_) | Op::IndexPut(_) | Op::TakeAlong(_) | Op::ScatterAlong(_) | Op::CrossEntropy(_)
    )
}

/// Whether a launch of the op may run a second time in the same plan: with the same inputs it gives the same bits, and a kernel that may
/// refuse its values has not done so the first time.
pub(super) fn is_repeatable(op: &Op) -> bool {
    !matches!(op, Op::Update(_) | Op::Transfer(_) | Op::Custom)
}

/// A leaf node met on the walk, and how often the program reads it.
struct Met {
    node: Arc<Node>,
    base: u32,
    reads: usize,
    may_overwrite: bool,
    /// A reader keeps it beyond this evaluation.
    is_kept: bool,
}

/// Adds a node's values to the leaves; outputs without a value share the slot of the one that is read.
fn meet(leaves: &mut Vec<Leaf>, t: &Tensor) -> Result<Met> {
    let base = leaves.len() as u32;
    let state = t.node.state.lock();
    let read = state.values[t.index()].clone().ok_or(Error::Internal("evaluation: a leaf without a value"))?;
    for (value, out) in state.values.iter().zip(&t.node.outs) {
        leaves.push(Leaf { value: value.clone().unwrap_or_else(|| read.clone()), dtype: out.spec.dtype, overwritable: false });
    }
    Ok(Met { node: t.node.clone(), base, reads: 0, may_overwrite: false, is_kept: false })
}

impl Program {
    /// The program that computes the roots, which are on one device.
    pub fn new(roots: &[Tensor], options: PlanOptions) -> Result<Program> {
        Program::with(roots, &[], options)
    }

    /// The program that computes the roots, and others, which are kept if somebody else needs them.
    pub fn with(roots: &[Tensor], others: &[Tensor], options: PlanOptions) -> Result<Program> {
        let device = roots.iter().chain(others).find_map(Tensor::device).unwrap_or(Device::CPU);
        let walk = Walk::new();
        let nodes = collect(roots.iter().chain(others), walk)?;
        let n = nodes.len();
        let mut p = Program {
            nodes,
            inputs: Vec::with_capacity(n),
            keep: vec![0; n],
            saved_only: vec![0; n],
            leaves: Vec::new(),
            args: Vec::new(),
            arg_start: Vec::with_capacity(n),
            key: Vec::new(),
            device,
        };
        let mut met: Vec<Met> = Vec::new();
        let mut reads: Vec<SmallVec<[u32; 2]>> = p.nodes.iter().map(|n| SmallVec::from_elem(0, n.outs.len())).collect();
        p.wire(walk, &mut met, &mut reads)?;
        let fails = p.nodes.iter().any(|n| may_fail(&n.op));
        for m in met {
            p.finish_leaf(&m, fails);
        }
        for t in roots {
            if let Some(i) = walk.node(&t.node) {
                p.keep[i] |= 1 << t.index;
            }
        }
        for (i, node) in p.nodes.iter().enumerate() {
            for (o, out) in node.outs.iter().enumerate() {
                let elsewhere = out.pending.load(Relaxed) > reads[i][o];
                let is_wanted = elsewhere || out.python.load(Relaxed) > 0 || p.keep[i] >> o & 1 == 1;
                let is_saved = out.saved.load(Relaxed) > 0;
                if is_wanted || is_saved {
                    p.keep[i] |= 1 << o;
                }
                if is_saved && !is_wanted && is_repeatable(&node.op) {
                    p.saved_only[i] |= 1 << o;
                }
            }
        }
        p.write_key(options);
        Ok(p)
    }

    /// Resolves every node's inputs to nodes and leaves, and gathers args.
    fn wire(&mut self, walk: Walk, met: &mut Vec<Met>, reads: &mut [SmallVec<[u32; 2]>]) -> Result<()> {
        for node in &self.nodes {
            self.arg_start.push(self.args.len() as u32);
            self.args.extend_from_slice(&node.args);
            let state = node.state.lock();
            // A node that is computed again no longer counts as a pending reader of its inputs.
            let counts = u32::from(state.stage == Stage::Pending);
            let is_recorded = node.keeps_recipe();
            let mut wired = SmallVec::new();
            for (position, t) in state.inputs.iter().enumerate().filter(|_| !is_awaited(node)) {
                if let Some(i) = walk.node(&t.node) {
                    reads[i][t.index()] += counts;
                    wired.push(Input::Node(i as u32, t.index));
                    continue;
                }
                let at = match walk.leaf(&t.node) {
                    Some(at) => at,
                    None => {
                        met.push(meet(&mut self.leaves, t)?);
                        walk.set(&t.node, true, met.len() - 1);
                        met.len() - 1
                    }
                };
                let m = &mut met[at];
                m.reads += 1;
                m.is_kept |= is_recorded;
                m.may_overwrite |= overwrites_leaves(&node.op) && in_place(&node.op).iter().any(|&(_, i)| i == position);
                wired.push(Input::Leaf(m.base + t.index));
            }
            drop(state);
            self.inputs.push(wired);
        }
        Ok(())
    }

    /// Decides whether a leaf may be overwritten: only this program reaches its node, and nothing else its storage.
    fn finish_leaf(&mut self, m: &Met, program_may_fail: bool) {
        if !m.may_overwrite || m.is_kept || program_may_fail || m.node.outs.len() != 1 || m.node.outs[0].saved.load(Relaxed) > 0 {
            return;
        }
        let leaf = &mut self.leaves[m.base as usize];
        // One count for the list of met leaves; one for the node's cached value beside this program's.
        let node_is_ours = Arc::strong_count(&m.node) == m.reads + 1;
        let storage_is_ours = Arc::strong_count(&leaf.value.storage) == 2;
        let is_writable = !leaf.value.storage.is_borrowed();
        leaf.overwritable =
            is_writable && node_is_ours && storage_is_ours && leaf.value.layout.offset == 0 && leaf.value.layout.is_contiguous();
    }

    /// Keeps none of the values of some nodes that only gradient rules need: they are computed again when rules ask for them.
    pub fn drop_saved(&mut self, is_dropped: impl Fn(&Arc<Node>) -> bool, options: PlanOptions) {
        for (i, node) in self.nodes.iter().enumerate() {
            if self.saved_only[i] != 0 && is_dropped(node) {
                self.keep[i] &= !self.saved_only[i];
            }
        }
        self.write_key(options);
    }

    /// Whether it computes something that only gradient rules need.
    pub fn saves(&self) -> bool {
        self.saved_only.iter().any(|&mask| mask != 0)
    }

    /// Whether only gradient rules need an output.
    pub fn is_saved_only(&self, node: u32, out: u32) -> bool {
        self.saved_only[node as usize] >> out & 1 == 1
    }

    /// Everything a plan depends on, as words.
    fn write_key(&mut self, options: PlanOptions) {
        let mut sink = WordSink(Vec::with_capacity(self.nodes.len() * 16 + self.leaves.len() * 8));
        (self.device, options.fuse, options.anomaly, options.deterministic, self.nodes.len(), self.leaves.len()).hash(&mut sink);
        // Replays are kept apart, so where they begin is part of the structure.
        let mut phase = 0;
        for (i, node) in self.nodes.iter().enumerate() {
            node.op.hash(&mut sink);
            if node.phase != phase {
                phase = node.phase;
                sink.0.push(1 << 62 | u64::from(phase));
            }
            sink.0.push(u64::from(self.keep[i]) << 32 | (node.args.len() as u64) << 8 | node.outs.len() as u64);
            for out in &node.outs {
                sink.spec(out.spec.dtype, &out.spec.shape);
            }
            sink.0.push(self.inputs[i].len() as u64);
            for input in &self.inputs[i] {
                sink.0.push(match *input {
                    Input::Node(n, o) => u64::from(n) << 8 | u64::from(o),
                    Input::Leaf(l) => 1 << 63 | u64::from(l),
                });
            }
        }
        for leaf in &self.leaves {
            sink.spec(leaf.dtype, &leaf.value.layout.shape);
            let is_contiguous = leaf.value.layout.is_contiguous();
            sink.0.push(u64::from(leaf.overwritable) << 1 | u64::from(is_contiguous));
            if !is_contiguous {
                sink.0.extend(leaf.value.layout.strides.iter().map(|&s| s as u64));
            }
        }
        self.key = sink.0;
    }
}
