//! Running prepared launches: dispatches are recorded as data, then encoded into one compute pass and submitted.
use super::device::{Buffer, Gpu};
use super::launch::{Dispatch, Prepared, Slot, Word};
use super::pipeline::{GroupKey, Pipeline};
use super::stopwatch::Watch;
use super::trouble::{Fault, strikes};
use crate::backend::clock::Laps;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use wgpu::{BindGroup, BindGroupDescriptor, BindGroupEntry, BindingResource, BufferBinding, ComputePass};

/// Where bindings may start: every adapter allows multiples of this.
const ALIGN: usize = 256;
/// Dispatches after which what was recorded is submitted, so that the device starts while the rest is recorded.
const BATCH: usize = 256;

/// A launch with its pipelines, ready to run many times on one device.
#[derive(Debug)]
pub struct Ready {
    dispatches: Vec<ReadyDispatch>,
    /// Bytes of each scratch buffer.
    pub scratch: Vec<usize>,
}

#[derive(Debug)]
struct ReadyDispatch {
    dispatch: Dispatch,
    /// Without and with one buffer both read and written, then the same of the shader for unaligned tensors; compiled when first needed.
    pipelines: [OnceLock<Arc<Pipeline>>; 4],
    /// What was bound the last time: a plan that runs again mostly finds its buffers where they were.
    last: Mutex<Option<(GroupKey, BindGroup)>>,
    table: Option<Buffer>,
}

/// Where a tensor of a launch lies.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// Where the storage begins in it, in bytes.
    pub base: usize,
    /// Where the first element lies from there, in bytes.
    pub offset: usize,
}

impl Place<'_> {
    /// Where the binding starts.
    fn start(&self) -> usize {
        self.base & !(ALIGN - 1)
    }

    /// Whether the first element lies at a multiple of 16 bytes from where the binding starts.
    fn is_aligned(&self) -> bool {
        (self.base - self.start() + self.offset).is_multiple_of(16)
    }

    fn is_same(&self, other: &Place) -> bool {
        self.buffer.id == other.buffer.id && self.base + self.offset == other.base + other.offset
    }
}

/// The tensors of one launch.
pub struct Operands<'a> {
    /// Inputs.
    pub ins: &'a [Place<'a>],
    /// Outputs.
    pub outs: &'a [Place<'a>],
    /// Scratch.
    pub scratch: &'a [Place<'a>],
    /// The launch's args.
    pub args: &'a [u64],
    /// The op, for messages.
    pub op: &'static str,
    /// The line that called it.
    pub at: Option<&'a str>,
}

struct Command {
    pipeline: Arc<Pipeline>,
    group: BindGroup,
    words: (u32, u32),
    groups: [u32; 3],
}

impl Ready {
    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.dispatches.is_empty()
    }
}

/// Dispatches that have not been submitted yet.
pub struct Recording<'a> {
    pub(super) gpu: &'a Gpu,
    /// Everything goes in one submission, and is done once or not at all.
    pub(super) is_whole: bool,
    /// Some launch may refuse a value.
    has_tickets: bool,
    commands: Vec<Command>,
    words: Vec<u32>,
    /// Somebody wants to know how long each launch takes.
    watch: Option<Watch>,
}

impl Gpu {
    /// Makes a prepared launch ready: its tables are uploaded, its pipelines compiled when they are first needed.
    pub fn ready(&self, prepared: Prepared) -> Result<Ready> {
        let mut dispatches = Vec::with_capacity(prepared.dispatches.len());
        for dispatch in prepared.dispatches {
            let sizes = (dispatch.source.bindings.len(), dispatch.source.words.len());
            if sizes != (dispatch.slots.len(), dispatch.words.len()) || sizes.1 * 4 > self.caps.max_immediates as usize {
                return Err(Error::Internal("gpu: a dispatch does not give what its shader declares"));
            }
            let table = match dispatch.table.is_empty() {
                true => None,
                false => {
                    let bytes: &[u8] = bytemuck::cast_slice(&dispatch.table);
                    let no_memory = || Error::Memory { op: "gpu", message: "no memory for a kernel's table of sizes".into() };
                    let buffer = self.allocate(bytes.len()).ok_or_else(no_memory)?;
                    self.write(&buffer, 0, bytes)?;
                    Some(buffer)
                }
            };
            dispatches.push(ReadyDispatch { dispatch, pipelines: Default::default(), last: Mutex::default(), table });
        }
        Ok(Ready { dispatches, scratch: prepared.scratch })
    }

    /// Begins to record. `is_whole` says that nothing is submitted before all is recorded; `laps` hears how long launches take.
    pub fn record(&self, is_whole: bool, laps: Option<Arc<Laps>>) -> Result<Recording<'_>> {
        self.check()?;
        let watch = laps.map(Watch::new);
        Ok(Recording { gpu: self, is_whole, has_tickets: false, commands: Vec::new(), words: Vec::new(), watch })
    }

    /// How many pipelines the device has compiled.
    pub fn pipeline_count(&self) -> usize {
        self.pipelines.count()
    }

    /// Writes compiled pipelines to disk, where the adapter supports it.
    pub fn save_pipelines(&self) {
        self.pipelines.save();
    }
}

/// What a slot of a dispatch is: a buffer, its number, and where the binding starts.
fn bound<'a, 'p: 'a>(
    gpu: &'a Gpu,
    step: &'a ReadyDispatch,
    place: &impl Fn(Slot) -> Option<Place<'p>>,
    slot: Slot,
) -> Result<(&'a wgpu::Buffer, u64, u64)> {
    Ok(match slot {
        Slot::Flag => (&gpu.tickets.flag, 0, 0),
        Slot::Table => match &step.table {
            Some(table) => (&table.raw, table.id, 0),
            None => return Err(Error::Internal("gpu: a table is missing")),
        },
        other => match place(other) {
            Some(p) => (&p.buffer.raw, p.buffer.id, p.start() as u64),
            None => return Err(Error::Internal("gpu: an operand is missing")),
        },
    })
}

impl Recording<'_> {
    /// Says which launch of its plan the next one is.
    pub fn begin(&mut self, launch: u32) {
        if let Some(watch) = &mut self.watch {
            watch.begin(launch, self.commands.len());
        }
    }

    /// Adds a launch.
    pub fn launch(&mut self, ready: &Ready, operands: &Operands) -> Result<()> {
        for step in &ready.dispatches {
            let skips = step.dispatch.unless_in_place.is_some_and(|(o, i)| operands.outs[o].is_same(&operands.ins[i]));
            if !skips {
                self.dispatch(step, operands)?;
            }
        }
        if self.commands.len() >= BATCH && !self.is_whole { self.submit() } else { Ok(()) }
    }

    fn dispatch(&mut self, step: &ReadyDispatch, operands: &Operands) -> Result<()> {
        let Dispatch { source, unaligned, slots, words, groups, .. } = &step.dispatch;
        let place = |slot: Slot| match slot {
            Slot::In(i) => operands.ins.get(i).copied(),
            Slot::Out(o) => operands.outs.get(o).copied(),
            Slot::Scratch(s) => operands.scratch.get(s).copied(),
            Slot::Table | Slot::Flag => None,
        };
        let mut wide = source.bindings.iter().zip(slots).filter(|(b, _)| b.elem.is_wide());
        let is_aligned = unaligned.is_none() || wide.all(|(_, &slot)| place(slot).is_none_or(|p| p.is_aligned()));
        let source = unaligned.as_deref().filter(|_| !is_aligned).unwrap_or(source);
        let written = |id: u64| {
            let writes = source.bindings.iter().zip(slots).filter(|(b, _)| b.writes);
            writes.filter_map(|(_, &slot)| place(slot)).any(|p| p.buffer.id == id)
        };
        let reads = source.bindings.iter().zip(slots).filter(|(b, _)| !b.writes);
        let is_shared = reads.filter_map(|(_, &slot)| place(slot)).any(|p| written(p.buffer.id));
        let cell = &step.pipelines[usize::from(is_shared) + if is_aligned { 0 } else { 2 }];
        let pipeline = match cell.get() {
            Some(pipeline) => pipeline.clone(),
            None => {
                let made = self.gpu.pipelines.get((&self.gpu.device, &self.gpu.name), source, is_shared)?;
                cell.get_or_init(|| made).clone()
            }
        };
        let first = self.words.len() as u32;
        for &word in words {
            self.has_tickets |= word == Word::Ticket;
            self.words.push(self.number(word, &place, operands)?);
        }
        let group = self.bind(&pipeline, step, &place)?;
        self.commands.push(Command { pipeline, group, words: (first, self.words.len() as u32), groups: *groups });
        Ok(())
    }

    fn number<'p>(&self, word: Word, place: &impl Fn(Slot) -> Option<Place<'p>>, operands: &Operands) -> Result<u32> {
        let arg = |a: u16| operands.args.get(a as usize).copied().ok_or(Error::Internal("gpu: an arg is missing"));
        Ok(match word {
            Word::Fixed(number) => number,
            Word::Float(a) => (f64::from_bits(arg(a)?) as f32).to_bits(),
            Word::FloatOr(a, without) => arg(a).map_or(without, |bits| (f64::from_bits(bits) as f32).to_bits()),
            Word::Low(a) => arg(a)? as u32,
            Word::High(a) => (arg(a)? >> 32) as u32,
            Word::Derived(number) => number.of(operands.args),
            Word::Ticket => self.gpu.tickets.give(operands.op, operands.at),
            Word::Offset(slot, bytes) => {
                let p = place(slot).ok_or(Error::Internal("gpu: an operand is missing"))?;
                ((p.base - p.start() + p.offset) / bytes) as u32
            }
        })
    }

    fn bind<'p>(
        &self,
        pipeline: &Pipeline,
        step: &ReadyDispatch,
        place: &impl Fn(Slot) -> Option<Place<'p>>,
    ) -> Result<BindGroup> {
        let mut key = GroupKey::new();
        key.push(u64::from(pipeline.id));
        for &slot in &step.dispatch.slots {
            let (raw, id, start) = bound(self.gpu, step, place, slot)?;
            key.extend([id, start, self.size(raw, start)]);
        }
        let mut last = step.last.lock();
        if let Some((_, group)) = last.as_ref().filter(|(known, _)| *known == key) {
            return Ok(group.clone());
        }
        let group = self.gpu.pipelines.group(&key, || {
            let mut entries: SmallVec<[BindGroupEntry; 8]> = SmallVec::new();
            for (&slot, binding) in step.dispatch.slots.iter().zip(0..) {
                let (buffer, _, offset) = bound(self.gpu, step, place, slot)?;
                let size = NonZeroU64::new(self.size(buffer, offset));
                entries
                    .push(BindGroupEntry { binding, resource: BindingResource::Buffer(BufferBinding { buffer, offset, size }) });
            }
            let descriptor = BindGroupDescriptor { label: None, layout: &pipeline.layout, entries: &entries };
            self.gpu.made("a kernel's tensors could not be bound", || self.gpu.device.create_bind_group(&descriptor))
        })?;
        *last = Some((key, group.clone()));
        Ok(group)
    }

    /// Bytes from a binding's start to the end of its buffer, as many as one binding holds.
    fn size(&self, raw: &wgpu::Buffer, start: u64) -> u64 {
        (raw.size() - start).min(self.gpu.max_bytes() as u64)
    }

    /// Hands what was recorded to the device, which does it after all that came before.
    pub fn submit(&mut self) -> Result<()> {
        if self.commands.is_empty() {
            self.watch = self.watch.take().map(Watch::skip);
            return Ok(());
        }
        let submitted = match self.watch.take() {
            None => self.submit_at_once(),
            Some(watch) => {
                let submitted = self.submit_watched(&watch);
                self.watch = Some(watch.rest());
                submitted
            }
        };
        self.commands.clear();
        self.words.clear();
        if std::mem::take(&mut self.has_tickets) {
            self.gpu.tickets.mark_unseen();
        }
        submitted
    }

    pub(super) fn submit_at_once(&self) -> Result<()> {
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        self.encode(&mut encoder.begin_compute_pass(&Default::default()), 0..self.commands.len());
        self.hand_over(self.finished(encoder)?)
    }

    /// The commands of an encoder. What it refuses is found here.
    pub(super) fn finished(&self, encoder: wgpu::CommandEncoder) -> Result<wgpu::CommandBuffer> {
        self.gpu.made("commands could not be encoded", || encoder.finish())
    }

    pub(super) fn hand_over(&self, commands: wgpu::CommandBuffer) -> Result<()> {
        if self.is_whole { self.gpu.submit_once(commands) } else { self.gpu.submit(commands).map(|_| ()) }
    }

    /// How many dispatches are recorded.
    pub(super) fn command_count(&self) -> usize {
        self.commands.len()
    }

    /// Encodes some of what was recorded.
    pub(super) fn encode(&self, pass: &mut ComputePass, range: Range<usize>) {
        let mut bound = 0;
        for command in &self.commands[range] {
            if bound != command.pipeline.id {
                bound = command.pipeline.id;
                pass.set_pipeline(&command.pipeline.raw);
            }
            pass.set_bind_group(0, &command.group, &[]);
            let (from, to) = command.words;
            if to > from {
                pass.set_immediates(0, bytemuck::cast_slice(&self.words[from as usize..to as usize]));
            }
            let [x, y, z] = command.groups;
            pass.dispatch_workgroups(x, y, z);
            if strikes(Fault::Encode) {
                pass.dispatch_workgroups(u32::MAX, 1, 1);
            }
        }
    }
}
