//! Counts of what moves between host and devices, over the whole process since it began.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static TO_HOST: AtomicU64 = AtomicU64::new(0);
static TO_HOST_BYTES: AtomicU64 = AtomicU64::new(0);
static TO_DEVICE: AtomicU64 = AtomicU64::new(0);
static TO_DEVICE_BYTES: AtomicU64 = AtomicU64::new(0);
static ARGUMENTS_BYTES: AtomicU64 = AtomicU64::new(0);

/// Totals so far. The CPU's memory is the host's: nothing moves to it or from it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Transfers {
    /// Downloads.
    pub to_host: u64,
    /// Their bytes.
    pub to_host_bytes: u64,
    /// Uploads of tensors.
    pub to_device: u64,
    /// Their bytes.
    pub to_device_bytes: u64,
    /// Bytes of the numbers that plans were given: random counters, learning rates, scalars.
    pub arguments_bytes: u64,
}

/// The totals so far.
pub fn transfers() -> Transfers {
    Transfers {
        to_host: TO_HOST.load(Relaxed),
        to_host_bytes: TO_HOST_BYTES.load(Relaxed),
        to_device: TO_DEVICE.load(Relaxed),
        to_device_bytes: TO_DEVICE_BYTES.load(Relaxed),
        arguments_bytes: ARGUMENTS_BYTES.load(Relaxed),
    }
}

/// Counts a download.
pub fn count_to_host(bytes: usize) {
    TO_HOST.fetch_add(1, Relaxed);
    TO_HOST_BYTES.fetch_add(bytes as u64, Relaxed);
}

/// Counts an upload.
pub fn count_to_device(bytes: usize) {
    TO_DEVICE.fetch_add(1, Relaxed);
    TO_DEVICE_BYTES.fetch_add(bytes as u64, Relaxed);
}

/// Counts a plan's arguments.
pub fn count_arguments(args: &[u64]) {
    ARGUMENTS_BYTES.fetch_add(size_of_val(args) as u64, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_r03_each_direction_has_its_own_count() {
        let before = transfers();
        count_to_host(10);
        count_to_device(20);
        count_to_device(30);
        count_arguments(&[1, 2, 3]);
        let after = transfers();
        // Other tests run plans meanwhile: only the arguments may have grown by more.
        assert_eq!((after.to_host - before.to_host, after.to_host_bytes - before.to_host_bytes), (1, 10));
        assert_eq!((after.to_device - before.to_device, after.to_device_bytes - before.to_device_bytes), (2, 50));
        assert!(after.arguments_bytes - before.arguments_bytes >= 24);
    }
}
