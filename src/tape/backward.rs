//! The backward walk: from outputs to leaves, newest node first; gradients are accumulated and un-broadcast here and nowhere else.
use super::former::Former;
use super::gradient_sum::GradientSum;
use super::seed::{beside, seed};
use super::targets::Targets;
use super::{end_generation, forget};
use crate::backend::op::Op;
use crate::checkpoint::Replays;
use crate::error::{Error, Result};
use crate::graph::{
    Mark, Node, Saved, Scope, TapeCore, Tensor, Variable, are_gradients_resident, is_walk_full, obey, record_source, scope,
    walking,
};
use crate::ops::{self, Ctx, binary::add, reduce::sum_to, unary::cast};
use crate::plan::{check_budget, evaluate, evaluate_pending, last_plan};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// What this thread's last backward pass did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LastBackward {
    /// Recorded nodes that were differentiated.
    pub nodes: usize,
    /// Segments of which something was computed again.
    pub segments_replayed: usize,
    /// Kernels of the plan that computed the gradients.
    pub kernels: usize,
    /// Bytes of the plan's buffers.
    pub bytes: usize,
    /// Whether the plan was found in the cache.
    pub cache_hit: bool,
    /// Whether gradients are read as copies on the host.
    pub is_on_host: bool,
}

thread_local! {
    static LAST: Cell<LastBackward> = Cell::new(LastBackward::default());
}

/// What this thread's last backward pass did.
pub fn last_backward() -> LastBackward {
    LAST.with(Cell::get)
}

/// The arguments of `backward`.
pub struct Backward {
    /// The gradient of the loss; needed unless the loss has one element.
    pub gradient: Option<Tensor>,
    /// The leaves whose gradients are filled; all if `None`.
    pub inputs: Option<Vec<Arc<Variable>>>,
    /// Keep the saved set for another pass.
    pub retain_graph: bool,
    /// Record the gradients' own computation.
    pub create_graph: bool,
}

/// A node and the gradients of its outputs so far.
type Waiting = (Arc<Node>, SmallVec<[GradientSum; 1]>);

/// Gradients by node while the walk is under way.
struct Walk<'a> {
    tape: &'a Arc<TapeCore>,
    waiting: FxHashMap<*const Node, Waiting>,
    order: BinaryHeap<(u64, *const Node)>,
    leaves: Vec<(Arc<Variable>, Tensor)>,
    replays: Replays<'a>,
    nodes: usize,
}

/// A tape by its number, for messages.
fn name(tape: &TapeCore) -> String {
    format!("tape {}", tape.id)
}

fn on_tape<'n>(node: &'n Node, tape: &Arc<TapeCore>) -> Option<&'n Mark> {
    node.marks.iter().rev().find(|m| Arc::ptr_eq(&m.tape, tape))
}

/// The tape that a backward pass from `t` walks: the innermost that recorded it.
fn tape_of(op: &'static str, t: &Tensor) -> Result<Arc<TapeCore>> {
    if let Some(mark) = t.node.marks.iter().rev().find(|m| m.is_live()) {
        return Ok(mark.tape.clone());
    }
    if let Some(mark) = t.node.marks.last() {
        return Err(used_up(op, &mark.tape));
    }
    Err(Error::state(
        op,
        "this tensor was not recorded: compute it from leaves that require a gradient inside `with ag.grad_tape():` (it may also have been \
         computed under ag.no_grad(), or from detached tensors only)",
    ))
}

fn used_up(op: &'static str, tape: &TapeCore) -> Error {
    let message = format!(
        "{} has freed what this needs: backward() ran before without retain_graph=True, or the tape was cleared; pass retain_graph=True to \
         the first backward(), or detach() what an earlier pass recorded",
        name(tape)
    );
    Error::state(op, message)
}

fn kept_aside() -> Error {
    Error::state(
        "backward",
        "a value that a segment computed and did not return is used outside it; with replay=\"call\" its gradient would be lost: return it \
         from the segment, detach() it, or use replay=\"trace\"",
    )
}

/// The gradients of a node's outputs, which the caller unholds.
fn totals(sums: SmallVec<[GradientSum; 1]>) -> Result<SmallVec<[Option<Tensor>; 1]>> {
    let mut grads: SmallVec<[Option<Tensor>; 1]> = SmallVec::new();
    for sum in sums {
        match sum.total() {
            Ok(g) => grads.push(g),
            Err(error) => {
                grads.iter().flatten().for_each(Tensor::unhold);
                return Err(error);
            }
        }
    }
    Ok(grads)
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.leaves.iter().for_each(|(_, g)| g.unhold());
    }
}

impl<'a> Walk<'a> {
    fn new(tape: &'a Arc<TapeCore>) -> Walk<'a> {
        let (waiting, order) = (FxHashMap::default(), BinaryHeap::new());
        Walk { tape, waiting, order, leaves: Vec::new(), replays: Replays::new(tape), nodes: 0 }
    }

    /// Adds a gradient for a tensor: cast to its dtype and summed down to its shape.
    fn add(&mut self, t: &Tensor, g: &Tensor) -> Result<()> {
        // A gradient that is made of numbers alone goes where its tensor is.
        let g = cast(&beside(g, t), t.dtype());
        let g = if g.shape() == t.shape() { g } else { sum_to(&g, t.shape())? };
        let key = Arc::as_ptr(&t.node);
        let entry = self.waiting.entry(key).or_insert_with(|| {
            self.order.push((t.node.id, key));
            (t.node.clone(), t.node.outs.iter().map(|_| GradientSum::default()).collect())
        });
        entry.1[t.index()].add(g)
    }

    /// Whether the walk goes on into an input: a leaf that wants a gradient, or a node of this tape.
    fn enters(&self, t: &Tensor) -> Result<bool> {
        if !t.dtype().is_float() {
            return Ok(false);
        }
        if let Some(probe) = &self.tape.probe
            && on_tape(&t.node, self.tape).is_none()
        {
            return Ok(probe.is_source(t));
        }
        if let Some(variable) = &t.node.variable {
            return Ok(variable.requires_grad());
        }
        match on_tape(&t.node, self.tape) {
            Some(mark) if mark.is_live() => return Ok(true),
            Some(_) => return Err(used_up("backward", self.tape)),
            None => {}
        }
        let foreign = t
            .node
            .marks
            .iter()
            .find(|m| m.is_live() && !self.tape.outer.contains(&m.tape.id) && !m.tape.outer.contains(&self.tape.id));
        match foreign {
            Some(m) => Err(Error::state(
                "backward",
                format!(
                    "the walk over {} reached a value that {} recorded; both are alive, so its gradient would be lost: compute both on \
                     one tape, or detach() the value if that is meant",
                    name(self.tape),
                    name(&m.tape)
                ),
            )),
            None => Ok(false),
        }
    }

    /// Differentiates one node.
    fn node(&mut self, node: &Arc<Node>, grads: &[Option<Tensor>]) -> Result<()> {
        if self.tape.probe.is_some() && on_tape(node, self.tape).is_none() {
            // A source: the walk over one run of a segment's function ends here.
            return Ok(());
        }
        if let Some(variable) = node.variable.as_ref().filter(|v| v.requires_grad()) {
            if let Some(g) = grads.first().and_then(Option::as_ref) {
                g.hold();
                self.leaves.push((variable.clone(), g.clone()));
            }
            return Ok(());
        }
        let (inputs, reads) = {
            let state = node.state.lock();
            (state.inputs.clone(), state.reads)
        };
        let mut needs = 0;
        // Of many inputs a mask knows only the first ones by themselves.
        let mut are_entered: SmallVec<[bool; 4]> = SmallVec::with_capacity(inputs.len());
        for (i, t) in inputs.iter().enumerate() {
            // A segment's own node reads what its first run returned.
            if node.op != Op::Custom && t.node.is_lost_to(self.tape) {
                return Err(kept_aside());
            }
            let is_entered = self.enters(t)?;
            are_entered.push(is_entered);
            needs |= if is_entered { Saved::bit(i) } else { 0 };
        }
        if needs == 0 {
            return Ok(());
        }
        self.nodes += 1;
        let given = self.replays.inputs(node, &inputs, reads)?;
        let outputs = self.replays.outputs(node, reads)?;
        let ctx = Ctx { node, inputs: given.as_ref().unwrap_or(&inputs), outputs: &outputs, needs, saved: reads };
        let is_call = node.op == Op::Custom && node.state.lock().rule.as_ref().is_some_and(|r| r.is_replay());
        if is_call {
            self.replays.separate();
        }
        let out = ops::rule(&node.op).vjp(&ctx, grads)?;
        if is_call {
            self.replays.separate();
            self.replays.add(1);
        }
        for ((t, g), is_entered) in inputs.iter().zip(out).zip(are_entered) {
            if let (true, Some(g)) = (is_entered, g) {
                self.add(t, &g)?;
            }
        }
        Ok(())
    }

    /// Walks to the end; long walks are computed in parts, so that pending nodes stay bounded.
    fn run(&mut self, targets: &mut Targets) -> Result<()> {
        while let Some((_, key)) = self.order.pop() {
            let Some((node, sums)) = self.waiting.remove(&key) else { continue };
            self.replays.arrive(&node);
            let grads = totals(sums)?;
            targets.note(&node, &grads);
            let done = self.node(&node, &grads);
            grads.iter().flatten().for_each(Tensor::unhold);
            done?;
            if is_walk_full() {
                let mut frontier: Vec<Tensor> =
                    self.waiting.values().flat_map(|(_, sums)| sums.iter().flat_map(GradientSum::tensors).cloned()).collect();
                frontier.extend(self.leaves.iter().map(|(_, g)| g.clone()));
                frontier.extend(targets.tensors().cloned());
                evaluate_pending(&frontier)?;
            }
        }
        Ok(())
    }
}

/// The recording state for building gradients: the tape itself records only with `create_graph`, its outer tapes go on.
fn gradient_scope(tape: &Arc<TapeCore>, create_graph: bool) -> Scope {
    Scope::enter(|s| {
        s.tapes.retain(|t| !Arc::ptr_eq(t, tape));
        s.phase = 0;
        if create_graph {
            s.tapes.push(tape.clone());
            s.paused = false;
        }
    })
}

/// Fills the gradients of the leaves that a recorded loss depends on.
pub fn backward(loss: &Tensor, how: Backward) -> Result<()> {
    let seed = seed("backward", loss, how.gradient.as_ref())?;
    if let Some(variable) = loss.node.variable.as_ref().filter(|v| v.requires_grad()) {
        let sums = accumulate(&[(variable.clone(), seed)])?;
        LAST.set(LastBackward { is_on_host: !how.create_graph && !are_gradients_resident(), ..LastBackward::default() });
        return if how.create_graph { Ok(()) } else { evaluate(&sums.0) };
    }
    let tape = tape_of("backward", loss)?;
    let _obeys = obey(&tape);
    let mut walk = Walk::new(&tape);
    let records = {
        let _scope = gradient_scope(&tape, how.create_graph);
        walk.add(loss, &seed)?;
        walking(|| walk.run(&mut Targets::default()))?;
        scope(|s| !s.paused && !s.tapes.is_empty())
    };
    let (nodes, segments_replayed) = (walk.nodes, walk.replays.count());
    let mut leaves = walk.leaves.clone();
    if let Some(wanted) = &how.inputs {
        leaves.retain(|(v, _)| wanted.iter().any(|w| Arc::ptr_eq(v, w)));
    }
    let former = Former::of(&leaves);
    let sums = {
        let _scope = gradient_scope(&tape, how.create_graph);
        accumulate(&leaves)?
    };
    drop(walk);
    if !records && let Err(refused) = check_budget(&sums.0) {
        former.restore();
        return Err(refused);
    }
    if !how.retain_graph {
        end_generation(&tape);
    }
    if !records {
        evaluate_pending(&sums.0)?;
    }
    if !how.retain_graph {
        forget(&tape)?;
    }
    let plan = last_plan();
    let (kernels, bytes, cache_hit) = (plan.kernels, plan.buffer_bytes, plan.cache_hit);
    let is_on_host = !records && !are_gradients_resident();
    LAST.set(LastBackward { nodes, segments_replayed, kernels, bytes, cache_hit, is_on_host });
    Ok(())
}

/// Sums of gradients that are held until they are evaluated.
#[derive(Default)]
struct Held(Vec<Tensor>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.iter().for_each(Tensor::unhold);
    }
}

/// Adds gradients to the leaves' own.
fn accumulate(leaves: &[(Arc<Variable>, Tensor)]) -> Result<Held> {
    let mut sums = Held::default();
    for (variable, g) in leaves {
        sums.0.push(variable.accumulate(g, add)?);
    }
    Ok(sums)
}

/// Gradients of outputs with respect to tensors that the tape recorded or watched, without touching `.grad`; `None` where an input was
/// not used. They stay pending, and are recorded with `create_graph`, or on outer tapes.
pub fn gradients(
    tape: &Arc<TapeCore>,
    outputs: &[(Tensor, Option<Tensor>)],
    inputs: &[Tensor],
    retain_graph: bool,
    create_graph: bool,
) -> Result<Targets> {
    let mut targets = Targets::new(inputs);
    {
        let _scope = gradient_scope(tape, create_graph);
        let mut walk = Walk::new(tape);
        for (output, gradient) in outputs {
            let seed = seed("grad", output, gradient.as_ref())?;
            if walk.enters(output)? {
                walk.add(output, &seed)?;
            }
        }
        walking(|| walk.run(&mut targets))?;
    }
    if !retain_graph {
        end_generation(tape);
        forget(tape)?;
    }
    Ok(targets)
}

/// A fresh source on the innermost recording tape, linked to the outer ones that recorded the tensor.
pub fn watch(t: &Tensor) -> Result<Tensor> {
    let Some(tape) = scope(|s| s.tapes.last().cloned()) else {
        return Err(Error::state("watch", "no tape is recording"));
    };
    // On the outer tapes it is an ordinary alias.
    Ok(record_source(t, &tape, ops::saves))
}
