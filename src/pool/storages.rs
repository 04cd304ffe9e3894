//! Owns the life of storages behind handles: making, reading, moving and ending one, and every check of a handle.

use super::error::PoolError;
use super::handle::{Handle, POOL_INDEX_MASK, PoolId, kind_of, pool_name};
use super::owners::{Allocator, Pools};
use super::size_class::class_bytes;
use super::stats::{Share, Shared};

impl<A: Allocator> Pools<A> {
    /// Makes a taken buffer a storage. `is_counted` says that `note_born` counted its class in the same pool already.
    ///
    /// # Errors
    /// When the pool is not open or out of slots; the buffer is in the cache then, and what `note_born` counted stays.
    pub fn adopt(&mut self, id: PoolId, bytes: usize, buffer: A::Buffer, is_counted: bool) -> Result<Handle, PoolError> {
        let index = match self.index_with_room(id) {
            Ok(index) => index,
            Err(error) => {
                self.give_buffer(bytes, buffer);
                return Err(error);
            }
        };
        let class = class_bytes(bytes);
        if !is_counted {
            self.rise(index, class);
        }
        self.fill(index, class, Shared { buffer, share: Share::rise(class) }).ok_or_else(|| self.not_open(id))
    }

    /// A new storage of at least so many bytes.
    ///
    /// # Errors
    /// When the pool is not open or out of slots, or the device out of memory.
    #[inline]
    pub fn alloc(&mut self, id: PoolId, bytes: usize) -> Result<Handle, PoolError> {
        let index = self.index_with_room(id)?;
        let buffer = self.take_buffer(bytes)?;
        let class = class_bytes(bytes);
        self.rise(index, class);
        self.fill(index, class, Shared { buffer, share: Share::rise(class) }).ok_or_else(|| self.not_open(id))
    }

    /// The buffer of a storage.
    ///
    /// # Errors
    /// When the handle is stale or foreign.
    #[inline]
    pub fn get(&self, handle: Handle) -> Result<&A::Buffer, PoolError> {
        self.find(handle).map(|(_, buffer)| buffer)
    }

    /// The buffer of a storage, to write to.
    ///
    /// # Errors
    /// When the handle is stale or foreign.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Result<&mut A::Buffer, PoolError> {
        // Checked first, because the error needs all of `self`, which a found buffer would keep borrowed.
        self.find(handle)?;
        let index = (handle.pool & POOL_INDEX_MASK) as usize;
        let device = &self.device;
        let pool = self.pools.get_mut(index);
        pool.and_then(|pool| pool.slots.find_mut(handle.slot, handle.generation))
            .map(|shared| &mut shared.buffer)
            .ok_or_else(|| foreign(device, handle, 0))
    }

    /// Bytes of a storage: its size class.
    ///
    /// # Errors
    /// When the handle is stale or foreign.
    #[inline]
    pub fn bytes(&self, handle: Handle) -> Result<usize, PoolError> {
        self.find(handle).map(|(class, _)| class)
    }

    /// The pool of a storage.
    ///
    /// # Errors
    /// When the handle is stale or foreign.
    pub fn owner(&self, handle: Handle) -> Result<PoolId, PoolError> {
        self.find(handle)?;
        let pool = self.pools.get((handle.pool & POOL_INDEX_MASK) as usize);
        pool.map(|pool| PoolId { number: handle.pool, serial: pool.serial }).ok_or_else(|| self.missed(handle))
    }

    /// Frees a storage; its buffer goes to the cache.
    ///
    /// # Errors
    /// When the handle is foreign, or the storage was already released, moved or reset.
    #[inline]
    pub fn release(&mut self, handle: Handle) -> Result<(), PoolError> {
        let (class, buffer) = self.take_back(handle)?;
        self.give_buffer(class, buffer);
        Ok(())
    }

    /// Ends a storage and hands its size class and buffer to the caller, as `take_buffer` would.
    ///
    /// # Errors
    /// When the handle is foreign, or the storage was already released, moved or reset.
    #[inline]
    pub fn take_back(&mut self, handle: Handle) -> Result<(usize, A::Buffer), PoolError> {
        let Some((index, class, shared)) = self.vacate(handle) else {
            return Err(match self.missed(handle) {
                PoolError::Stale { pool, slot, had, current } => PoolError::DoubleRelease { pool, slot, had, current },
                other => other,
            });
        };
        self.fall(index, class);
        shared.share.fall(class);
        self.retire_if_empty(index);
        Ok((class, shared.buffer))
    }

    /// Gives a storage to another pool without a copy. The old handle is stale then.
    ///
    /// # Errors
    /// When the handle is stale or foreign, or the pool not open or out of slots; the storage stays where it was.
    pub fn move_to(&mut self, handle: Handle, id: PoolId) -> Result<Handle, PoolError> {
        let target = self.index_with_room(id)?;
        let Some((source, class, shared)) = self.vacate(handle) else {
            return Err(self.missed(handle));
        };
        if let Some(pool) = self.pools.get_mut(source) {
            pool.meter.fall(class);
        }
        if let Some(pool) = self.pools.get_mut(target) {
            pool.meter.rise(class);
        }
        self.meters.shift(kind_of(handle.pool), id.kind(), class);
        let moved = self.fill(target, class, shared).ok_or_else(|| self.not_open(id));
        self.retire_if_empty(source);
        moved
    }

    #[inline]
    fn fill(&mut self, index: usize, class: usize, shared: Shared<A::Buffer>) -> Option<Handle> {
        let (slot, generation) = self.pools.get_mut(index)?.slots.occupy(class, shared);
        Some(Handle { pool: self.tag | index as u32, slot, generation })
    }

    #[inline]
    fn vacate(&mut self, handle: Handle) -> Option<(usize, usize, Shared<A::Buffer>)> {
        let index = self.index_of(handle.pool)?;
        let (class, shared) = self.pools.get_mut(index)?.slots.vacate(handle.slot, handle.generation)?;
        Some((index, class, shared))
    }

    #[inline]
    fn find(&self, handle: Handle) -> Result<(usize, &A::Buffer), PoolError> {
        self.index_of(handle.pool)
            .and_then(|index| self.pools.get(index)?.slots.find(handle.slot, handle.generation))
            .map(|(class, shared)| (class, &shared.buffer))
            .ok_or_else(|| self.missed(handle))
    }

    /// Why `handle` names nothing here.
    #[cold]
    fn missed(&self, handle: Handle) -> PoolError {
        let Some(pool) = self.index_of(handle.pool).and_then(|index| self.pools.get(index)) else {
            return foreign(&self.device, handle, 0);
        };
        let miss = pool.slots.miss(handle.slot, handle.generation);
        if miss.is_foreign {
            return foreign(&self.device, handle, miss.current);
        }
        let (slot, had, current) = (handle.slot, handle.generation.get(), miss.current);
        PoolError::Stale { pool: handle.pool_name(), slot, had, current }
    }
}

#[cold]
fn foreign(device: &str, handle: Handle, current: u32) -> PoolError {
    PoolError::Foreign {
        device: device.to_owned(),
        pool: pool_name(handle.pool),
        number: handle.pool,
        slot: handle.slot,
        had: handle.generation.get(),
        current,
    }
}
