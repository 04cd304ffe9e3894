//! Evaluation points: what is pending is planned, run once, and then forgets what nobody needs.
use super::cache::Cache;
use super::lower::lower;
use super::place::{peak, place};
use super::program::{Program, in_place};
use super::run::{self, failures, is_failure_alive};
use super::{Launch, Plan, options};
use crate::backend::op::Op;
use crate::backend::{Kernel, cpu};
use crate::error::{Error, Result};
use crate::graph::{Node, Tensor, is_forecasting, pending_roots};
use crate::shape::elems;
use rustc_hash::FxHashSet;
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError};

/// What evaluations share: one runs at a time, so a node is computed once.
#[derive(Default)]
pub struct Engine {
    pub(crate) cache: Cache,
}

// The standard library's lock: one that keeps lists of waiting threads would still wake a parent's after a fork.
static ENGINE: LazyLock<Mutex<Engine>> = LazyLock::new(|| Mutex::new(Engine::default()));

/// Waits for the running evaluation, and keeps others out.
pub fn lock_engine() -> MutexGuard<'static, Engine> {
    ENGINE.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static FORKING: RefCell<Option<MutexGuard<'static, Engine>>> = const { RefCell::new(None) };
}

/// Before this thread forks the process: waits for the running evaluation and keeps others out until `after_fork`, so that the child gets
/// an engine at rest.
pub fn before_fork() {
    // A signal handler that runs in the middle of an evaluation of this thread holds the lock already.
    if !cpu::is_asking() {
        let engine = lock_engine();
        FORKING.with(|held| *held.borrow_mut() = Some(engine));
    }
}

/// Lets evaluations in again, in the parent and in the child.
pub fn after_fork(is_child: bool) {
    if is_child {
        cpu::begin_child();
    }
    FORKING.with(|held| held.borrow_mut().take());
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
    /// Found in the cache.
    pub cache_hit: bool,
}

thread_local! {
    static LAST: Cell<LastPlan> = const {
        Cell::new(LastPlan {
            kernels: 0,
            nodes: 0,
            buffer_bytes: 0,
            peak_bytes: 0,
            measured_peak_bytes: 0,
            work: 0,
            cache_hit: false,
        })
    };
}

/// This thread's last plan that ran a kernel.
pub fn last_plan() -> LastPlan {
    LAST.with(Cell::get)
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
    let mut engine = match ENGINE.try_lock() {
        Ok(engine) => engine,
        Err(TryLockError::Poisoned(engine)) => engine.into_inner(),
        Err(TryLockError::WouldBlock) => return Ok(()),
    };
    evaluate_all(also, |roots| evaluate_locked(roots, &mut engine))
}

fn evaluate_locked(roots: &[Tensor], engine: &mut Engine) -> Result<()> {
    let options = options();
    let program = Program::new(roots, options)?;
    if program.nodes.is_empty() {
        return Ok(());
    }
    let found = if options.cache { engine.cache.find(&program.key) } else { None };
    let hit = found.is_some();
    let plan = match found {
        Some(plan) => plan,
        None => {
            let plan = Arc::new(make(&program)?);
            if options.cache {
                engine.cache.insert(&plan);
            }
            plan
        }
    };
    let ran = run::run(&plan, &program, options.anomaly)?;
    if !plan.launches.is_empty() {
        LAST.with(|last| {
            last.set(LastPlan {
                kernels: plan.launches.len(),
                nodes: program.nodes.len(),
                buffer_bytes: plan.buffers.iter().sum(),
                peak_bytes: ran.before + plan.peak,
                measured_peak_bytes: ran.measured_peak,
                work: plan.work,
                cache_hit: hit,
            });
        });
    }
    finish(program);
    Ok(())
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
            // An anomaly is what the user asked to hear of first, whichever tensor it is in.
            Err(error @ Error::Anomaly { .. }) => return Err(error),
            Err(error) if failures() == before => return Err(error),
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

/// Leaves out what needs a node whose kernel refused its values.
fn drop_failed(roots: &mut Vec<Tensor>) {
    if roots.is_empty() || !is_failure_alive() {
        return;
    }
    let mut seen: FxHashSet<*const Node> = FxHashSet::default();
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    let mut stack: Vec<Tensor> = roots.clone();
    while let Some(t) = stack.pop() {
        if t.value().is_none() && seen.insert(Arc::as_ptr(&t.node)) {
            stack.extend(t.node.state.lock().inputs.iter().cloned());
            nodes.push(t.node);
        }
    }
    nodes.sort_unstable_by_key(|n| n.id);
    let mut failed: FxHashSet<*const Node> = FxHashSet::default();
    for node in &nodes {
        let is_fed_by_failed =
            || node.state.lock().inputs.iter().any(|t| failed.contains(&Arc::as_ptr(&t.node)) && t.value().is_none());
        if node.has_failed.load(Relaxed) || is_fed_by_failed() {
            failed.insert(Arc::as_ptr(node));
        }
    }
    roots.retain(|t| t.value().is_some() || !failed.contains(&Arc::as_ptr(&t.node)));
}

/// The plan of a program.
pub(super) fn make(program: &Program) -> Result<Plan> {
    let lowered = lower(program, options())?;
    let placement = place(program, &lowered);
    let prepared = lowered.launches.iter().map(|l| cpu::prepare(&l.kernel)).collect::<Result<Vec<_>>>()?;
    let work = lowered.launches.iter().map(work).sum();
    Ok(Plan {
        key: program.key.clone(),
        launches: lowered.launches,
        prepared,
        places: placement.places,
        buffers: placement.buffers,
        peak: peak(&placement.steps),
        steps: placement.steps,
        kept: lowered.kept,
        is_update: placement.overwrites_leaves
            || program.nodes.iter().any(|n| matches!(n.op, Op::Update(_)) && !in_place(&n.op).is_empty()),
        work,
    })
}

/// Work of a launch (design: 2mnk for a product, else 4 for each element moved).
fn work(launch: &Launch) -> u64 {
    let moved: usize = launch.ins.iter().chain(&launch.outs).map(|o| elems(&o.layout.shape)).sum();
    match &launch.kernel {
        Kernel::Op(Op::MatMul) => {
            let k = launch.ins.first().and_then(|a| a.layout.shape.last().copied()).unwrap_or(0);
            2 * (elems(&launch.shape) * k) as u64
        }
        _ => 4 * moved as u64,
    }
}

/// After the run, newest first, so that a value goes as soon as its last reader is done with it.
fn finish(program: Program) {
    let Program { nodes, leaves, .. } = program;
    drop(leaves);
    for node in nodes.iter().rev() {
        node.complete();
    }
}
