//! Buffers: the memory of a device that storages lie in, where it comes from, and how it goes back to the system.
use super::budget::is_any_limited;
use super::node::Spec;
use crate::backend::gpu;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::pool::{Allocator, Returned, WholeId};
use memmap2::MmapMut;
#[cfg(target_os = "linux")]
use memmap2::UncheckedAdvice;
use std::alloc::{Layout, alloc, dealloc};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

/// Cache lines and vector registers want this alignment.
const ALIGN: usize = 64;
/// Bytes from which memory is the system's own pages: an allocator may keep what is given back to it. Only such buffers can have parts.
pub const MAPPED_BYTES: usize = 1 << 20;
/// Parts of buffers begin at multiples of so many bytes, and have such a number of them, if they are larger than seven times as many.
const PART_STEP: usize = 8 << 10;

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

/// Memory of a device.
#[derive(Debug)]
enum Memory {
    /// Of the host, aligned for vector loads and freed when dropped, or borrowed.
    Host { ptr: NonNull<u8>, origin: Origin },
    /// Of an adapter. A running plan holds it too.
    Gpu(Arc<gpu::Buffer>),
    /// A part of a larger buffer of the host, which begins so many bytes into it; the pools have that one as long as a part lives.
    Part { ptr: NonNull<u8>, whole: WholeId, offset: usize },
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
    /// Over memory of the host that stays somebody else's.
    pub(super) fn borrowed(ptr: NonNull<u8>) -> Buffer {
        Buffer { memory: Memory::Host { ptr, origin: Origin::Borrowed }, label: None }
    }

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

    /// The system's pages that it has, if it has such.
    fn pages(&self) -> Option<&MmapMut> {
        match &self.memory {
            Memory::Host { origin: Origin::System(map), .. } => Some(map),
            _ => None,
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

/// Bytes of a page of the system's memory, where it says so.
static PAGE_BYTES: LazyLock<Option<usize>> = LazyLock::new(|| {
    let mut lines = BufReader::new(File::open("/proc/self/smaps").ok()?).lines().map_while(std::io::Result::ok);
    let line = lines.find(|line| line.starts_with("KernelPageSize:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok()?.checked_mul(1024)
});

/// Gives pages back to the system, which are zeros when they are touched next.
#[cfg(target_os = "linux")]
fn give_back(map: &MmapMut, offset: usize, bytes: usize) -> bool {
    // SAFETY: no part lies in these bytes and no plan has the buffer, so that nobody reads them before they are written again.
    unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes) }.is_ok()
}

/// Other systems may keep the pages.
#[cfg(not(target_os = "linux"))]
fn give_back(_: &MmapMut, _: usize, _: usize) -> bool {
    false
}

/// A device's allocator.
#[derive(Debug)]
pub struct DeviceAllocator(Device);

impl DeviceAllocator {
    /// The allocator of this device.
    pub(super) fn new(device: Device) -> DeviceAllocator {
        DeviceAllocator(device)
    }
}

impl Allocator for DeviceAllocator {
    type Buffer = Buffer;

    fn allocate(&self, class_bytes: usize) -> Option<Buffer> {
        let memory = match self.0.gpu_index() {
            None => host_memory(class_bytes)?,
            Some(index) => Memory::Gpu(Arc::new(gpu::gpu(index).ok()?.allocate(class_bytes)?)),
        };
        Some(Buffer { memory, label: None })
    }

    fn returned(&self, buffer: Buffer) -> Returned<Buffer> {
        match &buffer.memory {
            Memory::Host { origin: Origin::Borrowed, .. } => Returned::Foreign,
            Memory::Part { whole, offset, .. } => Returned::Part(*whole, *offset),
            _ => Returned::Free(buffer),
        }
    }

    fn part(&self, whole: &Buffer, id: WholeId, offset: usize) -> Option<Buffer> {
        let map = whole.pages().filter(|map| offset < map.len())?;
        let Memory::Host { ptr, .. } = &whole.memory else { return None };
        debug_assert!(map.as_ptr() == ptr.as_ptr());
        // SAFETY: the pages begin at `ptr`, and the offset lies among them.
        let ptr = unsafe { ptr.add(offset) };
        Some(Buffer { memory: Memory::Part { ptr, whole: id, offset }, label: None })
    }

    fn gives_back(&self) -> bool {
        self.0.is_cpu() && (*PAGE_BYTES).is_some_and(|page| PART_STEP.is_multiple_of(page))
    }

    fn give_back(&self, whole: &Buffer, offset: usize, bytes: usize) -> bool {
        let (Some(map), Some(page)) = (whole.pages(), *PAGE_BYTES) else { return false };
        // A buffer ends where it was asked to, its last page later.
        let ends_well = bytes.is_multiple_of(page) || offset + bytes == map.len();
        let is_given = offset.is_multiple_of(page) && ends_well && give_back(map, offset, bytes);
        if is_given {
            TAKEN.fetch_sub(bytes, Relaxed);
            MAPPED.fetch_sub(bytes, Relaxed);
        }
        is_given
    }

    fn regain(&self, bytes: usize) {
        TAKEN.fetch_add(bytes, Relaxed);
        MAPPED.fetch_add(bytes, Relaxed);
    }

    fn is_bounded(&self) -> bool {
        is_any_limited()
    }

    fn settle(&self) {
        if let Some(gpu) = self.0.gpu_index().and_then(gpu::opened) {
            gpu.reclaim();
        }
    }
}
