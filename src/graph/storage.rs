//! Storages: checked handles into the pools of a device that give their memory back when the last value goes.
use super::budget::admit;
use super::node::Spec;
use crate::backend::gpu;
use crate::device::{Device, MAX_GPUS};
use crate::error::{Error, Result};
use crate::pool::{Allocator, Handle, PoolError, PoolId, Pools, Returned};
use memmap2::MmapMut;
use parking_lot::Mutex;
use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock};

/// Cache lines and vector registers want this alignment.
const ALIGN: usize = 64;
/// Bytes from which memory is the system's own pages: an allocator may keep what is given back to it.
const MAPPED_BYTES: usize = 1 << 20;

/// What a storage holds, for messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The op that made it.
    pub op: &'static str,
    /// Shape and dtype.
    pub spec: Spec,
    /// The line that called the op, where lines are recorded.
    pub place: Option<Box<str>>,
}

/// Holders that a message names at most.
const MAX_HOLDERS: usize = 5;

/// Memory of a device.
#[derive(Debug)]
enum Memory {
    /// Of the host, aligned for vector loads and freed when dropped, or borrowed.
    Host { ptr: NonNull<u8>, origin: Origin },
    /// Of an adapter. A running plan holds it too.
    Gpu(Arc<gpu::Buffer>),
    /// A part of a larger buffer of the host.
    Part { ptr: NonNull<u8>, whole: Arc<Whole> },
}

/// A buffer of the host that others are parts of.
#[derive(Debug)]
struct Whole {
    bytes: usize,
    /// There until the last part ends.
    buffer: Option<Buffer>,
}

/// Where memory of the host comes from.
#[derive(Debug)]
enum Origin {
    Allocator(Layout),
    System(MmapMut),
    /// Somebody else's memory, which stays theirs.
    Borrowed,
}

impl Origin {
    /// Bytes that were taken of the host.
    fn taken(&self) -> usize {
        match self {
            Origin::Allocator(layout) => layout.size(),
            Origin::System(map) => map.len(),
            Origin::Borrowed => 0,
        }
    }
}

/// A piece of memory of a device.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    /// Of the storage that has the buffer; a free buffer keeps its last one.
    label: Option<Box<Label>>,
}

// SAFETY: a buffer owns its memory; who may touch it when is for the plan that holds it.
unsafe impl Send for Buffer {}
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The first byte of host memory.
    pub fn ptr(&self) -> Result<*mut u8> {
        match &self.memory {
            Memory::Host { ptr, .. } | Memory::Part { ptr, .. } => Ok(ptr.as_ptr()),
            Memory::Gpu(_) => Err(Error::Internal("the host was to read a device's memory")),
        }
    }

    /// An adapter's buffer.
    pub fn gpu(&self) -> Result<&Arc<gpu::Buffer>> {
        match &self.memory {
            Memory::Gpu(buffer) => Ok(buffer),
            Memory::Host { .. } | Memory::Part { .. } => Err(Error::Internal("an adapter was to read the host's memory")),
        }
    }

    /// Whether it is a part of a larger one.
    pub fn is_part(&self) -> bool {
        matches!(self.memory, Memory::Part { .. })
    }

    /// The first part of what was a buffer of so many bytes.
    pub fn into_part(self, bytes: usize) -> Result<Buffer> {
        let ptr = NonNull::new(self.ptr()?).ok_or(Error::Internal("a buffer without memory"))?;
        Ok(Buffer { memory: Memory::Part { ptr, whole: Arc::new(Whole { bytes, buffer: Some(self) }) }, label: None })
    }

    /// The part that begins so many bytes into the buffer of which this one is the first.
    pub fn part_at(&self, offset: usize) -> Result<Buffer> {
        match &self.memory {
            Memory::Part { ptr, whole } if offset < whole.bytes => {
                // SAFETY: the buffer has `bytes` bytes from `ptr` on, and the offset lies among them.
                let ptr = unsafe { ptr.add(offset) };
                Ok(Buffer { memory: Memory::Part { ptr, whole: whole.clone() }, label: None })
            }
            _ => Err(Error::Internal("a part beyond its buffer")),
        }
    }

    /// Says what it holds from now on.
    pub fn set_label(&mut self, op: &'static str, spec: &Spec, place: Option<&str>) {
        let place = place.map(Box::from);
        match &mut self.label {
            // The box is used again: most buffers hold the like of what they held a step ago.
            Some(label) => {
                (label.op, label.place) = (op, place);
                if label.spec != *spec {
                    label.spec.clone_from(spec);
                }
            }
            None => self.label = Some(Box::new(Label { op, spec: spec.clone(), place })),
        }
    }

    /// What it holds, as far as known.
    pub fn label(&self) -> Option<&Label> {
        self.label.as_deref()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Memory::Host { ptr, origin } = &self.memory {
            TAKEN.fetch_sub(origin.taken(), Relaxed);
            match origin {
                // SAFETY: allocated with this layout in `from_host` and freed nowhere else.
                Origin::Allocator(layout) => unsafe { dealloc(ptr.as_ptr(), *layout) },
                Origin::System(map) => _ = MAPPED.fetch_sub(map.len(), Relaxed),
                Origin::Borrowed => {}
            }
        }
    }
}

/// Bytes that buffers have of the host now.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Those of them that no allocator knows.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of buffers that are the system's own pages.
pub fn mapped_bytes() -> usize {
    MAPPED.load(Relaxed)
}

/// The most they may have; `usize::MAX` for what the machine has.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Sets the most bytes that buffers may have together, `None` for what the machine has, and returns what was set before.
pub fn set_memory_limit(bytes: Option<usize>) -> Option<usize> {
    let old = LIMIT.swap(bytes.unwrap_or(usize::MAX), Relaxed);
    (old != usize::MAX).then_some(old)
}

/// Bytes of memory and swap of this machine, where it says so. Some systems grant any request and end the process that uses it.
static MACHINE: LazyLock<usize> = LazyLock::new(|| {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |name: &str| {
        let line = text.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<usize>().ok()
    };
    kib("MemTotal:").map_or(usize::MAX, |memory| memory.saturating_add(kib("SwapTotal:").unwrap_or(0)).saturating_mul(1024))
});

fn host_memory(bytes: usize) -> Option<Memory> {
    let layout = Layout::from_size_align(bytes.max(ALIGN), ALIGN).ok()?;
    let taken = TAKEN.fetch_add(layout.size(), Relaxed).saturating_add(layout.size());
    let is_granted = taken <= LIMIT.load(Relaxed) && taken <= *MACHINE;
    let memory = if is_granted { from_host(layout) } else { None };
    if memory.is_none() {
        TAKEN.fetch_sub(layout.size(), Relaxed);
    }
    memory
}

fn from_host(layout: Layout) -> Option<Memory> {
    if layout.size() >= MAPPED_BYTES {
        let mut map = MmapMut::map_anon(layout.size()).ok()?;
        let ptr = NonNull::new(map.as_mut_ptr())?;
        MAPPED.fetch_add(map.len(), Relaxed);
        return Some(Memory::Host { ptr, origin: Origin::System(map) });
    }
    // SAFETY: the layout's size is not zero.
    let ptr = NonNull::new(unsafe { alloc(layout) })?;
    Some(Memory::Host { ptr, origin: Origin::Allocator(layout) })
}

/// A device's allocator.
#[derive(Debug)]
pub struct DeviceAllocator(Device);

impl Allocator for DeviceAllocator {
    type Buffer = Buffer;

    fn allocate(&self, class_bytes: usize) -> Option<Buffer> {
        let memory = match self.0.gpu_index() {
            None => host_memory(class_bytes)?,
            Some(index) => Memory::Gpu(Arc::new(gpu::gpu(index).ok()?.allocate(class_bytes)?)),
        };
        Some(Buffer { memory, label: None })
    }

    fn returned(&self, mut buffer: Buffer) -> Returned<Buffer> {
        match &mut buffer.memory {
            Memory::Host { origin: Origin::Borrowed, .. } => Returned::Foreign,
            Memory::Part { whole, .. } => {
                Returned::Part(Arc::get_mut(whole).and_then(|whole| Some((whole.bytes, whole.buffer.take()?))))
            }
            _ => Returned::Free(buffer),
        }
    }
}

/// The pools of a device.
pub type DevicePools = Pools<DeviceAllocator>;

static POOLS: [OnceLock<Mutex<DevicePools>>; MAX_GPUS + 1] = [const { OnceLock::new() }; MAX_GPUS + 1];

/// A device's pools, behind their lock.
pub fn pools(device: Device) -> &'static Mutex<DevicePools> {
    POOLS[device.position()].get_or_init(|| Mutex::new(Pools::new(DeviceAllocator(device), device.to_string())))
}

/// The devices whose pools have been used.
pub fn pooled_devices() -> impl Iterator<Item = Device> {
    (0..=MAX_GPUS).filter(|&i| POOLS[i].get().is_some()).map(|i| Device::at(i as u8))
}

/// One storage: released when the last value that names it goes.
pub struct Storage {
    device: Device,
    handle: Mutex<Handle>,
    /// Keeps borrowed memory alive. Dropped after the handle was released, when no lock is held: dropping it may run anything.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Storage")
            .field("device", &self.device)
            .field("handle", &self.handle)
            .field("is_borrowed", &self.is_borrowed())
            .finish()
    }
}

impl Storage {
    /// Owns what the handle names from now on.
    pub fn new(device: Device, handle: Handle) -> Storage {
        Storage { device, handle: Mutex::new(handle), owner: None }
    }

    /// Where it lies.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Whether the memory is somebody else's: it is never written to.
    pub fn is_borrowed(&self) -> bool {
        self.owner.is_some()
    }

    /// The handle under the present owner.
    pub fn handle(&self) -> Handle {
        *self.handle.lock()
    }

    /// Where the bytes are on the host, after checking the handle.
    pub fn ptr(&self, pools: &DevicePools) -> Result<*mut u8> {
        pools.get(self.handle())?.ptr()
    }

    /// The adapter's buffer, after checking the handle.
    pub fn gpu(&self, pools: &DevicePools) -> Result<Arc<gpu::Buffer>> {
        Ok(pools.get(self.handle())?.gpu()?.clone())
    }

    /// Bytes of its size class.
    pub fn bytes(&self) -> Result<usize> {
        Ok(pools(self.device).lock().bytes(self.handle())?)
    }

    /// Changes the owner without a copy; the old handle becomes stale.
    pub fn move_to(&self, pools: &mut DevicePools, pool: PoolId) -> Result<()> {
        let mut handle = self.handle.lock();
        *handle = pools.move_to(*handle, pool)?;
        Ok(())
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // A handle made stale by a reset has nothing left to give back.
        let _ = pools(self.device).lock().release(*self.handle.get_mut());
    }
}

/// A new persistent storage on the host for a leaf with this shape and dtype, and where its bytes are.
pub fn persistent_storage(spec: &Spec) -> Result<(Arc<Storage>, *mut u8)> {
    let storage = new_storage(Device::CPU, spec)?;
    let ptr = storage.ptr(&pools(Device::CPU).lock())?;
    Ok((storage, ptr))
}

/// A new persistent storage for a leaf with this shape and dtype.
pub fn new_storage(device: Device, spec: &Spec) -> Result<Arc<Storage>> {
    if let Some(index) = device.gpu_index() {
        let gpu = gpu::gpu(index)?;
        gpu.check()?;
        gpu.check_bytes(spec.bytes())?;
    }
    let room = admit("tensor", device, spec.bytes())?;
    let mut pools = pools(device).lock();
    let pool = pools.persistent();
    let made = pools.within(room, |pools| pools.alloc(pool, spec.bytes()));
    let handle = made.map_err(|error| describe(&pools, error, "tensor"))?;
    pools.get_mut(handle)?.set_label("leaf", spec, None);
    Ok(Arc::new(Storage::new(device, handle)))
}

/// A storage over memory that `owner` keeps alive and that is never written to.
///
/// # Safety
/// The `bytes` from `ptr` on are readable as long as `owner` lives.
pub unsafe fn borrowed_storage(ptr: NonNull<u8>, bytes: usize, owner: Box<dyn Any + Send + Sync>) -> Result<Arc<Storage>> {
    let room = admit("tensor", Device::CPU, bytes)?;
    let memory = Memory::Host { ptr, origin: Origin::Borrowed };
    let mut pools = pools(Device::CPU).lock();
    let pool = pools.persistent();
    let handle = pools.within(room, |pools| {
        pools.lend_buffer(bytes);
        pools.adopt(pool, bytes, Buffer { memory, label: None }, false)
    })?;
    drop(pools);
    Ok(Arc::new(Storage { device: Device::CPU, handle: Mutex::new(handle), owner: Some(owner) }))
}

/// A refusal of the pools as an error; of memory, with what was asked for and what the largest storages hold.
pub fn describe(pools: &DevicePools, error: PoolError, op: &'static str) -> Error {
    let PoolError::OutOfMemory { device, bytes, active, reserved, largest } = &error else { return error.into() };
    let message = format!(
        "out of memory on {device}: {bytes} bytes were asked for with {active} bytes active and {reserved} bytes reserved, after \
         cached buffers were returned{}",
        holders(pools, largest)
    );
    Error::Memory { op, message }
}

/// A device's own lack of memory, with what the largest storages hold of it.
pub fn with_holders(device: Device, error: Error) -> Error {
    match error {
        Error::Memory { op: op @ "gpu", message } => {
            let pools = pools(device).lock();
            let (active, held) = (pools.stats().active, holders(&pools, &pools.largest(MAX_HOLDERS)));
            Error::Memory { op, message: format!("{message}; {active} bytes of tensors are active{held}") }
        }
        other => other,
    }
}

/// What the largest storages are, for a message.
fn holders(pools: &DevicePools, largest: &[(Handle, usize)]) -> String {
    let mut message = String::new();
    for (i, (handle, bytes)) in largest.iter().enumerate() {
        message += if i == 0 { "; largest holders: " } else { ", " };
        message += &match pools.get(*handle).ok().and_then(Buffer::label) {
            Some(Label { op, spec, place }) => {
                let place = place.as_ref().map_or(String::new(), |p| format!(" at {p}"));
                format!("{bytes} bytes {op} {:?} {}{place} (pool '{}')", spec.shape, spec.dtype, handle.pool_name())
            }
            None => format!("{bytes} bytes (pool '{}', slot {})", handle.pool_name(), handle.slot),
        };
    }
    message
}
