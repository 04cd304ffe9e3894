//! Storages: checked handles into the CPU's pools that give their memory back when the last value goes.
use crate::error::{Error, Result};
use crate::pool::{Allocator, Handle, PoolError, PoolId, Pools};
use parking_lot::Mutex;
use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};

/// Cache lines and vector registers want this alignment.
const ALIGN: usize = 64;

/// Host memory, aligned for vector loads and freed when dropped, or borrowed.
#[derive(Debug)]
pub struct HostBuffer {
    ptr: NonNull<u8>,
    layout: Layout,
    /// Somebody else's memory, which stays theirs.
    is_borrowed: bool,
}

// SAFETY: a buffer owns its memory; who may touch it when is for the plan that holds it.
unsafe impl Send for HostBuffer {}
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// The first byte.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if !self.is_borrowed {
            // SAFETY: allocated with this layout in `allocate` and freed nowhere else.
            unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
        }
    }
}

/// The host's allocator.
#[derive(Debug)]
pub struct HostAllocator;

impl Allocator for HostAllocator {
    type Buffer = HostBuffer;

    fn allocate(&self, class_bytes: usize) -> Option<HostBuffer> {
        let layout = Layout::from_size_align(class_bytes.max(ALIGN), ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let ptr = NonNull::new(unsafe { alloc(layout) })?;
        Some(HostBuffer { ptr, layout, is_borrowed: false })
    }

    fn is_reusable(&self, buffer: &HostBuffer) -> bool {
        !buffer.is_borrowed
    }
}

/// The pools of the CPU.
pub type CpuPools = Pools<HostAllocator>;

static CPU: LazyLock<Mutex<CpuPools>> = LazyLock::new(|| Mutex::new(Pools::new(HostAllocator, "cpu")));

/// The CPU's pools, behind their lock.
pub fn cpu() -> &'static Mutex<CpuPools> {
    &CPU
}

/// One storage: released when the last value that names it goes.
pub struct Storage {
    handle: Mutex<Handle>,
    /// Keeps borrowed memory alive. Dropped after the handle was released, when no lock is held: dropping it may run anything.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Storage").field("handle", &self.handle).field("is_borrowed", &self.is_borrowed()).finish()
    }
}

impl Storage {
    /// Owns what the handle names from now on.
    pub fn new(handle: Handle) -> Storage {
        Storage { handle: Mutex::new(handle), owner: None }
    }

    /// Whether the memory is somebody else's: it is never written to.
    pub fn is_borrowed(&self) -> bool {
        self.owner.is_some()
    }

    /// The handle under the present owner.
    pub fn handle(&self) -> Handle {
        *self.handle.lock()
    }

    /// Where the bytes are, after checking the handle.
    pub fn ptr(&self, pools: &CpuPools) -> std::result::Result<*mut u8, PoolError> {
        Ok(pools.get(self.handle())?.ptr())
    }

    /// Bytes of its size class.
    pub fn bytes(&self) -> Result<usize> {
        Ok(cpu().lock().bytes(self.handle())?)
    }

    /// Changes the owner without a copy; the old handle becomes stale.
    pub fn move_to(&self, pools: &mut CpuPools, pool: PoolId) -> Result<()> {
        let mut handle = self.handle.lock();
        *handle = pools.move_to(*handle, pool)?;
        Ok(())
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // A handle made stale by a reset has nothing left to give back.
        let _ = cpu().lock().release(*self.handle.get_mut());
    }
}

/// A new persistent storage of so many bytes, and where they are.
pub fn persistent_storage(bytes: usize) -> Result<(Arc<Storage>, *mut u8)> {
    let mut pools = cpu().lock();
    let pool = pools.persistent();
    let handle = pools.alloc(pool, bytes)?;
    let ptr = pools.get(handle)?.ptr();
    Ok((Arc::new(Storage::new(handle)), ptr))
}

/// A storage over memory that `owner` keeps alive and that is never written to.
///
/// # Safety
/// The `bytes` from `ptr` on are readable as long as `owner` lives.
pub unsafe fn borrowed_storage(ptr: NonNull<u8>, bytes: usize, owner: Box<dyn Any + Send + Sync>) -> Result<Arc<Storage>> {
    let layout = Layout::from_size_align(bytes, 1).map_err(|_| Error::Internal("a borrowed array is too large"))?;
    let mut pools = cpu().lock();
    let pool = pools.persistent();
    pools.lend_buffer(bytes);
    let handle = pools.adopt(pool, bytes, HostBuffer { ptr, layout, is_borrowed: true }, false)?;
    drop(pools);
    Ok(Arc::new(Storage { handle: Mutex::new(handle), owner: Some(owner) }))
}
