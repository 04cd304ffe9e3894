//! Running prepared launches: dispatches are recorded as data, then encoded into one compute pass and submitted.
use super::device::{Buffer, Gpu};
use super::launch::{Dispatch, Slot, Word};
use super::pipeline::{GroupKey, Pipeline};
use super::ready::{Bound, Ready, ReadyDispatch};
use super::stopwatch::Watch;
use super::trouble::{Fault, strikes, workgroups};
use crate::backend::clock::{Duty, Laps, OnDuty};
use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindingResource, BufferBinding, CommandBuffer, CommandEncoder,
    ComputePassDescriptor,
};

/// Where bindings may start: every adapter allows multiples of this.
const ALIGN: usize = 256;
/// Dispatches after which what was recorded is submitted, so that the device starts while the rest is recorded.
const BATCH: usize = 256;

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

impl<'a> Operands<'a> {
    fn place(&self, slot: Slot) -> Result<&'a Place<'a>> {
        let place = match slot {
            Slot::In(i) => self.ins.get(i),
            Slot::Out(o) => self.outs.get(o),
            Slot::Scratch(s) => self.scratch.get(s),
            Slot::Table | Slot::Flag => None,
        };
        place.ok_or(Error::Internal("gpu: an operand is missing"))
    }
}

struct Command {
    pipeline: Arc<Pipeline>,
    group: BindGroup,
    words: (u32, u32),
    groups: [u32; 3],
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

    /// Whether shaders check every index and division.
    pub fn is_checked(&self) -> bool {
        self.pipelines.is_checked
    }

    /// The shaders that the device has compiled, by name.
    pub fn kernels(&self) -> BTreeSet<&'static str> {
        self.pipelines.names()
    }

    /// Writes compiled pipelines to disk, where the adapter supports it.
    pub fn save_pipelines(&self) {
        self.pipelines.save();
    }
}

/// A binding as it is in this run.
#[derive(Clone, Copy)]
struct Binding<'a> {
    raw: &'a wgpu::Buffer,
    id: u64,
    start: u64,
    is_aligned: bool,
}

impl<'a> Binding<'a> {
    fn new(gpu: &'a Gpu, step: &'a ReadyDispatch, operands: &Operands<'a>, slot: Slot) -> Result<Self> {
        Ok(match slot {
            Slot::Flag => Binding { raw: &gpu.tickets.flag, id: 0, start: 0, is_aligned: true },
            Slot::Table => match &step.table {
                Some(table) => Binding { raw: &table.raw, id: table.id, start: 0, is_aligned: true },
                None => return Err(Error::Internal("gpu: a table is missing")),
            },
            other => {
                let p = operands.place(other)?;
                Binding { raw: &p.buffer.raw, id: p.buffer.id, start: p.start() as u64, is_aligned: p.is_aligned() }
            }
        })
    }
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
        let Dispatch { source, unaligned, slots, groups, .. } = &step.dispatch;
        let mut bindings: SmallVec<[Binding; 8]> = SmallVec::new();
        for &slot in slots {
            bindings.push(Binding::new(self.gpu, step, operands, slot)?);
        }
        let is_aligned = step.wide.iter().all(|&b| bindings[b].is_aligned);
        let source = unaligned.as_deref().filter(|_| !is_aligned).unwrap_or(source);
        let is_shared = step.pairs.iter().any(|&(read, written)| bindings[read].id == bindings[written].id);
        let cell = &step.pipelines[usize::from(is_shared) + if is_aligned { 0 } else { 2 }];
        let pipeline = match cell.get() {
            Some(pipeline) => pipeline.clone(),
            None => {
                let made = self.gpu.pipelines.get((&self.gpu.device, &self.gpu.name), source, is_shared)?;
                cell.get_or_init(|| made).clone()
            }
        };
        let first = self.words.len();
        self.words.extend_from_slice(&step.numbers);
        for &(nth, word) in &step.changing {
            self.words[first + nth] = self.number(word, operands)?;
        }
        self.has_tickets |= step.has_tickets;
        let group = self.bind(&pipeline, step, &bindings)?;
        if let Some(watch) = &mut self.watch {
            watch.dispatch(source.name, self.commands.len());
        }
        let groups = workgroups(source.name, *groups);
        self.commands.push(Command { pipeline, group, words: (first as u32, self.words.len() as u32), groups });
        Ok(())
    }

    fn number(&self, word: Word, operands: &Operands) -> Result<u32> {
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
                let p = operands.place(slot)?;
                ((p.base - p.start() + p.offset) / bytes) as u32
            }
        })
    }

    fn bind(&self, pipeline: &Pipeline, step: &ReadyDispatch, bindings: &[Binding]) -> Result<BindGroup> {
        let mut last = step.last.lock();
        let places = || bindings.iter().map(|b| (b.id, b.start));
        let is_same = |known: &&Bound| known.pipeline == pipeline.id && known.places.iter().copied().eq(places());
        if let Some(known) = last.as_ref().filter(is_same) {
            return Ok(known.group.clone());
        }
        let mut key = GroupKey::new();
        key.push(u64::from(pipeline.id));
        bindings.iter().for_each(|b| key.extend([b.id, b.start, self.size(b.raw, b.start)]));
        let group = self.gpu.pipelines.group(&key, || {
            let mut entries: SmallVec<[BindGroupEntry; 8]> = SmallVec::new();
            for (b, binding) in bindings.iter().zip(0..) {
                let size = NonZeroU64::new(self.size(b.raw, b.start));
                let resource = BindingResource::Buffer(BufferBinding { buffer: b.raw, offset: b.start, size });
                entries.push(BindGroupEntry { binding, resource });
            }
            let descriptor = BindGroupDescriptor { label: None, layout: &pipeline.layout, entries: &entries };
            self.gpu.made("a kernel's tensors could not be bound", || self.gpu.device.create_bind_group(&descriptor))
        })?;
        // What was kept goes first: it makes room for this one.
        *last = None;
        *last = Bound::new(pipeline.id, places(), &group);
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
        self.hand_over(self.encoded(|encoder| self.encode(encoder, &Default::default(), 0..self.commands.len()))?)
    }

    /// The commands that are given to an encoder. What it refuses is found here.
    pub(super) fn encoded(&self, give: impl FnOnce(&mut CommandEncoder)) -> Result<CommandBuffer> {
        let _duty = OnDuty::begin(Duty::Encode);
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        give(&mut encoder);
        self.gpu.made("commands could not be encoded", || encoder.finish())
    }

    pub(super) fn hand_over(&self, commands: CommandBuffer) -> Result<()> {
        if self.is_whole { self.gpu.submit_once(commands) } else { self.gpu.submit(commands).map(|_| ()) }
    }

    /// How many dispatches are recorded.
    pub(super) fn command_count(&self) -> usize {
        self.commands.len()
    }

    /// Encodes some of what was recorded as one pass: nothing else begins any.
    pub(super) fn encode(&self, encoder: &mut CommandEncoder, pass: &ComputePassDescriptor, range: Range<usize>) {
        self.gpu.work.note_pass(range.len());
        let mut pass = encoder.begin_compute_pass(pass);
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
