//! Owns what is asked of all pools at once: statistics, peaks, the largest storages, trimming and resets.

use super::error::PoolError;
use super::handle::{Handle, PoolId, PoolKind};
use super::owners::{Allocator, Pools, State};
use super::stats::{ScopeId, Stats};

impl<A: Allocator> Pools<A> {
    /// Figures of the device; `generation` counts the resets of all pools.
    pub fn stats(&self) -> Stats {
        let total = self.meters.total();
        Stats {
            active: total.active,
            peak: total.peak,
            cached: self.free_bytes(),
            reserved: self.reserved,
            generation: self.resets,
        }
    }

    /// Figures of all pools of one kind. The cache and the buffers lent to a plan are shared; they stand with the pass
    /// pools, where buffers come and go, so that the kinds add up to `stats`. For pass pools `generation` is the newest
    /// one's, even after that is gone.
    pub fn stats_of(&self, kind: PoolKind) -> Stats {
        let meter = self.meters.of(kind);
        let kept = self.meters.of(PoolKind::Persistent).active.min(self.reserved);
        let (cached, reserved, generation) = match kind {
            PoolKind::Persistent => (0, kept, self.pools.first().map_or(0, |pool| pool.generation)),
            PoolKind::Pass => (self.free_bytes(), self.reserved - kept, self.newest_pass.1),
        };
        Stats { active: meter.active, peak: meter.peak, cached, reserved, generation }
    }

    /// Figures of one pool, whose own buffers are those of its values.
    ///
    /// # Errors
    /// When the pool is gone.
    pub fn stats_of_pool(&self, id: PoolId) -> Result<Stats, PoolError> {
        let index = self.index_existing(id)?;
        Ok(self.pools.get(index).map_or_else(Stats::default, |pool| Stats {
            active: pool.meter.active,
            peak: pool.meter.peak,
            cached: 0,
            reserved: pool.meter.active,
            generation: pool.generation,
        }))
    }

    /// Number of resets of a pool.
    ///
    /// # Errors
    /// When the pool is gone.
    pub fn generation(&self, id: PoolId) -> Result<u64, PoolError> {
        self.stats_of_pool(id).map(|stats| stats.generation)
    }

    /// Checks that a pool was not reset since its generation was `had`.
    ///
    /// # Errors
    /// When it was, naming both generations, or when the pool is gone.
    pub fn check_not_reset(&self, id: PoolId, had: u64) -> Result<(), PoolError> {
        let current = self.generation(id)?;
        if current == had {
            return Ok(());
        }
        Err(PoolError::WasReset { pool: id.name(), had, current })
    }

    /// Number of living storages of all pools.
    pub fn storage_count(&self) -> usize {
        self.pools.iter().map(|pool| pool.slots.live_count()).sum()
    }

    /// The highest `reserved` since the last `reset_peak`.
    pub fn reserved_peak(&self) -> usize {
        self.reserved_peak
    }

    /// Starts every peak again from what is active and reserved now; open scopes keep theirs.
    pub fn reset_peak(&mut self) {
        self.meters.reset_peak();
        self.reserved_peak = self.reserved;
        self.pools.iter_mut().for_each(|pool| pool.meter.reset_peak());
    }

    /// Opens a scope that sees the highest `active` of the device from here on, what is held now included.
    pub fn open_peak_scope(&mut self) -> ScopeId {
        self.meters.open_scope()
    }

    /// The peak of an open scope so far.
    pub fn scope_peak(&self, id: ScopeId) -> Option<usize> {
        self.meters.scope_peak(id)
    }

    /// Closes a scope and gives its peak; scopes may close in any order. For one that is not open it is what is active.
    pub fn close_peak_scope(&mut self, id: ScopeId) -> usize {
        self.meters.close_scope(id).unwrap_or(self.meters.total().active)
    }

    /// Frees the cached buffers, and what lies beside parts, and says how many bytes they had.
    pub fn trim(&mut self) -> usize {
        let bytes = self.cache.trim();
        self.note_dropped(bytes);
        self.settle();
        bytes + self.give_back_spare(usize::MAX)
    }

    /// The largest storages with their bytes, largest first.
    pub fn largest(&self, count: usize) -> Vec<(Handle, usize)> {
        let mut found: Vec<(Handle, usize)> = Vec::new();
        for (index, pool) in self.pools.iter().enumerate() {
            let number = self.number_at(index);
            found.extend(pool.slots.live().map(|(slot, generation, class)| (Handle { pool: number, slot, generation }, class)));
        }
        // Equal sizes stand in a fixed order, so that a report does not change between two looks.
        found.sort_unstable_by_key(|(handle, class)| (usize::MAX - class, handle.pool, handle.slot));
        found.truncate(count);
        found
    }

    /// Frees every storage of a pool into the cache, makes its handles stale and counts the reset. Gives the bytes freed.
    ///
    /// # Errors
    /// When the pool is gone.
    pub fn reset(&mut self, id: PoolId) -> Result<usize, PoolError> {
        let index = self.index_existing(id)?;
        if id == self.newest_pass.0 && index != 0 {
            self.newest_pass.1 += 1;
        }
        Ok(self.reset_at(index))
    }

    /// Resets every pool of the device and returns the cached buffers to it. Gives the bytes freed from storages.
    pub fn reset_all(&mut self) -> usize {
        let newest = self.index_existing(self.newest_pass.0).unwrap_or(0);
        let mut freed = 0;
        for index in 0..self.pools.len() {
            if self.pools.get(index).is_some_and(|pool| pool.state != State::Gone) {
                self.newest_pass.1 += u64::from(index == newest && index != 0);
                freed += self.reset_at(index);
            }
        }
        self.trim();
        freed
    }

    fn reset_at(&mut self, index: usize) -> usize {
        let mut freed = 0;
        while let Some((class, shared)) = self.pools.get_mut(index).and_then(|pool| pool.slots.vacate_any()) {
            freed += class;
            shared.share.fall(class);
            self.give_buffer(class, shared.buffer);
        }
        self.fall(index, freed);
        if let Some(pool) = self.pools.get_mut(index) {
            pool.generation += 1;
        }
        self.resets += 1;
        self.retire_if_empty(index);
        freed
    }
}
