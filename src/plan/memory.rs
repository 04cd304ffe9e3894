//! The memory of one run: where its leaves and buffers are, and how many bytes of it live from launch to launch.
use super::program::Program;
use super::{Loc, Operand, Place, Plan, Step};
use crate::backend::{cpu, gpu};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::{Buffer, DevicePools, describe, pools};
use crate::pool::{ScopeId, WholeId};
use std::sync::Arc;

/// Units of work of the average launch from which telling the pools at every launch costs nothing that could be measured.
const STEPWISE_WORK: u64 = 1 << 16;

/// Where a leaf is.
enum LeafPlace {
    /// Its first element in the host's memory.
    Host(*mut u8),
    /// Its storage in an adapter's, and the bytes from there to its first element.
    Gpu(Arc<gpu::Buffer>, usize),
}

/// Where each leaf and each of the plan's buffers is, those that temporaries share last.
pub(super) struct Memory {
    device: Device,
    leaves: Vec<LeafPlace>,
    pub buffers: Vec<Option<Buffer>>,
    /// Those that have parts now.
    wholes: Vec<(u32, WholeId)>,
}

// SAFETY: a run has its buffers to itself and shares leaves for reading; the plan orders its launches one after the other.
unsafe impl Sync for Memory {}

impl Memory {
    /// Checks every leaf's handle and takes every buffer, before the first kernel.
    pub fn new(plan: &Plan, program: &Program, is_observed: bool, room: Option<usize>) -> Result<(Memory, Live)> {
        let device = program.device;
        if let Some(index) = device.gpu_index() {
            gpu::gpu(index)?.check()?;
        }
        let mut pools = pools(device).lock();
        let mut leaves = Vec::with_capacity(program.leaves.len());
        for leaf in &program.leaves {
            let offset = leaf.value.layout.offset * leaf.dtype.size_bytes();
            leaves.push(match device.is_cpu() {
                // SAFETY: the value's offset lies inside its storage.
                true => LeafPlace::Host(unsafe { leaf.value.storage.ptr(&pools)?.add(offset) }),
                false => LeafPlace::Gpu(leaf.value.storage.gpu(&pools)?, offset),
            });
        }
        let mut memory = Memory { device, leaves, buffers: Vec::new(), wholes: Vec::new() };
        let taken = pools.within(room, |pools| memory.take(pools, plan));
        if let Err(error) = taken {
            memory.give_back(&mut pools, plan);
            return Err(error);
        }
        let is_stepwise = is_observed || plan.work >= STEPWISE_WORK * plan.launches.len() as u64;
        let (before, scope) = (pools.stats().active, pools.open_peak_scope());
        Ok((memory, Live { device, before, scope, is_stepwise, bytes: 0, peak: 0, ended: 0 }))
    }

    fn take(&mut self, pools: &mut DevicePools, plan: &Plan) -> Result<()> {
        self.buffers.reserve(plan.buffers.len() + 1);
        for &bytes in &plan.buffers {
            let buffer = pools.take_buffer(bytes);
            self.buffers.push(Some(buffer.map_err(|error| describe(pools, error, "evaluation"))?));
        }
        for bytes in plan.pages() {
            let page = pools.take_exact(bytes);
            self.buffers.push(Some(page.map_err(|error| describe(pools, error, "evaluation"))?));
        }
        Ok(())
    }

    /// Where an operand begins on the host.
    pub fn ptr(&self, plan: &Plan, operand: &Operand) -> Result<*mut u8> {
        let base = match self.home(plan, operand)? {
            Home::Leaf(l) => match &self.leaves[l as usize] {
                LeafPlace::Host(ptr) => *ptr,
                LeafPlace::Gpu(..) => return Err(Error::Internal("plan: a leaf on another device")),
            },
            // SAFETY: what lies at an offset ends inside the buffer; `place_tightly` saw to it.
            Home::Buffer(buffer, offset) => unsafe { buffer.ptr()?.add(offset) },
        };
        // SAFETY: layouts were derived from the operand's storage when the plan was made, so the offset lies inside it.
        Ok(unsafe { base.add(operand.layout.offset * operand.dtype.size_bytes()) })
    }

    /// Where an operand begins on an adapter.
    pub fn place(&self, plan: &Plan, operand: &Operand) -> Result<gpu::Place<'_>> {
        let own = operand.layout.offset * operand.dtype.size_bytes();
        Ok(match self.home(plan, operand)? {
            Home::Leaf(l) => match &self.leaves[l as usize] {
                LeafPlace::Gpu(buffer, offset) => gpu::Place { buffer, base: 0, offset: offset + own },
                LeafPlace::Host(_) => return Err(Error::Internal("plan: a leaf on another device")),
            },
            Home::Buffer(buffer, base) => gpu::Place { buffer: buffer.gpu()?, base, offset: own },
        })
    }

    fn home(&self, plan: &Plan, operand: &Operand) -> Result<Home<'_>> {
        Ok(match operand.loc {
            Loc::Leaf(l) => Home::Leaf(l),
            Loc::Temp(t) => match plan.places[t as usize] {
                Place::Leaf(l) => Home::Leaf(l),
                Place::Arena(offset) => {
                    let page = self.buffer((plan.buffers.len() + offset / plan.page) as u32)?;
                    Home::Buffer(page, offset % plan.page)
                }
                Place::Buffer(b) => Home::Buffer(self.buffer(b)?, 0),
                Place::Lent { buffer, offset } | Place::Part { buffer, offset, .. } => Home::Buffer(self.buffer(buffer)?, offset),
            },
            Loc::Scalar(_) => return Err(Error::Internal("plan: a number has no memory")),
        })
    }

    fn buffer(&self, at: u32) -> Result<&Buffer> {
        self.buffers.get(at as usize).and_then(Option::as_ref).ok_or(Error::Internal("plan: a buffer is gone"))
    }

    /// A part of a buffer, for a storage of its own. What else lay in it is there no more.
    pub fn part(&mut self, pools: &mut DevicePools, plan: &Plan, at: u32, offset: usize, bytes: usize) -> Result<Buffer> {
        let whole = match self.wholes.iter().find(|&&(buffer, _)| buffer == at) {
            Some(&(_, whole)) => whole,
            None => {
                let buffer = self.buffers.get_mut(at as usize).and_then(Option::take);
                let buffer = buffer.ok_or(Error::Internal("plan: a buffer is gone"))?;
                let common = (at as usize).checked_sub(plan.buffers.len());
                let all = common.map_or_else(|| plan.buffers.get(at as usize).copied(), |page| plan.pages().nth(page));
                let whole = pools.begin_parting(all.unwrap_or(0), common.is_some(), buffer);
                self.wholes.push((at, whole));
                whole
            }
        };
        pools.begin_part(whole, offset, bytes).ok_or(Error::Internal("plan: a part beyond its buffer"))
    }

    /// An operand as a CPU kernel sees it.
    pub fn view<'a>(&self, plan: &Plan, operand: &'a Operand) -> Result<cpu::View<'a>> {
        Ok(cpu::View {
            ptr: self.ptr(plan, operand)?,
            dtype: operand.dtype,
            shape: &operand.layout.shape,
            strides: &operand.layout.strides,
        })
    }

    /// Gives back what was not kept.
    pub fn end(self, plan: &Plan) {
        let pools = pools(self.device);
        self.give_back(&mut pools.lock(), plan);
    }

    fn give_back(self, pools: &mut DevicePools, plan: &Plan) {
        let own = plan.buffers.iter().map(|&bytes| (bytes, false));
        for (buffer, (bytes, is_exact)) in self.buffers.into_iter().zip(own.chain(plan.pages().map(|bytes| (bytes, true)))) {
            match buffer {
                Some(page) if is_exact => pools.give_exact(bytes, page),
                Some(buffer) => pools.give_buffer(bytes, buffer),
                None => {}
            }
        }
        pools.end_parting(self.wholes.into_iter().map(|(_, whole)| whole));
    }
}

/// What holds an operand.
enum Home<'a> {
    Leaf(u32),
    Buffer(&'a Buffer, usize),
}

/// The running sum of one run, and what the pools have been told of it: launch by launch where launches are long or somebody looks, else
/// all at once afterwards, which gives the same peaks.
pub(super) struct Live {
    device: Device,
    /// What was active before.
    pub before: usize,
    scope: ScopeId,
    is_stepwise: bool,
    /// Bytes alive, of the run's own.
    bytes: usize,
    peak: usize,
    /// Bytes that ended and that the pools count still.
    ended: usize,
}

impl Live {
    /// A launch begins: what it makes is alive. Gives what is active now where the pools are told of every launch.
    pub fn begin(&mut self, step: Step) -> Result<usize> {
        self.bytes += step.born;
        self.peak = self.peak.max(self.bytes);
        if !self.is_stepwise {
            return Ok(self.before + self.bytes);
        }
        let mut pools = pools(self.device).lock();
        let pool = pools.persistent();
        pools.note_dead(pool, std::mem::take(&mut self.ended))?;
        pools.note_born(pool, step.born)?;
        Ok(pools.stats().active)
    }

    /// A launch has ended, and what it read last with it.
    pub fn end(&mut self, step: Step) {
        self.bytes -= step.dead;
        self.ended += step.dead;
    }

    /// A temporary becomes a storage, which counts for itself: the pools take it off here.
    pub fn adopt(&mut self, pools: &mut DevicePools, bytes: usize) -> Result<()> {
        self.bytes -= bytes;
        Ok(pools.note_dead(pools.persistent(), bytes)?)
    }

    /// After the last launch: the pools count what is alive, and have seen the peak.
    pub fn settle(&mut self) -> Result<()> {
        let mut pools = pools(self.device).lock();
        let pool = pools.persistent();
        if !self.is_stepwise {
            pools.note_born(pool, self.peak)?;
            self.ended = self.peak - self.bytes;
            self.is_stepwise = true;
        }
        Ok(pools.note_dead(pool, std::mem::take(&mut self.ended))?)
    }

    /// After the run: nothing of it counts any more. Gives the highest `active` that the pools had meanwhile.
    pub fn close(mut self) -> Result<usize> {
        self.ended += std::mem::take(&mut self.bytes);
        self.settle()?;
        Ok(pools(self.device).lock().close_peak_scope(self.scope))
    }
}
