//! Owns the errors of the pool module: each names its pool and, where a reference went stale, both generations.

use thiserror::Error;

use super::handle::Handle;

/// What a pool refuses.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PoolError {
    /// A handle whose storage was released, moved to another pool or freed by a reset.
    #[error(
        "stale handle: slot {slot} of pool '{pool}' had generation {had}, its current generation is {}; the storage was \
         released, moved or reset",
        generation_text(*.current)
    )]
    Stale {
        /// Name of the pool.
        pool: String,
        /// Slot that the handle names.
        slot: u32,
        /// Generation of the handle.
        had: u32,
        /// Generation of the slot now; 0 for a slot that was retired.
        current: u32,
    },
    /// A release through a handle that no longer owns anything.
    #[error(
        "double release: slot {slot} of pool '{pool}' had generation {had}, its current generation is {}; the storage was \
         already released, moved or reset",
        generation_text(*.current)
    )]
    DoubleRelease {
        /// Name of the pool.
        pool: String,
        /// Slot that the handle names.
        slot: u32,
        /// Generation of the handle.
        had: u32,
        /// Generation of the slot now; 0 for a slot that was retired.
        current: u32,
    },
    /// A handle that the pools of this device never gave out.
    #[error(
        "foreign handle: the pools of {device} never gave out slot {slot} with generation {had} of pool '{pool}' \
         (number {number}); the current generation there is {}",
        generation_text(*.current)
    )]
    Foreign {
        /// Device whose pools were asked.
        device: String,
        /// Name of the pool in the handle.
        pool: String,
        /// Number of the pool in the handle.
        number: u32,
        /// Slot that the handle names.
        slot: u32,
        /// Generation of the handle.
        had: u32,
        /// Generation of that slot here; 0 if there is no such slot.
        current: u32,
    },
    /// A pool id whose pool was dropped, or which belongs to another device.
    #[error("pool '{pool}' (serial {had}) is not open on {device}: it was dropped, or it belongs to another device")]
    NotOpen {
        /// Device whose pools were asked.
        device: String,
        /// Name of the pool.
        pool: String,
        /// Serial of the pool id.
        had: u64,
    },
    /// A pool that was reset where it must not be.
    #[error("pool '{pool}' was reset: it had generation {had}, its current generation is {current}")]
    WasReset {
        /// Name of the pool.
        pool: String,
        /// Generation that the caller saw.
        had: u64,
        /// Generation of the pool now.
        current: u64,
    },
    /// Every number that a handle can hold is in use.
    #[error("{device} has no free {what} left in pool '{pool}'")]
    Exhausted {
        /// Device whose pools were asked.
        device: String,
        /// Name of the pool.
        pool: String,
        /// What ran out.
        what: &'static str,
    },
    /// The device granted no memory, even after the cached buffers were returned to it.
    #[error(
        "out of memory on {device}: {bytes} bytes were asked for with {active} bytes active and {reserved} bytes \
         reserved{}",
        holders_text(.largest)
    )]
    OutOfMemory {
        /// Device whose memory ran out.
        device: String,
        /// Size class of the request.
        bytes: usize,
        /// Bytes of all living values.
        active: usize,
        /// Bytes held from the device.
        reserved: usize,
        /// The largest storages and their bytes, largest first.
        largest: Vec<(Handle, usize)>,
    },
}

fn generation_text(generation: u32) -> String {
    if generation == 0 { "0 (none)".to_owned() } else { generation.to_string() }
}

fn holders_text(largest: &[(Handle, usize)]) -> String {
    let mut text = String::new();
    for (handle, bytes) in largest {
        let lead = if text.is_empty() { "; largest holders: " } else { ", " };
        text += &format!("{lead}{bytes} bytes (pool '{}', slot {})", handle.pool_name(), handle.slot);
    }
    text
}

impl From<PoolError> for crate::error::Error {
    fn from(error: PoolError) -> Self {
        let message = error.to_string();
        match error {
            PoolError::OutOfMemory { .. } => crate::error::Error::Memory { op: "allocation", message },
            _ => crate::error::Error::Handle { message },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    #[test]
    fn test_r08_messages_name_pool_and_both_generations() {
        let pool = || "pass 4".to_owned();
        let device = || "cpu".to_owned();
        let errors = [
            PoolError::Stale { pool: pool(), slot: 3, had: 11, current: 29 },
            PoolError::DoubleRelease { pool: pool(), slot: 3, had: 11, current: 29 },
            PoolError::Foreign { device: device(), pool: pool(), number: 4, slot: 3, had: 11, current: 29 },
            PoolError::WasReset { pool: pool(), had: 11, current: 29 },
        ];
        for error in errors {
            let text = error.to_string();
            assert!(["pass 4", "11", "29"].iter().all(|part| text.contains(part)), "{text}");
        }
        let retired = PoolError::Stale { pool: pool(), slot: 3, had: 11, current: 0 };
        assert!(retired.to_string().contains("0 (none)"));
    }

    #[test]
    fn test_out_of_memory_names_the_largest_holders() {
        let handle = Handle { pool: 2, slot: 5, generation: NonZeroU32::MIN };
        let largest = vec![(handle, 4096), (Handle { pool: 0, ..handle }, 64)];
        let device = "cpu".to_owned();
        let error = PoolError::OutOfMemory { device, bytes: 128, active: 4160, reserved: 4160, largest };
        let text = error.to_string();
        assert!(text.contains("4096 bytes (pool 'pass 2', slot 5), 64 bytes (pool 'persistent', slot 5)"), "{text}");
    }

    #[test]
    fn test_error_is_small_enough_to_return_by_value() {
        assert!(size_of::<PoolError>() <= 96);
    }
}
