//! Owns the set of pools of one device: which exist, the buffers they draw on, and what is counted for them.

use std::sync::atomic::{AtomicU32, Ordering};

use super::cache::BufferCache;
use super::error::PoolError;
use super::handle::{POOL_INDEX_BITS, POOL_INDEX_MASK, PoolId, PoolKind, kind_of};
use super::parts::{WholeId, Wholes};
use super::size_class::class_bytes;
use super::slots::Slots;
use super::stats::{Meter, Meters, Shared};

/// Tag of the next `Pools`: in one process no two of the newest 4096 share one.
static NEXT_TAG: AtomicU32 = AtomicU32::new(0);

/// Where buffers come from. Dropping a buffer frees it.
pub trait Allocator {
    /// One piece of physical memory.
    type Buffer;

    /// Makes a buffer of `class_bytes` bytes, which is a size class, or says that there is no memory for it.
    fn allocate(&self, class_bytes: usize) -> Option<Self::Buffer>;

    /// What becomes of a buffer whose storage has ended.
    fn returned(&self, buffer: Self::Buffer) -> Returned<Self::Buffer>;

    /// The part of a buffer that begins so many bytes into it, if buffers like it can have parts.
    fn part(&self, whole: &Self::Buffer, id: WholeId, offset: usize) -> Option<Self::Buffer>;

    /// Whether bytes beside the parts of a buffer can go back to the system while the parts stay.
    fn gives_back(&self) -> bool;

    /// Gives bytes of a buffer back to the system, which is asked for them again when they are touched next; whether it could.
    fn give_back(&self, whole: &Self::Buffer, offset: usize, bytes: usize) -> bool;

    /// So many bytes that were given back are the buffer's again.
    fn regain(&self, bytes: usize);

    /// Whether somebody bounds what may be reserved: then nothing is regained.
    fn is_bounded(&self) -> bool;

    /// Waits until buffers that were dropped are free: a device may be at work on them still.
    fn settle(&self);
}

/// What becomes of a buffer that nobody uses any more.
#[derive(Debug)]
pub enum Returned<B> {
    /// It may serve other storages.
    Free(B),
    /// It was somebody else's, and is theirs alone again.
    Foreign,
    /// It was the part of a larger one that began there.
    Part(WholeId, usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Open,
    /// Dropped, but something in it is still alive: what it has stays valid, nothing new comes in.
    Closing,
    /// Empty; its number waits for the next pool.
    Gone,
}

#[derive(Debug)]
pub(super) struct Pool<B> {
    pub(super) slots: Slots<Shared<B>>,
    pub(super) meter: Meter,
    /// Number of resets.
    pub(super) generation: u64,
    pub(super) serial: u64,
    pub(super) state: State,
}

/// All pools of one device. A plain structure: the device puts it behind its lock.
#[derive(Debug)]
pub struct Pools<A: Allocator> {
    pub(super) allocator: A,
    pub(super) device: String,
    /// The bits of every pool number here that tell this device from others.
    pub(super) tag: u32,
    pub(super) pools: Vec<Pool<A::Buffer>>,
    gone: Vec<u32>,
    pub(super) cache: BufferCache<A::Buffer>,
    pub(super) reserved: usize,
    /// The highest `reserved` since the last `reset_peak`.
    pub(super) reserved_peak: usize,
    /// `reserved` above which cached buffers are returned first.
    ceiling: Option<usize>,
    /// Bytes of buffers that were dropped since the allocator settled last.
    pub(super) leaving: usize,
    /// Buffers with parts.
    pub(super) wholes: Wholes<A::Buffer>,
    /// Buffers that the allocator granted so far.
    pub(super) granted: u64,
    pub(super) meters: Meters,
    serials: u64,
    pub(super) resets: u64,
    /// The pass pool created last, and how often it was reset: remembered when the pool is gone.
    pub(super) newest_pass: (PoolId, u64),
}

impl<A: Allocator> Pools<A> {
    /// The pools of one device, of which only the persistent one exists yet. `device` names it in messages.
    pub fn new(allocator: A, device: impl Into<String>) -> Self {
        let tag = NEXT_TAG.fetch_add(1, Ordering::Relaxed) << POOL_INDEX_BITS;
        Pools {
            allocator,
            device: device.into(),
            tag,
            pools: vec![Pool::new(0)],
            gone: Vec::new(),
            cache: BufferCache::default(),
            reserved: 0,
            reserved_peak: 0,
            ceiling: None,
            leaving: 0,
            wholes: Wholes::default(),
            granted: 0,
            meters: Meters::default(),
            serials: 0,
            resets: 0,
            newest_pass: (PoolId { number: tag, serial: 0 }, 0),
        }
    }

    /// The allocator given at the start.
    pub fn allocator(&self) -> &A {
        &self.allocator
    }

    /// The pool of what outlives its tape.
    pub fn persistent(&self) -> PoolId {
        PoolId { number: self.tag, serial: 0 }
    }

    /// Opens a pool for one tape.
    ///
    /// # Errors
    /// When 2^20 - 1 pass pools are open.
    pub fn create_pass(&mut self) -> Result<PoolId, PoolError> {
        let index = self.gone.last().copied().unwrap_or(self.pools.len() as u32);
        if index > POOL_INDEX_MASK {
            let pool = PoolKind::Pass.name().to_owned();
            return Err(PoolError::Exhausted { device: self.device.clone(), pool, what: "pool number" });
        }
        self.gone.pop();
        self.serials += 1;
        match self.pools.get_mut(index as usize) {
            // The slot table stays with the number: its counter runs on, so that handles of the former pool are stale.
            Some(pool) => {
                pool.serial = self.serials;
                pool.state = State::Open;
                pool.generation = 0;
                pool.meter = Meter::default();
            }
            None => self.pools.push(Pool::new(self.serials)),
        }
        let id = PoolId { number: self.tag | index, serial: self.serials };
        self.newest_pass = (id, 0);
        Ok(id)
    }

    /// Closes a pass pool. What is alive in it stays valid until it is released or moved; nothing new can come in, and
    /// the pool is gone once it is empty. Dropping the persistent pool is refused.
    ///
    /// # Errors
    /// When the pool is not open.
    pub fn drop_pass(&mut self, id: PoolId) -> Result<(), PoolError> {
        let index = self.index_accepting(id)?;
        if index == 0 {
            return Err(self.not_open(id));
        }
        if let Some(pool) = self.pools.get_mut(index) {
            pool.state = State::Closing;
        }
        self.retire_if_empty(index);
        Ok(())
    }

    /// Takes a buffer for a request of so many bytes: from the cache, else from the allocator. It belongs to the caller,
    /// who ends with `adopt`, `give_buffer` or `discard_buffer`, naming the same number of bytes.
    ///
    /// # Errors
    /// When the allocator has no memory, even after the cache was returned to it.
    #[inline]
    pub fn take_buffer(&mut self, bytes: usize) -> Result<A::Buffer, PoolError> {
        if let Some(buffer) = self.cache.take(bytes) {
            return Ok(buffer);
        }
        self.make_buffer(class_bytes(bytes))
    }

    #[cold]
    fn make_buffer(&mut self, class: usize) -> Result<A::Buffer, PoolError> {
        match self.ceiling {
            Some(most) => self.shrink(most.saturating_sub(class)),
            None => self.give_back_long_kept(),
        }
        let granted = match self.allocator.allocate(class) {
            Some(buffer) => Some(buffer),
            None => {
                self.trim();
                self.allocator.allocate(class)
            }
        };
        let buffer = granted.ok_or_else(|| self.out_of_memory(class))?;
        self.granted += 1;
        self.reserve(class);
        Ok(buffer)
    }

    /// Takes a buffer of exactly so many bytes, which the caller gives back with `give_exact`.
    ///
    /// # Errors
    /// When the allocator has no memory, even after the cache was returned to it.
    pub fn take_exact(&mut self, bytes: usize) -> Result<A::Buffer, PoolError> {
        match self.cache.take_exact(bytes) {
            Some(buffer) => Ok(buffer),
            None => self.make_buffer(bytes),
        }
    }

    /// Returns a buffer of exactly so many bytes to the cache.
    pub fn give_exact(&mut self, bytes: usize, buffer: A::Buffer) {
        let dropped = self.cache.put_exact(bytes, buffer);
        self.note_dropped(dropped);
    }

    /// Takes buffers, with room for so many bytes beside what is taken already: cached buffers are returned to the allocator, and what lies
    /// beside parts, rather than more is held of it. `None`: there is no bound.
    pub fn within<T>(&mut self, room: Option<usize>, take: impl FnOnce(&mut Self) -> T) -> T {
        let Some(room) = room else { return take(self) };
        let most = self.reserved.saturating_sub(self.free_bytes()).saturating_add(room);
        let former = self.ceiling.replace(most);
        let taken = take(self);
        self.ceiling = former;
        // What came from the cache was not held against the ceiling.
        self.shrink(most);
        taken
    }

    /// Returns cached buffers, and then what lies beside parts, until no more than so many bytes are reserved or nothing is left.
    fn shrink(&mut self, most: usize) {
        let over = self.reserved.saturating_sub(most);
        if over > 0 {
            let dropped = self.cache.drop_some(over).min(self.reserved);
            self.note_dropped(dropped);
            self.give_back_spare(over.saturating_sub(dropped));
        }
    }

    /// Returns a taken buffer to the cache; one that may not be used again is freed, and what has parts is there until the last one ends.
    pub fn give_buffer(&mut self, bytes: usize, buffer: A::Buffer) {
        match self.allocator.returned(buffer) {
            Returned::Free(buffer) => self.cache.put(bytes, buffer),
            Returned::Foreign => self.reserved = self.reserved.saturating_sub(class_bytes(bytes)),
            Returned::Part(whole, offset) => self.end_part(whole, offset, class_bytes(bytes)),
        }
    }

    /// Counts a buffer that did not come from the allocator as a taken one.
    pub fn lend_buffer(&mut self, bytes: usize) {
        self.reserve(class_bytes(bytes));
    }

    pub(super) fn reserve(&mut self, bytes: usize) {
        self.reserved = self.reserved.saturating_add(bytes);
        self.reserved_peak = self.reserved_peak.max(self.reserved);
    }

    /// Frees a taken buffer, which must not be used again.
    pub fn discard_buffer(&mut self, bytes: usize, buffer: A::Buffer) {
        drop(buffer);
        self.reserved = self.reserved.saturating_sub(class_bytes(bytes));
    }

    /// Counts a value that a running plan keeps in a taken buffer, without a slot.
    ///
    /// # Errors
    /// When the pool is not open.
    pub fn note_born(&mut self, id: PoolId, bytes: usize) -> Result<(), PoolError> {
        let index = self.index_accepting(id)?;
        self.rise(index, bytes);
        Ok(())
    }

    /// Ends what `note_born` began.
    ///
    /// # Errors
    /// When the pool is gone.
    pub fn note_dead(&mut self, id: PoolId, bytes: usize) -> Result<(), PoolError> {
        let index = self.index_existing(id)?;
        self.fall(index, bytes);
        self.retire_if_empty(index);
        Ok(())
    }

    #[inline]
    pub(super) fn rise(&mut self, index: usize, bytes: usize) {
        if let Some(pool) = self.pools.get_mut(index) {
            pool.meter.rise(bytes);
            self.meters.rise(kind_of(index as u32), bytes);
        }
    }

    #[inline]
    pub(super) fn fall(&mut self, index: usize, bytes: usize) {
        if let Some(pool) = self.pools.get_mut(index) {
            pool.meter.fall(bytes);
            self.meters.fall(kind_of(index as u32), bytes);
        }
    }

    /// Lets a closing pool go once nothing is alive in it.
    #[inline]
    pub(super) fn retire_if_empty(&mut self, index: usize) {
        if let Some(pool) = self.pools.get_mut(index)
            && pool.state == State::Closing
            && pool.slots.live_count() == 0
            && pool.meter.active == 0
        {
            pool.state = State::Gone;
            pool.slots.clear();
            self.gone.push(index as u32);
        }
    }

    /// Index of the pool with this number, if it can be one of this device's.
    #[inline]
    pub(super) fn index_of(&self, number: u32) -> Option<usize> {
        (number & !POOL_INDEX_MASK == self.tag).then_some((number & POOL_INDEX_MASK) as usize)
    }

    /// Index of the pool that this id names, which may be closing.
    #[inline]
    pub(super) fn index_existing(&self, id: PoolId) -> Result<usize, PoolError> {
        self.index_of(id.number)
            .filter(|index| self.pools.get(*index).is_some_and(|pool| pool.serial == id.serial && pool.state != State::Gone))
            .ok_or_else(|| self.not_open(id))
    }

    /// Index of the pool that this id names, which takes new values.
    #[inline]
    pub(super) fn index_accepting(&self, id: PoolId) -> Result<usize, PoolError> {
        self.index_of(id.number)
            .filter(|index| self.pools.get(*index).is_some_and(|pool| pool.serial == id.serial && pool.state == State::Open))
            .ok_or_else(|| self.not_open(id))
    }

    /// Index of the pool that this id names, which takes a new storage.
    #[inline]
    pub(super) fn index_with_room(&self, id: PoolId) -> Result<usize, PoolError> {
        let index = self.index_accepting(id)?;
        if self.pools.get(index).is_some_and(|pool| pool.slots.has_room()) {
            return Ok(index);
        }
        Err(PoolError::Exhausted { device: self.device.clone(), pool: id.name(), what: "slot" })
    }

    #[cold]
    pub(super) fn not_open(&self, id: PoolId) -> PoolError {
        PoolError::NotOpen { device: self.device.clone(), pool: id.name(), had: id.serial }
    }

    #[cold]
    fn out_of_memory(&self, class: usize) -> PoolError {
        let active = self.meters.total().active;
        let (device, reserved, largest) = (self.device.clone(), self.reserved, self.largest(5));
        PoolError::OutOfMemory { device, bytes: class, active, reserved, largest }
    }

    pub(super) fn number_at(&self, index: usize) -> u32 {
        self.tag | index as u32
    }

    /// Brings a pool's counter close to its end.
    #[cfg(test)]
    pub(super) fn skip_generations(&mut self, id: PoolId, next: u32) {
        let index = self.index_existing(id).unwrap();
        self.pools[index].slots.skip_to(next);
    }
}

impl<B> Pool<B> {
    fn new(serial: u64) -> Self {
        Pool { slots: Slots::default(), meter: Meter::default(), generation: 0, serial, state: State::Open }
    }
}
