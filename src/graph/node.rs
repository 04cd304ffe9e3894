//! Nodes, the tensors that name their outputs, and the counts of who needs each output.
use super::custom::CustomRule;
use super::placing::{Placing, count_transfer};
use super::record::Mark;
use super::saved::Saved;
use super::segment::Segment;
use super::storage::Storage;
use super::variable::Variable;
use crate::backend::op::Op;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::shape::{Shape, elems};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A fresh creation number; nodes are evaluated in this order.
pub fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Relaxed)
}

/// The shape and dtype of an output.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Spec {
    /// Sizes.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl Spec {
    /// A spec from a slice of sizes.
    pub fn new(shape: &[usize], dtype: DType) -> Spec {
        Spec { shape: Shape::from_slice(shape), dtype }
    }

    /// Bytes of the elements.
    pub fn bytes(&self) -> usize {
        elems(&self.shape) * self.dtype.size_bytes()
    }
}

/// The bytes of an output: a storage and where the elements lie in it.
#[derive(Clone, Debug)]
pub struct Value {
    /// The storage, shared by views.
    pub storage: Arc<Storage>,
    /// Where the elements lie; shared, so that passing a value on copies no sizes.
    pub layout: Arc<Layout>,
}

impl Value {
    /// A value in a storage.
    pub fn new(storage: Arc<Storage>, layout: Layout) -> Value {
        Value { storage, layout: Arc::new(layout) }
    }
}

/// One output of a node with the counts of those that still need its value.
#[derive(Debug)]
pub struct Out {
    /// Shape and dtype.
    pub spec: Spec,
    /// Python tensors (and `.grad` slots) that name it.
    pub python: AtomicU32,
    /// Pending nodes that read it.
    pub pending: AtomicU32,
    /// Gradient rules of live tapes that saved it.
    pub saved: AtomicU32,
}

impl Out {
    fn new(spec: Spec) -> Out {
        Out { spec, python: AtomicU32::new(0), pending: AtomicU32::new(0), saved: AtomicU32::new(0) }
    }

    /// Whether anybody still needs the value.
    pub fn is_wanted(&self) -> bool {
        self.python.load(Relaxed) > 0 || self.pending.load(Relaxed) > 0 || self.saved.load(Relaxed) > 0
    }
}

/// Where a node is between recipe and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Not computed yet.
    Pending,
    /// Computed at least once; outputs that nobody needed may have no value.
    Computed,
}

/// The part of a node that changes: its cached values, and its inputs until it forgets them.
#[derive(Debug)]
pub struct State {
    /// What the recipe reads; empty once forgotten.
    pub inputs: SmallVec<[Tensor; 2]>,
    /// Cached values, one slot an output.
    pub values: SmallVec<[Option<Value>; 1]>,
    /// Pending or computed.
    pub stage: Stage,
    /// What is counted in the `saved` counts on behalf of this node.
    pub saved: Saved,
    /// What the gradient rule reads: what is counted, but for segments, whose own values are rebuilt.
    pub reads: Saved,
    /// The gradient rule of a user's op.
    pub rule: Option<Arc<dyn CustomRule>>,
}

/// An op and its inputs: the recipe, and the cached value.
#[derive(Debug)]
pub struct Node {
    /// Creation number.
    pub id: u64,
    /// What to compute.
    pub op: Op,
    /// Numbers that are arguments of a plan, not part of its key.
    pub args: SmallVec<[u64; 2]>,
    /// Outputs.
    pub outs: SmallVec<[Out; 1]>,
    /// The tapes that recorded it, outermost first.
    pub marks: SmallVec<[Mark; 1]>,
    /// The innermost segment that it was made in.
    pub segment: Option<Arc<Segment>>,
    /// The segment whose replay it belongs to, for reports.
    pub replay_of: Option<Arc<Segment>>,
    /// Which part of a backward walk made it, between replays: kernels are not merged across them. 0 is everything else.
    pub phase: u32,
    /// The user's leaf that this node is a version of.
    pub variable: Option<Arc<Variable>>,
    /// The line that called the op, for ops that can fail at evaluation.
    pub place: Option<Box<str>>,
    /// Cached values and inputs.
    pub state: Mutex<State>,
    /// Scratch of the walk that holds the evaluation lock: epoch and position.
    pub walk: AtomicU64,
    /// The device that computes it, once that is known.
    pub placing: Placing,
    /// Its kernel refused the values it was given.
    pub has_failed: AtomicBool,
    /// It was computed, and its values were not kept or let go: it is computed again.
    pub was_let_go: AtomicBool,
}

impl Node {
    // Inlined, the node is written where it is needed, and most have one output: recording an op is little more than this.
    #[inline]
    pub(super) fn build(op: Op, args: SmallVec<[u64; 2]>, mut inputs: SmallVec<[Tensor; 2]>, specs: SmallVec<[Spec; 1]>) -> Node {
        let placing = Placing::of(&op, &mut inputs);
        count_transfer(&op, true);
        for t in &inputs {
            t.out().pending.fetch_add(1, Relaxed);
        }
        let values = SmallVec::from_elem(None, specs.len());
        Node {
            id: next_id(),
            op,
            args,
            outs: specs.into_iter().map(Out::new).collect(),
            marks: SmallVec::new(),
            segment: None,
            replay_of: None,
            phase: 0,
            variable: None,
            place: None,
            state: Mutex::new(State {
                inputs,
                values,
                stage: Stage::Pending,
                saved: Saved::default(),
                reads: Saved::default(),
                rule: None,
            }),
            walk: AtomicU64::new(0),
            placing,
            has_failed: AtomicBool::new(false),
            was_let_go: AtomicBool::new(false),
        }
    }

    /// Whether some tape may still differentiate through it.
    pub fn is_recorded(&self) -> bool {
        self.marks.iter().any(Mark::is_live)
    }

    /// Whether it must remember its inputs: a tape may differentiate through it, or a segment's replay compute it again.
    pub fn keeps_recipe(&self) -> bool {
        self.is_recorded() || self.segment.as_ref().is_some_and(|s| s.is_live())
    }

    /// Drops the value of an output that nobody needs.
    pub fn free_if_unwanted(&self, out: usize) {
        // A leaf's value is all there is of it; it goes when the node goes.
        if self.outs[out].is_wanted() || matches!(self.op, Op::Leaf) {
            return;
        }
        let dropped = self.state.lock().values.get_mut(out).and_then(Option::take);
        drop(dropped);
    }

    /// Takes the saved counts of this node back; values that nobody needs any more are freed.
    pub fn release_saved(&self) {
        // A user's rule may hold Python objects: it is dropped outside the lock.
        let (saved, inputs, _rule) = {
            let mut state = self.state.lock();
            let rule = state.rule.take();
            let saved = std::mem::take(&mut state.saved);
            let mut held: SmallVec<[Tensor; 2]> = SmallVec::new();
            for (i, t) in state.inputs.iter().enumerate() {
                if saved.has_input(i) {
                    held.push(t.clone());
                }
            }
            (saved, held, rule)
        };
        for t in &inputs {
            t.out().saved.fetch_sub(1, Relaxed);
            t.node.free_if_unwanted(t.index());
        }
        self.release_outputs(saved);
    }

    /// Takes back those inputs' saved counts that are not in the mask.
    pub fn release_inputs_but(&self, keep: u32) {
        let released: SmallVec<[Tensor; 2]> = {
            let mut state = self.state.lock();
            let gone = Saved { inputs: state.saved.inputs & !keep, outputs: 0 };
            state.saved.inputs &= keep;
            state.inputs.iter().enumerate().filter(|(i, _)| gone.has_input(*i)).map(|(_, t)| t.clone()).collect()
        };
        for t in &released {
            t.out().saved.fetch_sub(1, Relaxed);
            t.node.free_if_unwanted(t.index());
        }
    }

    /// After a run: if every output that is wanted has its value, the node is computed and no longer pending on its inputs, which it keeps
    /// only while a tape may differentiate through it or a segment rebuild it. One that somebody began to need meanwhile stays pending.
    pub fn complete(&self) {
        let keeps_recipe = self.keeps_recipe();
        let (was_pending, saved, inputs, _rule) = {
            let mut state = self.state.lock();
            let was_pending = state.stage == Stage::Pending;
            if was_pending && self.outs.iter().zip(&state.values).any(|(out, value)| value.is_none() && out.is_wanted()) {
                self.was_let_go.store(true, Relaxed);
                return;
            }
            if was_pending {
                count_transfer(&self.op, false);
            }
            state.stage = Stage::Computed;
            if keeps_recipe {
                if !was_pending {
                    return;
                }
                (true, Saved::default(), state.inputs.clone(), None)
            } else {
                (was_pending, std::mem::take(&mut state.saved), std::mem::take(&mut state.inputs), state.rule.take())
            }
        };
        for (i, t) in inputs.iter().enumerate() {
            let out = t.out();
            if was_pending {
                out.pending.fetch_sub(1, Relaxed);
            }
            if saved.has_input(i) {
                out.saved.fetch_sub(1, Relaxed);
            }
            t.node.free_if_unwanted(t.index());
        }
        self.release_outputs(saved);
    }

    fn release_outputs(&self, saved: Saved) {
        if saved.outputs == 0 {
            return;
        }
        for (o, out) in self.outs.iter().enumerate() {
            if saved.has_output(o) {
                out.saved.fetch_sub(1, Relaxed);
                self.free_if_unwanted(o);
            }
        }
    }
}

/// One output of a node; cloning it shares the node.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The node.
    pub node: Arc<Node>,
    /// Which output.
    pub index: u32,
}

impl Tensor {
    /// The first output of a node.
    pub fn first(node: Arc<Node>) -> Tensor {
        Tensor { node, index: 0 }
    }

    /// A leaf that holds a value.
    pub fn leaf(value: Value, dtype: DType, variable: Option<Arc<Variable>>) -> Tensor {
        let spec = Spec { shape: value.layout.shape.clone(), dtype };
        let mut node = Node::build(Op::Leaf, SmallVec::new(), SmallVec::new(), smallvec::smallvec![spec]);
        node.variable = variable;
        node.placing.set(value.storage.device());
        let state = node.state.get_mut();
        state.values[0] = Some(value);
        state.stage = Stage::Computed;
        Tensor::first(Arc::new(node))
    }

    /// The device that has or will have its value; `None` while no reader has said so.
    pub fn device(&self) -> Option<Device> {
        self.node.placing.device()
    }

    /// Which output, as an index.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// The output with its counts.
    pub fn out(&self) -> &Out {
        &self.node.outs[self.index as usize]
    }

    /// Shape and dtype.
    pub fn spec(&self) -> &Spec {
        &self.out().spec
    }

    /// Sizes.
    pub fn shape(&self) -> &[usize] {
        &self.spec().shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.spec().dtype
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.spec().shape.len()
    }

    /// The number of elements.
    pub fn elems(&self) -> usize {
        elems(&self.spec().shape)
    }

    /// The cached value, if there is one.
    pub fn value(&self) -> Option<Value> {
        self.node.state.lock().values[self.index()].clone()
    }

    /// The cached value of something that was just evaluated.
    pub fn computed(&self) -> Result<Value> {
        self.value().ok_or(Error::Internal("evaluation: a value that was asked for is missing"))
    }

    /// Whether a gradient may flow to it: a variable that wants one, or recorded on a live tape.
    pub fn requires_grad(&self) -> bool {
        self.dtype().is_float() && (self.node.variable.as_ref().is_some_and(|v| v.requires_grad()) || self.node.is_recorded())
    }

    /// Counts a Python holder.
    pub fn hold(&self) {
        self.out().python.fetch_add(1, Relaxed);
    }

    /// Takes a Python holder back; the value goes if nobody else needs it.
    pub fn unhold(&self) {
        if self.out().python.fetch_sub(1, Relaxed) != 1 {
            return;
        }
        if self.out().pending.load(Relaxed) > 0 {
            if self.value().is_some() {
                super::pending::keep_alive(self.spec().bytes());
            }
        } else if self.node.marks.len() + self.node.outs.len() > 1 {
            self.node.free_if_unwanted(self.index());
        }
    }
}
