//! Storages: checked handles into the pools of a device that give their memory back when the last value goes.
use super::budget::admit;
use super::buffer::{Buffer, DeviceAllocator, Label};
use super::node::Spec;
use crate::backend::gpu;
use crate::device::{Device, MAX_GPUS};
use crate::error::{Error, Result};
use crate::pool::{Handle, PoolError, PoolId, Pools};
use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// Holders that a message names at most.
const MAX_HOLDERS: usize = 5;

/// The pools of a device.
pub type DevicePools = Pools<DeviceAllocator>;

/// They, as long as nobody else may use them.
pub type PoolsGuard = MutexGuard<'static, DevicePools>;

static POOLS: [OnceLock<Mutex<DevicePools>>; MAX_GPUS + 1] = [const { OnceLock::new() }; MAX_GPUS + 1];

/// A device's pools, behind their lock.
pub fn pools(device: Device) -> &'static Mutex<DevicePools> {
    POOLS[device.position()].get_or_init(|| Mutex::new(Pools::new(DeviceAllocator::new(device), device.to_string())))
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
    let mut pools = pools(Device::CPU).lock();
    let pool = pools.persistent();
    let handle = pools.within(room, |pools| {
        pools.lend_buffer(bytes);
        pools.adopt(pool, bytes, Buffer::borrowed(ptr), false)
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
