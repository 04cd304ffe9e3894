//! An open device: its queue, limits, buffers, and what it reported.
use super::adapter::{AdapterInfo, adapters, describe};
use super::cooperative;
use super::launch::Caps;
use super::pipeline::Pipelines;
use super::refusal::{guarded, refusal};
use super::stopwatch::Stopwatch;
use super::ticket::Tickets;
use super::transfer::Writes;
use super::trouble::{Fault, Trouble, strikes};
use super::work::{Work, WorkCounts};
use crate::backend::cpu;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::pool::largest_class;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Display;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use wgpu::{
    Adapter, BufferDescriptor, BufferUsages, Device, DeviceDescriptor, Features, Limits, PollType, Queue, SubmissionIndex,
};

static NEXT_BUFFER: AtomicU64 = AtomicU64::new(1);

/// Device memory. Dropping it frees it, once what was submitted has read it.
#[derive(Debug)]
pub struct Buffer {
    pub(super) raw: ManuallyDrop<wgpu::Buffer>,
    /// A number that no other buffer of the process has.
    pub(super) id: u64,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A forked child leaves its parent's alone: the driver would take it from both.
        if cpu::is_child() {
            return;
        }
        // Cached bind groups still name it; destroying frees its memory all the same.
        self.raw.destroy();
        // SAFETY: dropped here and nowhere else, and not used after that.
        unsafe { ManuallyDrop::drop(&mut self.raw) };
    }
}

/// An open device.
#[derive(Debug)]
pub struct Gpu {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    /// Its name in this library: "gpu", "gpu:1", ...
    pub name: String,
    /// Its adapter.
    pub info: AdapterInfo,
    /// What kernels may use.
    pub caps: Caps,
    pub(super) limits: Limits,
    pub(super) trouble: Arc<Trouble>,
    pub(super) pipelines: Pipelines,
    pub(super) tickets: Tickets,
    pub(super) stopwatch: Stopwatch,
    pub(super) staging: Mutex<Vec<wgpu::Buffer>>,
    pub(super) writes: Mutex<Writes>,
    pub(super) work: Work,
    pub(super) flights: Mutex<VecDeque<SubmissionIndex>>,
}

static OPEN: LazyLock<Vec<Mutex<Option<Arc<Gpu>>>>> = LazyLock::new(|| adapters().iter().map(|_| Mutex::new(None)).collect());

/// Whether any device was ever opened: nothing looks for adapters before.
static IS_ANY_OPEN: AtomicBool = AtomicBool::new(false);

/// The device with this number, opened at the first call.
pub fn gpu(index: usize) -> Result<Arc<Gpu>> {
    let Some(slot) = OPEN.get(index) else {
        return Err(Error::value("device", format!("gpu:{index} was asked for; this machine has {} adapters", OPEN.len())));
    };
    if cpu::is_child() {
        return Err(Error::device(
            "a forked process cannot use the GPU of its parent; start processes with multiprocessing's \"spawn\" method",
        ));
    }
    let mut slot = slot.lock();
    if let Some(gpu) = &*slot {
        return Ok(gpu.clone());
    }
    let gpu = Arc::new(Gpu::open(index)?);
    *slot = Some(gpu.clone());
    IS_ANY_OPEN.store(true, Relaxed);
    Ok(gpu)
}

/// Lets go of the device with this number, so that the next use opens it anew.
pub fn close(index: usize) {
    if cpu::is_child() {
        return;
    }
    if let Some(slot) = OPEN.get(index) {
        *slot.lock() = None;
    }
}

/// Whether the device with this number is open. To a forked child any may be: it is refused whatever it asks of one, and looks at no lock,
/// which another thread of its parent may have had.
pub fn is_open(index: usize) -> bool {
    IS_ANY_OPEN.load(Relaxed) && (cpu::is_child() || OPEN.get(index).is_some_and(|slot| slot.lock().is_some()))
}

/// The device with this number if it is open. A forked child has none.
pub fn opened(index: usize) -> Option<Arc<Gpu>> {
    if !IS_ANY_OPEN.load(Relaxed) || cpu::is_child() {
        return None;
    }
    OPEN.get(index)?.lock().clone()
}

/// Writes the compiled pipelines of every open device to disk.
pub fn save_all() {
    all_open().iter().for_each(|gpu| gpu.save_pipelines());
}

/// Whether an environment variable is set to something else than 0.
pub(super) fn is_on(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|v| !v.is_empty() && v != "0")
}

/// Every open device.
pub(super) fn all_open() -> Vec<Arc<Gpu>> {
    if IS_ANY_OPEN.load(Relaxed) { (0..OPEN.len()).filter_map(opened).collect() } else { Vec::new() }
}

/// What is used of what an adapter has, but for what test switches take away.
fn features(available: Features) -> Features {
    let switches = [
        ("AGTAPE_NO_INT64", Features::SHADER_INT64),
        ("AGTAPE_NO_F16", Features::SHADER_F16),
        ("AGTAPE_NO_SUBGROUPS", Features::SUBGROUP),
        ("AGTAPE_NO_TIMESTAMPS", Features::TIMESTAMP_QUERY),
    ];
    let optional = switches.iter().fold(Features::PIPELINE_CACHE, |all, &(_, feature)| all | feature);
    let mut features = available & (Features::IMMEDIATES | optional);
    if is_on(cooperative::SWITCH) {
        features |= available & Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    }
    for (variable, feature) in switches {
        if is_on(variable) {
            features.remove(feature);
        }
    }
    features
}

/// A connection to an adapter.
fn connected(adapter: &Adapter, name: &str, features: Features, limits: &Limits) -> Result<(Device, Queue)> {
    let refused = |why: &dyn Display| Error::device(format!("{name} could not be opened: {why}"));
    if strikes(Fault::Open) {
        return Err(refused(&"a test"));
    }
    let opened = pollster::block_on(adapter.request_device(&DeviceDescriptor {
        label: Some("agtape"),
        required_features: features,
        required_limits: limits.clone(),
        experimental_features: cooperative::experiments(features),
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        trace: wgpu::Trace::Off,
    }));
    opened.map_err(|error| refused(&error))
}

/// Most bytes of a tensor: what one binding holds, and what a buffer of the tensor's size class may have.
fn max_bytes(limits: &Limits) -> usize {
    let buffer = largest_class(usize::try_from(limits.max_buffer_size).unwrap_or(usize::MAX));
    buffer.min(usize::try_from(limits.max_storage_buffer_binding_size).unwrap_or(usize::MAX)) & !3
}

impl Gpu {
    fn open(index: usize) -> Result<Gpu> {
        let adapter = &adapters()[index];
        let name = if index == 0 { "gpu".to_owned() } else { format!("gpu:{index}") };
        let features = features(adapter.features());
        let mut limits = adapter.limits();
        // Test switches: what an adapter with small bindings or buffers does.
        let most = |variable: &str| std::env::var(variable).ok().and_then(|bytes| bytes.parse().ok()).unwrap_or(u64::MAX);
        limits.max_storage_buffer_binding_size = limits.max_storage_buffer_binding_size.min(most("AGTAPE_MAX_BINDING"));
        limits.max_buffer_size = limits.max_buffer_size.min(most("AGTAPE_MAX_BUFFER"));
        let (device, queue) = connected(adapter, &name, features, &limits)?;
        let trouble = Arc::new(Trouble::default());
        let (noted, lost) = (trouble.clone(), trouble.clone());
        let named = name.clone();
        let heard = move |error: wgpu::Error| noted.note(refusal(&named, "reported outside a call", &error));
        device.on_uncaptured_error(Arc::new(heard));
        device.set_device_lost_callback(move |reason, message| lost.lose(format!("{reason:?} {message}")));
        let info = describe(adapter);
        let raw = adapter.get_info();
        let has_subgroups = features.contains(Features::SUBGROUP);
        let caps = Caps {
            int64: features.contains(Features::SHADER_INT64),
            f16: features.contains(Features::SHADER_F16),
            subgroup: if has_subgroups { (raw.subgroup_min_size, raw.subgroup_max_size) } else { (0, 0) },
            max_bindings: limits.max_storage_buffers_per_shader_stage,
            max_threads: limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x),
            max_groups: limits.max_compute_workgroups_per_dimension,
            max_immediates: limits.max_immediate_size,
            workgroup_bytes: limits.max_compute_workgroup_storage_size,
            max_bytes: max_bytes(&limits),
            is_software: info.is_software,
            fragments: cooperative::fragments(adapter, features),
            block: cooperative::block()?,
        };
        let pipelines = Pipelines::new(&device, &name, &raw, features);
        let tickets = guarded(&device, &name, "no room for the word of refused values", || Tickets::new(&device))?;
        let stopwatch = Stopwatch::new(&queue, features);
        let (staging, writes, work, flights) = Default::default();
        let mut gpu = Gpu {
            device,
            queue,
            name,
            info,
            caps,
            limits,
            trouble,
            pipelines,
            tickets,
            stopwatch,
            staging,
            writes,
            work,
            flights,
        };
        gpu.caps = gpu.proven(index)?;
        Ok(gpu)
    }

    /// Fails if the device is lost or has reported an error since the last look.
    pub fn check(&self) -> Result<()> {
        self.trouble.check(&self.name)
    }

    /// What the device was given to do so far.
    pub fn work_counts(&self) -> WorkCounts {
        self.work.counts()
    }

    /// Refuses element types that no adapter computes with.
    pub fn check_dtype(&self, dtype: DType) -> Result<()> {
        if dtype == DType::F64 {
            let message =
                format!("float64 runs on the CPU only; got a float64 tensor on {}: use float32, or .to(\"cpu\")", self.name);
            return Err(Error::dtype("gpu", message));
        }
        Ok(())
    }

    /// Whether the device is lost.
    pub fn is_lost(&self) -> bool {
        self.trouble.is_lost()
    }

    /// The largest buffer that one kernel can use as a whole, in bytes.
    pub fn max_bytes(&self) -> usize {
        self.caps.max_bytes
    }

    /// The largest buffer that the device makes, in bytes: a multiple of what bindings start at.
    pub fn max_buffer_bytes(&self) -> usize {
        usize::try_from(self.limits.max_buffer_size).unwrap_or(usize::MAX) & !255
    }

    /// Refuses a tensor that no kernel could use as a whole.
    pub fn check_bytes(&self, bytes: usize) -> Result<()> {
        let most = self.max_bytes();
        if bytes <= most {
            return Ok(());
        }
        let message = format!(
            "a tensor of {bytes} bytes is larger than {} can bind at once, {most} bytes: split it, or keep it on the CPU",
            self.name
        );
        Err(Error::Memory { op: "tensor", message })
    }

    /// New memory, or `None` where the device has none left or cannot have so much in one piece.
    pub fn allocate(&self, bytes: usize) -> Option<Buffer> {
        if strikes(Fault::Allocate) || self.is_lost() || bytes as u64 > self.limits.max_buffer_size {
            return None;
        }
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let size = (bytes.max(4) as u64).next_multiple_of(4);
        let raw = self.buffer(&BufferDescriptor { label: None, size, usage, mapped_at_creation: false }).ok()?;
        Some(Buffer { raw: ManuallyDrop::new(raw), id: NEXT_BUFFER.fetch_add(1, Relaxed) })
    }

    /// Bytes that everything on the device has of the driver, and bytes of the blocks in which it lies; `None` where nobody counts.
    pub fn driver_bytes(&self) -> Option<(usize, usize)> {
        let report = self.device.generate_allocator_report()?;
        Some((report.total_allocated_bytes as usize, report.total_reserved_bytes as usize))
    }

    /// Has the device make something, which `what` says in messages.
    pub(super) fn made<T>(&self, what: &str, make: impl FnOnce() -> T) -> Result<T> {
        guarded(&self.device, &self.name, what, make)
    }

    /// A buffer of any kind.
    pub(super) fn buffer(&self, descriptor: &BufferDescriptor) -> Result<wgpu::Buffer> {
        let what = format!("a buffer of {} bytes could not be made", descriptor.size);
        self.made(&what, || self.device.create_buffer(descriptor))
    }

    /// Loses the device, as a driver's reset would.
    pub fn lose(&self) {
        // Other threads that find it destroyed know why.
        self.trouble.lose("destroyed".into());
        self.device.destroy();
        let _ = self.device.poll(PollType::Poll);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn test_g04_an_error_that_nobody_waits_for_is_told_by_the_next_call_once() {
        // A device of its own: on the shared one another test would hear it.
        let gpu = Gpu::open(0).unwrap();
        let descriptor = |size, usage| wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        // Buffers that are mapped to be read may be copied to and nothing else.
        let refused = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::STORAGE;
        for size in [4, 8] {
            drop(gpu.device.create_buffer(&descriptor(size, refused)));
        }
        let error = gpu.check().unwrap_err().to_string();
        assert!(error.contains("gpu: reported outside a call: ") && error.contains("MAP_READ"), "{error}");
        gpu.check().unwrap();
        let buffer = gpu.allocate(16).unwrap();
        gpu.write(&buffer, 0, &[7; 16]).unwrap();
        gpu.synchronize().unwrap();
    }

    #[test]
    fn test_g03_all_limits_of_the_adapter_are_asked_for_and_no_feature_but_immediates_is_needed() {
        let gpu = Gpu::open(0).unwrap();
        assert_eq!(gpu.device.limits(), adapters()[0].limits());
        assert_eq!(features(Features::IMMEDIATES), Features::IMMEDIATES);
        assert!(!gpu.device.features().contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX));
    }
}
