//! Owns the comparison of every figure and every handle of the pools with the model.

use super::world::World;
use crate::pool::{Handle, PoolError, PoolKind, Stats};

impl World {
    pub(super) fn check_figures(&self) {
        let (actives, cached, reserved) = (self.actives(), self.cached_bytes(), self.reserved());
        assert_eq!(self.ledger.bytes.get(), reserved, "bytes alive in the allocator");
        let stats = |kind: usize, cached, reserved, generation| Stats {
            active: actives[kind],
            peak: self.peaks[kind],
            cached,
            reserved,
            generation,
        };
        assert_eq!(self.pools.stats(), stats(0, cached, reserved, self.resets));
        let resets = self.known[&self.ids[0]].resets;
        assert_eq!(self.pools.stats_of(PoolKind::Persistent), stats(1, 0, actives[1], resets));
        let resets = self.newest.map_or(0, |id| self.known[&id].resets);
        assert_eq!(self.pools.stats_of(PoolKind::Pass), stats(2, cached, reserved - actives[1], resets));
        assert_eq!(self.pools.storage_count(), self.living.len());
        for (id, known) in &self.known {
            assert_eq!(self.pools.stats_of_pool(*id).is_err(), known.is_gone);
            if let Ok(stats) = self.pools.stats_of_pool(*id) {
                let active: usize = self.living.values().filter(|it| it.pool == *id).map(|it| it.class).sum();
                assert_eq!((stats.active, stats.generation), (active, known.resets));
            }
        }
        let mut sizes: Vec<usize> = self.living.values().map(|it| it.class).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.truncate(3);
        let largest = self.pools.largest(3);
        assert!(largest.iter().all(|(handle, bytes)| self.living[handle].class == *bytes));
        assert_eq!(largest.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), sizes);
    }

    pub(super) fn check_handles(&mut self) {
        for (handle, it) in &self.living {
            let buffer = self.pools.get(*handle).unwrap();
            assert_eq!((buffer.stamp, buffer.class), (it.stamp, it.class));
            assert_eq!(self.pools.bytes(*handle).unwrap(), it.class);
            assert_eq!(self.pools.owner(*handle).unwrap(), it.pool);
        }
        for handle in self.dead.clone() {
            let error = self.pools.get_mut(handle).map(|_| ()).unwrap_err();
            self.assert_stale(handle, &error, false);
            for error in [self.pools.get(handle).err(), self.pools.bytes(handle).err(), self.pools.owner(handle).err()] {
                self.assert_stale(handle, &error.unwrap(), false);
            }
        }
    }

    /// The error of a dead handle: the pool, and two generations that differ.
    pub(super) fn assert_stale(&self, handle: Handle, error: &PoolError, is_release: bool) {
        let (pool, slot, had, current) = match (error, is_release) {
            (PoolError::Stale { pool, slot, had, current }, false) => (pool, slot, had, current),
            (PoolError::DoubleRelease { pool, slot, had, current }, true) => (pool, slot, had, current),
            _ => panic!("{handle:?}: {error:?}"),
        };
        assert_eq!((pool, *slot, *had), (&handle.pool_name(), handle.slot, handle.generation.get()));
        assert_ne!(had, current);
    }
}
