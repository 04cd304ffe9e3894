//! Running a plan: buffers are obtained, leaves checked, launches run in order, and what is kept gets a storage.
use super::program::Program;
use super::{Kept, Launch, Loc, Operand, Place, Plan};
use crate::backend::cpu::{self, Prepared, View};
use crate::backend::transfers::count_arguments;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{HostBuffer, Node, Storage, Value, cpu as cpu_pools};
use crate::layout::Layout;
use crate::pool::PoolId;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Units of work from which a plan is worth a thread that listens for the user's interrupt: some milliseconds.
const LONG_WORK: u64 = 400_000_000;
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

/// Memory of one run: where each leaf and each of the plan's buffers is.
struct Memory {
    leaves: Vec<*mut u8>,
    buffers: Vec<Option<HostBuffer>>,
}

// SAFETY: a run has its buffers to itself and shares leaves for reading; the plan orders its launches one after the other.
unsafe impl Sync for Memory {}

impl Memory {
    /// Checks every leaf's handle and takes every buffer, before the first kernel.
    fn new(plan: &Plan, program: &Program) -> Result<Memory> {
        let mut pools = cpu_pools().lock();
        let mut leaves = Vec::with_capacity(program.leaves.len());
        for leaf in &program.leaves {
            let ptr = leaf.value.storage.ptr(&pools)?;
            // SAFETY: the value's offset lies inside its storage.
            leaves.push(unsafe { ptr.add(leaf.value.layout.offset * leaf.dtype.size_bytes()) });
        }
        let mut memory = Memory { leaves, buffers: Vec::with_capacity(plan.buffers.len()) };
        for &bytes in &plan.buffers {
            match pools.take_buffer(bytes) {
                Ok(buffer) => memory.buffers.push(Some(buffer)),
                Err(error) => {
                    for (buffer, &bytes) in memory.buffers.drain(..).zip(&plan.buffers) {
                        if let Some(buffer) = buffer {
                            pools.give_buffer(bytes, buffer);
                        }
                    }
                    return Err(error.into());
                }
            }
        }
        let pool = pools.persistent();
        pools.note_born(pool, plan.buffers.iter().sum())?;
        Ok(memory)
    }

    fn ptr(&self, plan: &Plan, operand: &Operand) -> Result<*mut u8> {
        let base = match operand.loc {
            Loc::Leaf(l) => self.leaves[l as usize],
            Loc::Temp(t) => match plan.places[t as usize] {
                Place::Leaf(l) => self.leaves[l as usize],
                Place::Buffer(b) => {
                    self.buffers[b as usize].as_ref().map(HostBuffer::ptr).ok_or(Error::Internal("plan: a buffer is gone"))?
                }
            },
            Loc::Scalar(_) => return Err(Error::Internal("plan: a number has no memory")),
        };
        // SAFETY: layouts were derived from the operand's storage when the plan was made, so the offset lies inside it.
        Ok(unsafe { base.add(operand.layout.offset * operand.dtype.size_bytes()) })
    }

    fn view<'a>(&self, plan: &Plan, operand: &'a Operand) -> Result<View<'a>> {
        Ok(View {
            ptr: self.ptr(plan, operand)?,
            dtype: operand.dtype,
            shape: &operand.layout.shape,
            strides: &operand.layout.strides,
        })
    }

    /// Gives back what was not kept, and takes back what the run counted.
    fn end(self, plan: &Plan) -> Result<()> {
        let mut pools = cpu_pools().lock();
        let pool = pools.persistent();
        let mut counted = 0;
        for (buffer, &bytes) in self.buffers.into_iter().zip(&plan.buffers) {
            if let Some(buffer) = buffer {
                counted += bytes;
                pools.give_buffer(bytes, buffer);
            }
        }
        pools.note_dead(pool, counted)?;
        Ok(())
    }
}

/// Runs a plan for a program; the kept values are written to its nodes.
pub(super) fn run(plan: &Plan, program: &Program, anomaly: bool) -> Result<()> {
    let memory = Memory::new(plan, program)?;
    count_arguments(&program.args);
    let ran = cpu::interruptible(plan.is_update, plan.work > LONG_WORK, || launches(plan, program, &memory, anomaly));
    match ran {
        Ok(()) => keep(plan, program, memory),
        Err(error) => {
            memory.end(plan)?;
            Err(error)
        }
    }
}

fn launches(plan: &Plan, program: &Program, memory: &Memory, anomaly: bool) -> Result<()> {
    for (i, (launch, prepared)) in plan.launches.iter().zip(&plan.prepared).enumerate() {
        if i % POLL_STRIDE == 0 || launch.shape.iter().product::<usize>() > POLL_ELEMS {
            cpu::poll()?;
        }
        let ran = launch_one(plan, program, memory, launch, prepared);
        if cpu::is_stopped() {
            return Err(Error::Interrupted);
        }
        let ran = if anomaly { ran.and_then(|()| check_finite(plan, program, memory, launch)) } else { ran };
        if let Err(error) = ran {
            if error == Error::Interrupted {
                return Err(error);
            }
            let node = &program.nodes[launch.node as usize];
            node.has_failed.store(true, Relaxed);
            FAILURES.fetch_add(1, Relaxed);
            FAILED.lock().push(Arc::downgrade(node));
            return Err(match &node.place {
                Some(place) => error.at(place),
                None => error,
            });
        }
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
    cpu::run(prepared, &ins, &outs, &launch.shape, &args)
}

/// Names the op whose result holds a NaN or an infinity (`detect_anomaly`).
fn check_finite(plan: &Plan, program: &Program, memory: &Memory, launch: &Launch) -> Result<()> {
    for out in launch.outs.iter().filter(|o| o.dtype.is_float()) {
        let ptr = memory.ptr(plan, out)?;
        let n = out.layout.shape.iter().product();
        // SAFETY: an output is row-major and was just written by its launch.
        let bad = unsafe {
            match out.dtype {
                DType::F32 => std::slice::from_raw_parts(ptr.cast::<f32>(), n).iter().position(|v| !v.is_finite()),
                DType::F16 => std::slice::from_raw_parts(ptr.cast::<half::f16>(), n).iter().position(|v| !v.is_finite()),
                DType::BF16 => std::slice::from_raw_parts(ptr.cast::<half::bf16>(), n).iter().position(|v| !v.is_finite()),
                _ => std::slice::from_raw_parts(ptr.cast::<f64>(), n).iter().position(|v| !v.is_finite()),
            }
        };
        if let Some(at) = bad {
            let node = &program.nodes[launch.node as usize];
            let place = node.place.as_deref().unwrap_or("an unknown line");
            let message = format!(
                "the first NaN or infinity is in element {at} of its output of shape {:?}, called at {place}",
                out.layout.shape
            );
            return Err(Error::Anomaly { op: node.op.name(), message });
        }
    }
    Ok(())
}

/// The pool of a kept value: the outermost live tape's, else the persistent one.
fn owner(program: &Program, kept: &Kept, persistent: PoolId) -> PoolId {
    let marks = &program.nodes[kept.node as usize].marks;
    marks.iter().find(|m| m.is_live()).map_or(persistent, |m| m.tape.pool)
}

/// Makes storages of the kept temporaries and writes the values to their nodes.
fn keep(plan: &Plan, program: &Program, mut memory: Memory) -> Result<()> {
    let mut made: Vec<(u32, Arc<Storage>)> = Vec::new();
    let mut failed: Option<Error> = None;
    for kept in &plan.kept {
        let storage = match kept.loc {
            Loc::Leaf(l) => program.leaves[l as usize].value.storage.clone(),
            Loc::Scalar(_) => return Err(Error::Internal("plan: a number has no memory")),
            Loc::Temp(t) => match made.iter().find(|(m, _)| *m == t) {
                Some((_, storage)) => storage.clone(),
                None => match adopt(plan, program, &mut memory, kept, t) {
                    Ok(storage) => {
                        made.push((t, storage.clone()));
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
    memory.end(plan)?;
    failed.map_or(Ok(()), Err)
}

/// Turns a temporary's buffer into a storage.
fn adopt(plan: &Plan, program: &Program, memory: &mut Memory, kept: &Kept, t: u32) -> Result<Arc<Storage>> {
    let mut pools = cpu_pools().lock();
    let persistent = pools.persistent();
    let pool = owner(program, kept, persistent);
    let handle = match plan.places[t as usize] {
        Place::Leaf(l) => {
            // Written in place: the storage gets a new handle, so that the old version's is stale.
            let old = program.leaves[l as usize].value.storage.handle();
            let (bytes, buffer) = pools.take_back(old)?;
            pools.adopt(pool, bytes, buffer, false)?
        }
        Place::Buffer(b) => {
            let bytes = plan.buffers[b as usize];
            let Some(buffer) = memory.buffers[b as usize].take() else {
                return Err(Error::Internal("plan: a kept buffer is gone"));
            };
            pools.note_dead(persistent, bytes)?;
            pools.adopt(pool, bytes, buffer, false)?
        }
    };
    Ok(Arc::new(Storage::new(handle)))
}
