//! Recording: which tapes a new node belongs to, and what its gradient rule keeps.
use super::budget::Budget;
use super::log::{Log, Mode};
use super::node::{Node, Spec, Tensor};
use super::pending;
use super::probe::Probe;
use super::saved::Saved;
use super::segment::{Segment, counted};
use super::storage::DevicePools;
use super::variable::Variable;
use crate::backend::op::{Op, ViewOp};
use crate::device::Device;
use crate::error::Result;
use crate::pool::PoolId;
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// What recording needs of a tape: its generation and the nodes recorded in it, held weakly.
#[derive(Debug)]
pub struct TapeCore {
    /// A number for messages.
    pub id: u32,
    /// Its pass pools, one a device; the CPU's is made when the tape is opened.
    pub pools: Mutex<SmallVec<[(Device, PoolId); 1]>>,
    /// Tapes that were recording when it was opened, and those that they were opened in, outermost first.
    pub outer: Vec<u32>,
    /// Counts clears and finished backward passes.
    pub generation: AtomicU32,
    /// Recorded nodes in creation order, and those that a segment's replay may need.
    pub nodes: Mutex<Vec<Weak<Node>>>,
    /// Segments begun while it recorded, in creation order.
    pub segments: Mutex<Vec<Weak<Segment>>>,
    /// Set for the tape of one run of a segment's function.
    pub probe: Option<Probe>,
    /// The bound on active bytes, if there is one.
    pub budget: Option<Budget>,
}

impl Drop for TapeCore {
    fn drop(&mut self) {
        // What is alive in a pool stays valid; its number is used again once it is empty.
        for (device, pool) in self.pools.get_mut().drain(..) {
            let _ = super::storage::pools(device).lock().drop_pass(pool);
        }
    }
}

impl TapeCore {
    /// Whether it is the tape of a first run of a segment's function, which is never differentiated.
    pub fn is_first_run(&self) -> bool {
        self.probe.as_ref().is_some_and(|p| p.is_first)
    }

    /// Its pass pool on a device, made at the first call. `pools` are that device's.
    pub fn pool(&self, device: Device, pools: &mut DevicePools) -> Result<PoolId> {
        let mut own = self.pools.lock();
        if let Some((_, pool)) = own.iter().find(|(d, _)| *d == device) {
            return Ok(*pool);
        }
        let pool = pools.create_pass()?;
        own.push((device, pool));
        Ok(pool)
    }
}

/// That a node was recorded on a tape, in one of its generations.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The tape.
    pub tape: Arc<TapeCore>,
    /// The tape's generation at that time.
    pub generation: u32,
}

impl Mark {
    /// Whether that generation is still the tape's.
    pub fn is_live(&self) -> bool {
        self.tape.generation.load(Relaxed) == self.generation
    }
}

/// Whether this thread records, and on which tapes.
#[derive(Clone, Default)]
pub struct GradState {
    /// Recording tapes, outermost first.
    pub tapes: SmallVec<[Arc<TapeCore>; 2]>,
    /// Inside `no_grad`.
    pub paused: bool,
    /// Inside `detect_anomaly`: every op remembers its line.
    pub anomaly: bool,
    /// The innermost segment under way.
    pub segment: Option<Arc<Segment>>,
    /// The part of a backward walk under way; see `Node::phase`.
    pub phase: u32,
    /// The log of the run of a segment's function that is under way.
    pub log: Option<Arc<Log>>,
    /// Every op remembers its line, for reports.
    pub lines: bool,
}

impl GradState {
    /// Numbers of the recording tapes and of those that they were opened in: a run of a segment's function records on its own tape alone.
    pub fn around(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.tapes.iter().flat_map(|t| t.outer.iter().copied().chain([t.id])).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

thread_local! {
    static STATE: RefCell<GradState> = RefCell::new(GradState::default());
}

/// Gives back the recording state it replaced when dropped, on any exit.
pub struct Scope(Option<GradState>);

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(old) = self.0.take() {
            STATE.with(|s| *s.borrow_mut() = old);
        }
    }
}

impl Scope {
    /// Changes this thread's recording state until the scope is dropped.
    pub fn enter(change: impl FnOnce(&mut GradState)) -> Scope {
        STATE.with(|s| {
            let old = s.borrow().clone();
            change(&mut s.borrow_mut());
            Scope(Some(old))
        })
    }
}

/// Reads or changes this thread's recording state.
pub fn scope<R>(f: impl FnOnce(&mut GradState) -> R) -> R {
    STATE.with(|s| f(&mut s.borrow_mut()))
}

static PLACE_HOOK: OnceLock<fn() -> Option<String>> = OnceLock::new();

/// Sets how the user's line is found; the binding gives it once.
pub fn set_place_hook(hook: fn() -> Option<String>) {
    let _ = PLACE_HOOK.set(hook);
}

/// Whether the op's kernel may refuse values, so that its line must be remembered.
pub(crate) fn may_fail(op: &Op) -> bool {
    matches!(
        op,
        Op::Gather(_) | Op::ScatterAdd(_) | Op::IndexPut(_) | Op::TakeAlong(_) | Op::ScatterAlong(_) | Op::CrossEntropy(_)
    )
}

/// Records an op: a pending node, on every recording tape for which some input leads to a leaf that wants a gradient.
///
/// `saves` says what the op's gradient rule keeps, given the mask of inputs that need a gradient; `None` means that the op is not
/// differentiable.
pub fn record(
    op: Op,
    args: SmallVec<[u64; 2]>,
    inputs: SmallVec<[Tensor; 2]>,
    specs: SmallVec<[Spec; 1]>,
    saves: impl Fn(&Op, u32) -> Option<Saved>,
) -> Arc<Node> {
    let mut node = Node::build(op, args, inputs, specs);
    let is_plain = STATE.with(|state| {
        let state = state.borrow();
        let is_plain = !(state.anomaly || state.lines || state.log.is_some() || may_fail(&node.op));
        if is_plain {
            finish(&mut node, &state, &saves);
        }
        is_plain
    });
    if is_plain {
        return publish(node);
    }
    // Outside the borrow: looking at the user's frames may run the user's code, which may record.
    node.place = PLACE_HOOK.get().and_then(|hook| hook()).map(String::into_boxed_str);
    STATE.with(|state| finish(&mut node, &state.borrow(), &saves));
    let node = publish(node);
    note(&node, Mode::Recorded);
    node
}

/// The recipe of a node over other inputs: what a replay computes in its stead. Of the tapes that record now, those record it that recorded
/// the original: what was a constant to them (detached, or made under `no_grad`) stays one.
pub fn record_clone(original: &Node, inputs: SmallVec<[Tensor; 2]>, saves: fn(&Op, u32) -> Option<Saved>) -> Arc<Node> {
    let specs = original.outs.iter().map(|o| o.spec.clone()).collect();
    let mut node = Node::build(original.op.clone(), original.args.clone(), inputs, specs);
    if let (None, Some(device)) = (node.placing.device(), original.placing.device()) {
        node.placing.set(device);
    }
    node.place = original.place.clone();
    node.replay_of = original.segment.clone();
    let (kept, rule) = {
        let state = original.state.lock();
        (state.reads, state.rule.clone())
    };
    // A user's op may keep less than its family.
    let saves = |op: &Op, needs: u32| if matches!(op, Op::Custom) { Some(kept) } else { saves(op, needs) };
    let mut around = STATE.with(|s| s.borrow().clone());
    let strangers = strangers(original, &around);
    around.tapes.retain(|tape| original.marks.iter().any(|m| Arc::ptr_eq(&m.tape, tape)));
    stamp(&mut node, &around);
    record_on(&mut node, &around, &saves);
    if !node.marks.is_empty() {
        node.state.get_mut().rule = rule;
    }
    node.marks.extend(strangers);
    let node = publish(node);
    note(&node, Mode::Recorded);
    node
}

/// Marks of the original's live tapes that know nothing of a tape which records now: a walk over that one must meet them, since it can no
/// more follow the clone than the original.
fn strangers(original: &Node, state: &GradState) -> SmallVec<[Mark; 1]> {
    let is_stranger = |m: &&Mark| {
        let are_apart =
            |t: &Arc<TapeCore>| !Arc::ptr_eq(t, &m.tape) && !t.outer.contains(&m.tape.id) && !m.tape.outer.contains(&t.id);
        m.is_live() && !state.paused && !state.tapes.iter().any(|t| Arc::ptr_eq(t, &m.tape)) && state.tapes.iter().any(are_apart)
    };
    original.marks.iter().filter(is_stranger).cloned().collect()
}

/// Puts a new node into the segment and on the tapes that are under way.
fn finish(node: &mut Node, state: &GradState, saves: &dyn Fn(&Op, u32) -> Option<Saved>) {
    stamp(node, state);
    record_on(node, state, saves);
}

/// Marks a new node with the tapes that record it, and counts what it keeps.
fn record_on(node: &mut Node, state: &GradState, saves: &dyn Fn(&Op, u32) -> Option<Saved>) {
    let is_recorded = !state.paused && !state.tapes.is_empty() && has_float(node);
    let reads = if is_recorded { mark(node, &state.tapes, saves) } else { None };
    count(node, reads);
}

fn has_float(node: &Node) -> bool {
    node.outs.iter().any(|o| o.spec.dtype.is_float())
}

fn stamp(node: &mut Node, state: &GradState) {
    node.phase = state.phase;
    node.segment = state.segment.clone().filter(|s| s.is_live());
}

/// Writes a new node into the log of the run under way. `mode` holds unless recording is paused, which is nothing to integers.
fn note(node: &Arc<Node>, mode: Mode) {
    let (log, is_paused) = STATE.with(|s| (s.borrow().log.clone(), s.borrow().paused));
    let Some(log) = log else { return };
    let mode = if mode == Mode::Recorded && is_paused && has_float(node) { Mode::Paused } else { mode };
    log.remember(node);
    let place = node.place.as_deref().map(str::to_owned).or_else(|| PLACE_HOOK.get().and_then(|hook| hook()));
    let inputs = node.state.lock().inputs.clone();
    log.push(node, &inputs, &[], place.as_deref().unwrap_or("an unknown line"), mode);
}

/// Writes a leaf that was made of other tensors or of values from outside into the log of the run under way.
pub fn log_leaf<V: AsRef<[u8]>>(leaf: &Tensor, of: &[Tensor], values: impl FnOnce() -> V) {
    let Some(log) = STATE.with(|s| s.borrow().log.clone()) else { return };
    let place = PLACE_HOOK.get().and_then(|hook| hook());
    log.push(&leaf.node, of, values().as_ref(), place.as_deref().unwrap_or("an unknown line"), Mode::Recorded);
}

/// An alias that is a source of the tape whatever it came from, recorded on the other tapes as usual.
pub fn record_source(t: &Tensor, tape: &Arc<TapeCore>, saves: fn(&Op, u32) -> Option<Saved>) -> Tensor {
    let mut node = Node::build(Op::View(ViewOp::Alias), SmallVec::new(), smallvec![t.clone()], smallvec![t.spec().clone()]);
    let mut others = STATE.with(|s| s.borrow().clone());
    others.tapes.retain(|other| !Arc::ptr_eq(other, tape));
    stamp(&mut node, &others);
    let reads = if others.paused { None } else { mark(&mut node, &others.tapes, &saves) };
    node.marks.push(Mark { tape: tape.clone(), generation: tape.generation.load(Relaxed) });
    count(&mut node, reads);
    let node = publish(node);
    note(&node, Mode::Source);
    Tensor::first(node)
}

/// Puts a finished node on its tapes' lists and among the pending ones. A node is large: inlined, it is moved once.
#[inline]
fn publish(node: Node) -> Arc<Node> {
    let node = Arc::new(node);
    for m in &node.marks {
        m.tape.nodes.lock().push(Arc::downgrade(&node));
    }
    if let Some(segment) = &node.segment {
        let is_listed = |m: &Mark| node.marks.iter().any(|own| Arc::ptr_eq(&own.tape, &m.tape));
        for m in segment.marks.iter().filter(|m| m.is_live() && !is_listed(m)) {
            m.tape.nodes.lock().push(Arc::downgrade(&node));
        }
    }
    pending::push(&node);
    node
}

/// The same value under another identity, recorded on no tape: a detached tensor, or a new version of a user's leaf.
pub fn record_version(t: &Tensor, variable: Option<Arc<Variable>>) -> Tensor {
    let mut node = Node::build(Op::View(ViewOp::Alias), SmallVec::new(), smallvec![t.clone()], smallvec![t.spec().clone()]);
    if variable.is_none() {
        STATE.with(|state| stamp(&mut node, &state.borrow()));
        count(&mut node, None);
    }
    node.variable = variable;
    let node = publish(node);
    note(&node, Mode::Detached);
    Tensor::first(node)
}

/// A copy on another device, recorded on no tape: what its readers make of a value that wants no gradient.
pub(super) fn record_transfer(t: &Tensor, device: Device) -> Tensor {
    let node = Node::build(Op::Transfer(device), SmallVec::new(), smallvec![t.clone()], smallvec![t.spec().clone()]);
    Tensor::first(publish(node))
}

/// Adds the tapes that must record the node; what its gradient rule reads, or `None` if no tape records it.
fn mark(node: &mut Node, tapes: &[Arc<TapeCore>], saves: &dyn Fn(&Op, u32) -> Option<Saved>) -> Option<Saved> {
    let inner = node.state.get_mut();
    let mut needs = 0u32;
    for tape in tapes {
        let mut on_tape = 0u32;
        for (i, t) in inner.inputs.iter().enumerate() {
            let leaf = t.node.variable.as_ref().is_some_and(|v| v.requires_grad());
            let recorded = || t.node.marks.iter().any(|m| Arc::ptr_eq(&m.tape, tape) && m.is_live());
            let is_source = || match &tape.probe {
                Some(probe) => {
                    probe.admits(t, || leaf || t.node.marks.iter().any(|m| m.is_live() && tape.outer.contains(&m.tape.id)))
                }
                None => leaf,
            };
            // The walk must reach it to say that its gradient would be lost.
            let is_lost = || node.op != Op::Custom && t.node.is_lost_to(tape);
            let is_used_up = || t.node.marks.iter().any(|m| Arc::ptr_eq(&m.tape, tape) && !m.is_live());
            if t.dtype().is_float() && (recorded() || is_source() || is_lost() || is_used_up()) {
                on_tape |= Saved::bit(i);
            }
        }
        if on_tape != 0 {
            needs |= on_tape;
            node.marks.push(Mark { tape: tape.clone(), generation: tape.generation.load(Relaxed) });
        }
    }
    if needs == 0 {
        return None;
    }
    let reads = saves(&node.op, needs);
    if reads.is_none() {
        node.marks.clear();
    }
    reads
}

/// Counts what is kept on a new node's behalf.
fn count(node: &mut Node, reads: Option<Saved>) {
    if reads.is_none() && node.segment.is_none() {
        return;
    }
    let inner = node.state.get_mut();
    inner.reads = reads.unwrap_or_default();
    inner.saved = counted(&inner.inputs, node.segment.as_ref(), &node.marks, inner.reads);
    for (_, t) in inner.inputs.iter().enumerate().filter(|(i, _)| inner.saved.has_input(*i)) {
        t.out().saved.fetch_add(1, Relaxed);
    }
    for (_, out) in node.outs.iter().enumerate().filter(|(o, _)| inner.saved.has_output(*o)) {
        out.saved.fetch_add(1, Relaxed);
    }
}
