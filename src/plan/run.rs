//! Running a plan: buffers are obtained, leaves checked, launches run in order, and what is kept gets a storage.
use super::lives::lives;
use super::memory::{Live, Memory};
use super::observe::{LaunchEvent, observer};
use super::program::Program;
use super::timing::{Stage, Timing};
use super::{Kept, Launch, Loc, Operand, Place, Plan, run_gpu};
use crate::backend::clock::{Lap, now};
use crate::backend::cpu::{self, View};
use crate::backend::transfers::count_arguments;
use crate::backend::{Prepared, gpu};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{DevicePools, Node, Storage, Value, pools};
use crate::layout::Layout;
use crate::pool::PoolId;
use crate::shape::elems;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Units of work from which a plan is worth a thread that listens for the user's interrupt: some milliseconds.
const LONG_WORK: u64 = 400_000_000;
/// Units of work from which threads stay awake between a plan's launches: in less than a millisecond most launches have one thread, and
/// the others' looking and yielding costs more than it saves.
const TEAM_WORK: u64 = 100_000_000;
/// Small launches between two looks for the user's interrupt.
const POLL_STRIDE: usize = 32;
/// Elements from which a launch is no small one.
const POLL_ELEMS: usize = 1 << 14;

/// Kernels that refused their values so far.
static FAILURES: AtomicUsize = AtomicUsize::new(0);

/// Kernels that refused their values so far.
pub(super) fn failures() -> usize {
    FAILURES.load(Relaxed)
}

/// Nodes whose kernels refused their values, as long as they live.
static FAILED: Mutex<Vec<Weak<Node>>> = Mutex::new(Vec::new());

/// Whether a node whose kernel refused its values is still alive.
pub(super) fn is_failure_alive() -> bool {
    let mut list = FAILED.lock();
    list.retain(|node| node.strong_count() > 0);
    !list.is_empty()
}

/// Notes that a node cannot be computed: evaluations that take everything leave it out from now on.
pub(super) fn note_failure(node: &Arc<Node>) {
    node.has_failed.store(true, Relaxed);
    FAILURES.fetch_add(1, Relaxed);
    FAILED.lock().push(Arc::downgrade(node));
}

/// What was active before a run, and the highest while it ran.
pub(super) struct Ran {
    pub before: usize,
    pub measured_peak: usize,
}

/// Runs a plan for a program; the kept values are written to its nodes. With a budget, cached buffers go before more is held than what is
/// there and `room`.
pub(super) fn run(plan: &Plan, program: &Program, anomaly: bool, room: Option<usize>, timing: Option<&Timing>) -> Result<Ran> {
    let observer = observer();
    let binding = Timing::span(timing, Stage::Bind);
    let (mut memory, mut live) = Memory::new(plan, program, observer.is_some(), room)?;
    let before = live.before;
    let made = if observer.is_some() { lives(plan) } else { Vec::new() };
    count_arguments(&program.args);
    drop(binding);
    let seen = |index: usize, live_bytes: usize| {
        if let Some(observer) = &observer {
            let node = &program.nodes[plan.launches[index].node as usize];
            observer(&LaunchEvent { index, node, live_bytes, made: &made[index] });
        }
    };
    // An update runs to its end; its gradients were looked at when they were computed.
    let anomaly = anomaly && !plan.is_update;
    let is_long = program.device.is_cpu() && plan.work > LONG_WORK;
    let running = Timing::span(timing, if program.device.is_cpu() { Stage::Run } else { Stage::Bind });
    let ran = cpu::interruptible(plan.is_update, is_long, || match program.device.is_cpu() {
        true => cpu::with_team(plan.work > TEAM_WORK, || launches(plan, program, &memory, &mut live, anomaly, &seen, timing)),
        false => run_gpu::launches(plan, program, &memory, &mut live, anomaly, &seen, timing),
    });
    drop(running);
    let _keeping = Timing::span(timing, Stage::Keep);
    let ran = ran.and_then(|()| {
        live.settle()?;
        keep(plan, program, &mut memory, &mut live)
    });
    memory.end(plan);
    let measured_peak = live.close()?;
    ran.map(|()| Ran { before, measured_peak })
}

fn launches(
    plan: &Plan,
    program: &Program,
    memory: &Memory,
    live: &mut Live,
    anomaly: bool,
    seen: &(dyn Fn(usize, usize) + Sync),
    timing: Option<&Timing>,
) -> Result<()> {
    for (i, (launch, prepared)) in plan.launches.iter().zip(&plan.prepared).enumerate() {
        if i % POLL_STRIDE == 0 || launch.shape.iter().product::<usize>() > POLL_ELEMS {
            cpu::poll()?;
        }
        seen(i, live.begin(plan.steps[i])?);
        let lap = Timing::laps(timing).map(|laps| (laps, now()));
        let ran = launch_one(plan, program, memory, launch, prepared);
        if let Some((laps, begin)) = lap {
            laps.push(Lap { launch: i as u32, dispatch: None, begin, end: now(), submitted: None });
        }
        if cpu::is_stopped() {
            return Err(Error::Interrupted);
        }
        let ran = if anomaly { ran.and_then(|()| check_finite_host(plan, program, memory, launch)) } else { ran };
        if let Err(error) = ran {
            if error == Error::Interrupted {
                return Err(error);
            }
            let node = &program.nodes[launch.node as usize];
            note_failure(node);
            return Err(match &node.place {
                Some(place) => error.at(place),
                None => error,
            });
        }
        live.end(plan.steps[i]);
    }
    Ok(())
}

fn launch_one(plan: &Plan, program: &Program, memory: &Memory, launch: &Launch, prepared: &Prepared) -> Result<()> {
    if launch.outs.iter().all(|o| o.layout.shape.contains(&0)) {
        return Ok(());
    }
    let mut ins: SmallVec<[View; 8]> = SmallVec::new();
    for operand in &launch.ins {
        ins.push(memory.view(plan, operand)?);
    }
    let mut outs: SmallVec<[View; 4]> = SmallVec::new();
    for operand in &launch.outs {
        outs.push(memory.view(plan, operand)?);
    }
    let args: SmallVec<[u64; 8]> = launch.args.iter().map(|&a| program.args[a as usize]).collect();
    let Prepared::Cpu(prepared) = prepared else { return Err(Error::Internal("plan: a kernel of another device")) };
    cpu::run(prepared, &ins, &outs, &launch.shape, &args)
}

/// Names the op whose result holds a NaN or an infinity (`detect_anomaly`).
fn check_finite_host(plan: &Plan, program: &Program, memory: &Memory, launch: &Launch) -> Result<()> {
    for out in launch.outs.iter().filter(|o| o.dtype.is_float()) {
        let n = elems(&out.layout.shape) * out.dtype.size_bytes();
        // SAFETY: an output is row-major and was just written by its launch.
        let bytes = unsafe { std::slice::from_raw_parts(memory.ptr(plan, out)?, n) };
        refuse_not_finite(program, launch, out, bytes)?;
    }
    Ok(())
}

/// The same on an adapter, from which every result is read.
pub(super) fn check_finite(plan: &Plan, program: &Program, memory: &Memory, launch: &Launch, gpu: &gpu::Gpu) -> Result<()> {
    for out in launch.results().iter().filter(|o| o.dtype.is_float()) {
        let mut bytes = vec![0; elems(&out.layout.shape) * out.dtype.size_bytes()];
        let place = memory.place(plan, out)?;
        gpu.download(place.buffer, place.base + place.offset, &mut bytes)?;
        refuse_not_finite(program, launch, out, &bytes)?;
    }
    Ok(())
}

fn refuse_not_finite(program: &Program, launch: &Launch, out: &Operand, bytes: &[u8]) -> Result<()> {
    let size = out.dtype.size_bytes();
    // The exponent's bits are all ones in what is not finite.
    let (high, mask) = match out.dtype {
        DType::F16 => (2, 0x7c00),
        DType::BF16 => (2, 0x7f80),
        DType::F32 => (4, 0x7f80_0000),
        _ => (8, 0x7ff0_0000_0000_0000u64),
    };
    let word = |b: &[u8]| b.iter().take(high).rev().fold(0u64, |w, &byte| w << 8 | u64::from(byte));
    let Some(at) = bytes.chunks_exact(size).position(|b| word(b) & mask == mask) else { return Ok(()) };
    let node = &program.nodes[launch.node as usize];
    let place = node.place.as_deref().unwrap_or("an unknown line");
    let message =
        format!("the first NaN or infinity is in element {at} of its output of shape {:?}, called at {place}", out.layout.shape);
    Err(Error::Anomaly { op: node.op.name(), message })
}

/// The pool of a kept value: the outermost live tape's, else the persistent one.
fn owner(program: &Program, kept: &Kept, pools: &mut DevicePools) -> Result<PoolId> {
    let marks = &program.nodes[kept.node as usize].marks;
    match marks.iter().find(|m| m.is_live()) {
        Some(m) => m.tape.pool(program.device, pools),
        None => Ok(pools.persistent()),
    }
}

/// Makes storages of the kept temporaries and writes the values to their nodes.
fn keep(plan: &Plan, program: &Program, memory: &mut Memory, live: &mut Live) -> Result<()> {
    let mut made: FxHashMap<u32, Arc<Storage>> = FxHashMap::default();
    let mut failed: Option<Error> = None;
    for kept in &plan.kept {
        let storage = match kept.loc {
            Loc::Leaf(l) => program.leaves[l as usize].value.storage.clone(),
            Loc::Scalar(_) => return Err(Error::Internal("plan: a number has no memory")),
            Loc::Temp(t) => match made.get(&t) {
                Some(storage) => storage.clone(),
                None => match adopt(plan, program, memory, live, kept, t) {
                    Ok(storage) => {
                        made.insert(t, storage.clone());
                        storage
                    }
                    Err(error) => {
                        failed = Some(error);
                        continue;
                    }
                },
            },
        };
        let shift = match kept.loc {
            Loc::Leaf(l) => program.leaves[l as usize].value.layout.offset,
            _ => 0,
        };
        let layout = match shift {
            0 => kept.layout.clone(),
            _ => Arc::new(Layout { offset: kept.layout.offset + shift, ..(*kept.layout).clone() }),
        };
        program.nodes[kept.node as usize].state.lock().values[kept.out as usize] = Some(Value { storage, layout });
    }
    failed.map_or(Ok(()), Err)
}

/// Turns a temporary's buffer into a storage.
fn adopt(plan: &Plan, program: &Program, memory: &mut Memory, live: &mut Live, kept: &Kept, t: u32) -> Result<Arc<Storage>> {
    let device: Device = program.device;
    let mut pools = pools(device).lock();
    let pool = owner(program, kept, &mut pools)?;
    let handle = match plan.places[t as usize] {
        Place::Leaf(l) => {
            // Written in place: the storage gets a new handle, so that the old version's is stale.
            let old = program.leaves[l as usize].value.storage.handle();
            let (bytes, buffer) = pools.take_back(old)?;
            pools.adopt(pool, bytes, buffer, false)?
        }
        Place::Arena(_) | Place::Lent { .. } => return Err(Error::Internal("plan: a kept value among temporaries")),
        Place::Part { buffer, offset, bytes } => {
            let part = memory.part(&mut pools, plan, buffer, offset, bytes)?;
            live.adopt(&mut pools, bytes)?;
            pools.adopt(pool, bytes, part, false)?
        }
        Place::Buffer(b) => {
            let bytes = plan.buffers[b as usize];
            let Some(buffer) = memory.buffers[b as usize].take() else {
                return Err(Error::Internal("plan: a kept buffer is gone"));
            };
            live.adopt(&mut pools, bytes)?;
            pools.adopt(pool, bytes, buffer, false)?
        }
    };
    let node = &program.nodes[kept.node as usize];
    pools.get_mut(handle)?.set_label(node.op.name(), &node.outs[kept.out as usize].spec, node.place.as_deref());
    Ok(Arc::new(Storage::new(device, handle)))
}
