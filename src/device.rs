//! Devices by number: the CPU, and the adapters in their order.
use crate::error::{Error, Result};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Most adapters that can be told apart.
pub const MAX_GPUS: usize = 15;

/// Where a value lies: the CPU or an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Device(u8);

impl Device {
    /// The CPU.
    pub const CPU: Device = Device(0);

    /// The adapter with this number.
    pub const fn gpu(index: usize) -> Device {
        Device(index as u8 + 1)
    }

    /// The number of the adapter; `None` for the CPU.
    pub const fn gpu_index(self) -> Option<usize> {
        match self.0 {
            0 => None,
            n => Some(n as usize - 1),
        }
    }

    /// Whether it is the CPU.
    pub const fn is_cpu(self) -> bool {
        self.0 == 0
    }

    /// Its position among all devices: 0 for the CPU.
    pub const fn position(self) -> usize {
        self.0 as usize
    }

    /// The device at a position.
    pub const fn at(position: u8) -> Device {
        Device(position)
    }

    /// Reads "cpu", "gpu" or "gpu:1".
    pub fn parse(name: &str) -> Result<Device> {
        let index = match name {
            "cpu" => return Ok(Device::CPU),
            "gpu" => Some(0),
            other => other.strip_prefix("gpu:").and_then(|n| n.parse::<usize>().ok()).filter(|&n| n < MAX_GPUS),
        };
        index.map(Device::gpu).ok_or_else(|| {
            Error::value("device", format!("device {name:?} is not available; expected \"auto\", \"cpu\", \"gpu\" or \"gpu:1\""))
        })
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("cpu"),
            1 => f.write_str("gpu"),
            n => write!(f, "gpu:{}", n - 1),
        }
    }
}

/// Not chosen yet: what "auto" means.
const AUTO: u8 = u8::MAX;

/// Where every thread starts.
static DEFAULT: AtomicU8 = AtomicU8::new(AUTO);
/// What "auto" means, once it has been asked for.
static RESOLVED: OnceLock<Device> = OnceLock::new();
/// Answers it; the binding gives it once.
static RESOLVER: OnceLock<fn() -> Device> = OnceLock::new();

/// Sets what answers which device "auto" is.
pub fn set_resolver(resolver: fn() -> Device) {
    let _ = RESOLVER.set(resolver);
}

/// The device that "auto" means, asked for once a process.
pub fn auto_device() -> Device {
    *RESOLVED.get_or_init(|| RESOLVER.get().map_or(Device::CPU, |resolve| resolve()))
}

thread_local! {
    /// This thread's own choice.
    static CHOSEN: Cell<Option<Device>> = const { Cell::new(None) };
}

/// The device of new tensors on this thread.
pub fn default_device() -> Device {
    CHOSEN.get().unwrap_or_else(|| match DEFAULT.load(Relaxed) {
        AUTO => auto_device(),
        at => Device(at),
    })
}

/// Sets the device that threads start with.
pub fn set_default_device(device: Device) {
    DEFAULT.store(device.0, Relaxed);
}

/// Sets this thread's own choice (`None`: what threads start with) and gives the former one.
pub fn choose_device(device: Option<Device>) -> Option<Device> {
    CHOSEN.replace(device)
}
