//! Owns the names of the pool module: the checked handle of one storage, the id of a pool and how both are written in messages.

use std::num::NonZeroU32;

/// Bits of a pool number that index the pools of one device. The bits above them hold a tag of the device's `Pools`, so
/// that a handle of another device is recognised instead of matching a storage here by accident.
pub(crate) const POOL_INDEX_BITS: u32 = 20;

/// Mask of the bits that index the pools of one device.
pub(crate) const POOL_INDEX_MASK: u32 = (1 << POOL_INDEX_BITS) - 1;

/// A checked reference to one storage. It is only compared, never computed with: whoever holds it cannot reach another
/// storage by changing a number, because the generation has to match too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle {
    /// Number of the pool that owns the storage: the tag of the device's `Pools` and an index.
    pub pool: u32,
    /// Slot of the storage in its pool.
    pub slot: u32,
    /// Drawn from the pool's counter when the storage was put into the slot.
    pub generation: NonZeroU32,
}

impl Handle {
    /// The pool's name as messages write it.
    pub fn pool_name(&self) -> String {
        pool_name(self.pool)
    }
}

/// What a pool is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PoolKind {
    /// Parameters, optimizer state, gradients and everything that outlives its tape.
    Persistent,
    /// Values computed for one tape, until it is cleared.
    Pass,
}

impl PoolKind {
    /// The key of this kind in statistics.
    pub fn name(self) -> &'static str {
        match self {
            PoolKind::Persistent => "persistent",
            PoolKind::Pass => "pass",
        }
    }
}

/// Names one pool for as long as it lives. A pool's number is used again once it is gone; the serial is not, so the id of
/// a dropped pool never reaches its successor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PoolId {
    pub(crate) number: u32,
    pub(crate) serial: u64,
}

impl PoolId {
    /// What the pool is for.
    pub fn kind(&self) -> PoolKind {
        kind_of(self.number)
    }

    /// The pool's name as messages write it.
    pub fn name(&self) -> String {
        pool_name(self.number)
    }

    /// True when `handle` names a storage in the pool's number; whether it is still live is for `Pools` to check.
    pub fn has_number_of(&self, handle: Handle) -> bool {
        self.number == handle.pool
    }
}

/// The kind of the pool with this number: index 0 of every device is the persistent pool.
pub(crate) fn kind_of(number: u32) -> PoolKind {
    if number & POOL_INDEX_MASK == 0 { PoolKind::Persistent } else { PoolKind::Pass }
}

/// The name of the pool with this number.
pub(crate) fn pool_name(number: u32) -> String {
    match kind_of(number) {
        PoolKind::Persistent => "persistent".to_owned(),
        PoolKind::Pass => format!("pass {}", number & POOL_INDEX_MASK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_handle_is_twelve_bytes_with_and_without_option() {
        assert_eq!(size_of::<Handle>(), 12);
        assert_eq!(size_of::<Option<Handle>>(), 12);
    }

    #[test]
    fn test_pool_names_leave_the_device_tag_out() {
        let tag = 7 << POOL_INDEX_BITS;
        assert_eq!(pool_name(tag), "persistent");
        assert_eq!(pool_name(tag | 3), "pass 3");
        let generation = NonZeroU32::MIN;
        let handle = Handle { pool: tag | 3, slot: 0, generation };
        assert_eq!(handle.pool_name(), "pass 3");
        let id = PoolId { number: tag | 3, serial: 1 };
        assert!(id.has_number_of(handle));
        assert_eq!((id.kind(), id.name().as_str()), (PoolKind::Pass, "pass 3"));
        assert_eq!((PoolKind::Pass.name(), PoolKind::Persistent.name()), ("pass", "persistent"));
    }
}
