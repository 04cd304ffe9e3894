//! Evaluation points: what is pending is planned, run once, and then forgets what nobody needs.
use super::budget::Room;
use super::cache::Cache;
use super::choose::planned;
use super::listing::{LaunchRow, rows};
use super::program::Program;
use super::run::{self, failures, is_failure_alive, note_failure};
use super::timing::{Stage, Timing};
use super::transfer::{carry_out, pending_transfers};
use super::work::work;
use super::{Plan, options};
use crate::backend::{cpu, gpu};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::{
    Budget, Node, PoolsGuard, Spent, Tensor, is_any_limited, is_forecasting, pending_roots, pooled_devices, pools, settle,
    with_holders,
};
use rustc_hash::FxHashSet;
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError};

/// What evaluations share: one runs at a time, so a node is computed once.
#[derive(Default)]
pub struct Engine {
    pub(crate) cache: Cache,
}

impl Engine {
    /// Forgets every plan.
    pub fn forget_plans(&mut self) {
        self.cache = Cache::default();
    }
}

// The standard library's lock: one that keeps lists of waiting threads would still wake a parent's after a fork.
static ENGINE: LazyLock<Mutex<Engine>> = LazyLock::new(|| Mutex::new(Engine::default()));

/// Waits for the running evaluation, and keeps others out.
pub fn lock_engine() -> MutexGuard<'static, Engine> {
    ENGINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps other evaluations out, unless one is under way.
pub(super) fn try_lock_engine() -> Option<MutexGuard<'static, Engine>> {
    match ENGINE.try_lock() {
        Ok(engine) => Some(engine),
        Err(TryLockError::Poisoned(engine)) => Some(engine.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// What a thread that forks holds meanwhile.
#[derive(Default)]
struct AtRest {
    engine: Option<MutexGuard<'static, Engine>>,
    pools: Vec<PoolsGuard>,
}

thread_local! {
    static FORKING: RefCell<AtRest> = RefCell::default();
}

/// Before this thread forks the process: waits for the running evaluation and keeps others out until `after_fork`, so that the child gets
/// an engine at rest.
pub fn before_fork() {
    // A signal handler that runs in the middle of an evaluation of this thread holds the engine already.
    let engine = (!cpu::is_asking()).then(lock_engine);
    FORKING.with(|held| held.borrow_mut().engine = engine);
}

/// Next, waits for whoever asks a device for memory, and keeps others out. The caller has the interpreter, which is asked for before the
/// pools wherever both are: a thread that drops a tensor meanwhile has it and waits for them.
pub fn before_fork_pools() {
    let pools = pooled_devices().map(|device| pools(device).lock()).collect();
    FORKING.with(|held| held.borrow_mut().pools = pools);
}

/// Lets evaluations in again, in the parent and in the child.
pub fn after_fork(is_child: bool) {
    if is_child {
        cpu::begin_child();
    }
    FORKING.take();
}

/// This thread's last plan that ran a kernel.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LastPlan {
    /// Launches.
    pub kernels: usize,
    /// Nodes it computed.
    pub nodes: usize,
    /// Bytes of its buffers.
    pub buffer_bytes: usize,
    /// The highest number of active bytes that was to be expected while it runs, everything else held included.
    pub peak_bytes: usize,
    /// The highest number of active bytes while it ran.
    pub measured_peak_bytes: usize,
    /// Units of work: operations of products, and 4 for each element moved.
    pub work: u64,
    /// What plans have run for its tape so far, if that has a budget; else this plan alone.
    pub spent: Spent,
    /// Found in the cache.
    pub cache_hit: bool,
}

impl LastPlan {
    /// Work that its tape has cost, divided by that of computing everything once.
    pub fn work_ratio(&self) -> f64 {
        if self.spent.first_work == 0 { 1.0 } else { self.spent.work as f64 / self.spent.first_work as f64 }
    }
}

thread_local! {
    static LAST: RefCell<(LastPlan, Option<Arc<Plan>>)> = RefCell::new((LastPlan::default(), None));
}

/// This thread's last plan that ran a kernel.
pub fn last_plan() -> LastPlan {
    LAST.with(|l| l.borrow().0)
}

/// The launches of this thread's last plan that ran a kernel.
pub fn last_launches() -> Vec<LaunchRow> {
    LAST.with(|l| l.borrow().1.as_deref().map(rows).unwrap_or_default())
}

/// Computes the roots; what is computed already costs nothing.
pub fn evaluate(roots: &[Tensor]) -> Result<()> {
    if roots.iter().all(|t| t.value().is_some()) {
        return Ok(());
    }
    if is_forecasting() {
        return Err(Error::state(
            "estimate_memory",
            "a value was read while the step was being recorded (a print, item(), bool() or a shape that depends on values); expected a \
             model and a loss that only compute",
        ));
    }
    evaluate_locked(roots, &mut lock_engine())
}

/// Computes every pending tensor of this thread that Python holds, with `also`, unless another evaluation is under way: for callers that
/// hold a lock which that evaluation may ask for.
pub fn try_evaluate_pending(also: &[Tensor]) -> Result<()> {
    let Some(mut engine) = try_lock_engine() else { return Ok(()) };
    evaluate_all(also, |roots| evaluate_locked(roots, &mut engine))
}

fn evaluate_locked(roots: &[Tensor], engine: &mut Engine) -> Result<()> {
    for transfer in pending_transfers(roots) {
        let input = transfer.state.lock().inputs.first().cloned();
        if let Some(input) = input
            && input.value().is_none()
        {
            evaluate_on_one(&[input], engine)?;
        }
        carry_out(&transfer)?;
    }
    by_device(roots, &mut |roots| evaluate_on_one(roots, engine))
}

/// Carries out the copies between devices that the roots need and whose sources are computed; whether those were all.
pub(super) fn carry_out_ready(roots: &[Tensor]) -> Result<bool> {
    for transfer in pending_transfers(roots) {
        let input = transfer.state.lock().inputs.first().cloned();
        if input.is_none_or(|t| t.value().is_none()) {
            return Ok(false);
        }
        carry_out(&transfer)?;
    }
    Ok(true)
}

/// Calls `each` with the tensors of every device; those whose device is open are computed on the CPU.
pub(super) fn by_device(roots: &[Tensor], each: &mut dyn FnMut(&[Tensor]) -> Result<()>) -> Result<()> {
    roots.iter().for_each(|t| settle(&t.node, Device::CPU));
    let Some(first) = roots.first() else { return Ok(()) };
    if roots.iter().all(|t| t.device() == first.device()) {
        return each(roots);
    }
    let mut rest = roots.to_vec();
    while let Some(device) = rest.first().map(Tensor::device) {
        let (these, others): (Vec<Tensor>, Vec<Tensor>) = rest.into_iter().partition(|t| t.device() == device);
        each(&these)?;
        rest = others;
    }
    Ok(())
}

fn evaluate_on_one(roots: &[Tensor], engine: &mut Engine) -> Result<()> {
    let device = roots.first().and_then(Tensor::device).unwrap_or(Device::CPU);
    run_on_one(roots, engine).map_err(|error| with_holders(device, error))
}

fn run_on_one(roots: &[Tensor], engine: &mut Engine) -> Result<()> {
    let options = options();
    let timing = Timing::begin();
    let timing = timing.as_ref();
    let (program, room, plan, cache_hit) = match planned(roots, &mut engine.cache, false, timing)? {
        Some(planned) => planned,
        None => return Ok(()),
    };
    let ran = run::run(&plan, &program, options.anomaly, room.as_ref().map(|r| r.bytes), timing)?;
    let story = timing.map(|timing| timing.story(&plan, &program, cache_hit));
    let keeping = Timing::span(timing, Stage::Keep);
    if !plan.launches.is_empty() {
        let spent = spent(&plan, &program, room.as_ref());
        remember(plan, program.nodes.len(), &ran, spent, cache_hit);
    }
    finish(program);
    drop(keeping);
    if let (Some(timing), Some(story)) = (timing, story) {
        timing.end(story);
    }
    Ok(())
}

/// What has run for the plan's tape, this plan included. The program's nodes do not know yet that it ran.
fn spent(plan: &Plan, program: &Program, room: Option<&Room>) -> Spent {
    let Some(room) = room else {
        return Spent { work: plan.work, first_work: plan.plain_work, rebuilds: plan.rebuilds };
    };
    let mut spent = Spent { work: plan.work, ..Spent::default() };
    for (launch, at) in plan.launches.iter().zip(0..) {
        let is_again = plan.repeats.binary_search(&at).is_ok() || program.nodes[launch.node as usize].was_computed();
        if is_again {
            spent.rebuilds += 1;
        } else {
            spent.first_work += work(launch);
        }
    }
    room.spend(spent)
}

fn remember(plan: Arc<Plan>, nodes: usize, ran: &run::Ran, spent: Spent, cache_hit: bool) {
    let last = LastPlan {
        kernels: plan.launches.len(),
        nodes,
        buffer_bytes: plan.buffer_bytes(),
        peak_bytes: ran.before + plan.peak,
        measured_peak_bytes: ran.measured_peak,
        work: plan.work,
        spent,
        cache_hit,
    };
    LAST.with(|l| *l.borrow_mut() = (last, Some(plan)));
}

/// Whether the roots can be computed under the budgets in force, once the tape that saved values for them has let go of those. Runs
/// nothing; values that were kept for gradient rules may have been given up for it: they are pending again, with their recipes.
pub fn check_budget(roots: &[Tensor]) -> Result<()> {
    if !is_any_limited() {
        return Ok(());
    }
    evaluate_all(roots, |all| {
        let mut engine = lock_engine();
        if !carry_out_ready(all)? {
            // What is read from another device is told when it is computed.
            return Ok(());
        }
        by_device(all, &mut |these| planned(these, &mut engine.cache, true, None).map(|_| ()))
    })
}

/// Computes every pending tensor of this thread that Python holds, with `also`. A tensor whose evaluation fails is left out with what
/// depends on it, unless it is one of `also`: it stays pending, and raises when it is asked for by name.
pub fn evaluate_pending(also: &[Tensor]) -> Result<()> {
    evaluate_all(also, evaluate)
}

/// `evaluate_pending` by the given means of computing roots.
fn evaluate_all(also: &[Tensor], mut compute: impl FnMut(&[Tensor]) -> Result<()>) -> Result<()> {
    if is_forecasting() && also.is_empty() {
        return Ok(());
    }
    let mut roots = pending_roots();
    loop {
        drop_failed(&mut roots);
        let before = failures();
        let mut all = roots.clone();
        all.extend_from_slice(also);
        match compute(&all) {
            // An anomaly is what the user asked to hear of first, whichever tensor it is in; an interrupt comes once.
            Err(error @ (Error::Anomaly { .. } | Error::Interrupted)) => return Err(error),
            // What the refused tape recorded is left out from now on, unless it is what was asked for.
            Err(error @ Error::Budget { .. }) => {
                let (all, mut named) = (roots.len(), also.to_vec());
                drop_failed(&mut roots);
                drop_failed(&mut named);
                if named.len() < also.len() || roots.len() == all {
                    return Err(error);
                }
            }
            Err(error) if failures() == before && !note_gone(&all) => return Err(error),
            Err(error) => {
                let mut named = also.to_vec();
                drop_failed(&mut named);
                if named.len() < also.len() {
                    return Err(error);
                }
            }
            Ok(()) => return Ok(()),
        }
    }
}

/// Whether a plan for what the node's tape recorded was refused lately.
fn is_refused(node: &Node) -> bool {
    node.marks.iter().any(|m| m.is_live() && m.tape.budget.as_ref().is_some_and(Budget::is_refused))
}

/// Leaves out what needs a node whose kernel refused its values, or whose tape's budget was refused.
fn drop_failed(roots: &mut Vec<Tensor>) {
    if roots.is_empty() || !(is_failure_alive() || is_any_limited()) {
        return;
    }
    let nodes = pending_beneath(roots);
    let mut failed: FxHashSet<*const Node> = FxHashSet::default();
    for node in &nodes {
        let is_fed_by_failed =
            || node.state.lock().inputs.iter().any(|t| failed.contains(&Arc::as_ptr(&t.node)) && t.value().is_none());
        if node.has_failed.load(Relaxed) || is_refused(node) || is_fed_by_failed() {
            failed.insert(Arc::as_ptr(node));
        }
    }
    roots.retain(|t| t.value().is_some() || !failed.contains(&Arc::as_ptr(&t.node)));
}

/// Nodes without a value that the roots need, oldest first.
fn pending_beneath(roots: &[Tensor]) -> Vec<Arc<Node>> {
    let mut seen: FxHashSet<*const Node> = FxHashSet::default();
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    let mut stack: Vec<Tensor> = roots.to_vec();
    while let Some(t) = stack.pop() {
        if t.value().is_none() && seen.insert(Arc::as_ptr(&t.node)) {
            stack.extend(t.node.state.lock().inputs.iter().cloned());
            nodes.push(t.node);
        }
    }
    nodes.sort_unstable_by_key(|n| n.id);
    nodes
}

/// Notes what can be computed no more: on a device that is lost, or from values that went with one or with a reset. Gives whether there was
/// any that was not noted before.
fn note_gone(roots: &[Tensor]) -> bool {
    let is_taken = |t: &Tensor| t.value().is_some_and(|v| is_lost(Some(v.storage.device())) || v.storage.bytes().is_err());
    let is_gone = |node: &Node| is_lost(node.placing.device()) || node.state.lock().inputs.iter().any(is_taken);
    let mut gone = pending_beneath(roots);
    gone.retain(|node| !node.has_failed.load(Relaxed) && is_gone(node));
    gone.iter().for_each(note_failure);
    !gone.is_empty()
}

/// Whether a device does nothing any more in this process.
fn is_lost(device: Option<Device>) -> bool {
    let is_at_work = |index| gpu::gpu(index).is_ok_and(|gpu| !gpu.is_lost());
    device.and_then(Device::gpu_index).is_some_and(|index| !is_at_work(index))
}

/// After the run, newest first, so that a value goes as soon as its last reader is done with it.
fn finish(program: Program) {
    let Program { nodes, leaves, .. } = program;
    drop(leaves);
    for node in nodes.iter().rev() {
        node.complete();
    }
}
