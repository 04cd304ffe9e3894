//! Owns the byte counters of the pools: what is active now, the peaks since a reset, and nested peak scopes.

use super::handle::PoolKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// Byte figures of one pool, of the pools of one kind, or of a device.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of living values.
    pub active: usize,
    /// Highest `active` since the last `reset_peak`.
    pub peak: usize,
    /// Bytes of free buffers kept for later requests, and beside the parts of buffers where those can be given back.
    pub cached: usize,
    /// Bytes held from the device: in storages, cached, and lent to a running plan.
    pub reserved: usize,
    /// Number of resets.
    pub generation: u64,
}

/// Bytes of living storages that one thread made, whichever thread ends them.
#[derive(Clone, Default, Debug)]
pub(super) struct Share(Arc<AtomicIsize>);

thread_local! {
    static OWN: Share = Share::default();
}

/// Bytes of living storages that this thread made: what tells its share of `active` from other threads'.
pub fn own_bytes() -> isize {
    OWN.try_with(|share| share.0.load(Relaxed)).unwrap_or(0)
}

impl Share {
    /// This thread's, with so many bytes more. A thread that is ending has one for each storage.
    pub(super) fn rise(bytes: usize) -> Share {
        let share = OWN.try_with(Share::clone).unwrap_or_default();
        share.0.fetch_add(bytes as isize, Relaxed);
        share
    }

    /// So many of its bytes ended.
    pub(super) fn fall(self, bytes: usize) {
        self.0.fetch_sub(bytes as isize, Relaxed);
    }
}

/// The buffer of a storage, and whose share it counts in.
#[derive(Debug)]
pub(super) struct Shared<B> {
    pub(super) buffer: B,
    pub(super) share: Share,
}

/// Names one open peak scope.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScopeId(u64);

/// A running byte count and the highest value it had.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Meter {
    pub(crate) active: usize,
    pub(crate) peak: usize,
}

impl Meter {
    #[inline]
    pub(crate) fn rise(&mut self, bytes: usize) {
        self.active = self.active.saturating_add(bytes);
        self.peak = self.peak.max(self.active);
    }

    #[inline]
    pub(crate) fn fall(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.active, "{bytes} bytes died of {} active", self.active);
        self.active = self.active.saturating_sub(bytes);
    }

    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.active;
    }
}

/// The counters of one device: the total, one per kind of pool, and the open peak scopes.
#[derive(Default, Debug)]
pub(crate) struct Meters {
    total: Meter,
    persistent: Meter,
    pass: Meter,
    /// Open scopes in the order of opening, each with the highest total while it was the newest. A scope's peak is then
    /// the highest of its own and all newer entries, and a rise touches one entry however deep the nesting is.
    scopes: Vec<(ScopeId, usize)>,
    scopes_opened: u64,
}

impl Meters {
    #[inline]
    pub(crate) fn rise(&mut self, kind: PoolKind, bytes: usize) {
        self.total.rise(bytes);
        if let Some((_, peak)) = self.scopes.last_mut() {
            *peak = (*peak).max(self.total.active);
        }
        self.of_mut(kind).rise(bytes);
    }

    #[inline]
    pub(crate) fn fall(&mut self, kind: PoolKind, bytes: usize) {
        self.total.fall(bytes);
        self.of_mut(kind).fall(bytes);
    }

    /// Moves bytes between kinds. The total stays, so that a change of owner is never seen as a peak.
    pub(crate) fn shift(&mut self, from: PoolKind, to: PoolKind, bytes: usize) {
        self.of_mut(from).fall(bytes);
        self.of_mut(to).rise(bytes);
    }

    pub(crate) fn total(&self) -> Meter {
        self.total
    }

    pub(crate) fn of(&self, kind: PoolKind) -> Meter {
        match kind {
            PoolKind::Persistent => self.persistent,
            PoolKind::Pass => self.pass,
        }
    }

    #[inline]
    fn of_mut(&mut self, kind: PoolKind) -> &mut Meter {
        match kind {
            PoolKind::Persistent => &mut self.persistent,
            PoolKind::Pass => &mut self.pass,
        }
    }

    /// Starts the peaks of the total and the kinds again from here; open scopes keep theirs.
    pub(crate) fn reset_peak(&mut self) {
        self.total.reset_peak();
        self.persistent.reset_peak();
        self.pass.reset_peak();
    }

    pub(crate) fn open_scope(&mut self) -> ScopeId {
        self.scopes_opened += 1;
        let id = ScopeId(self.scopes_opened);
        self.scopes.push((id, self.total.active));
        id
    }

    pub(crate) fn scope_peak(&self, id: ScopeId) -> Option<usize> {
        let position = self.scopes.iter().position(|(other, _)| *other == id)?;
        self.scopes.iter().skip(position).map(|(_, peak)| *peak).max()
    }

    pub(crate) fn close_scope(&mut self, id: ScopeId) -> Option<usize> {
        let peak = self.scope_peak(id)?;
        let position = self.scopes.iter().position(|(other, _)| *other == id)?;
        let (_, own) = self.scopes.remove(position);
        // The time this entry covered belongs to every older scope, too.
        if let Some((_, older)) = position.checked_sub(1).and_then(|before| self.scopes.get_mut(before)) {
            *older = (*older).max(own);
        }
        Some(peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_m07_scopes_nest_and_include_what_was_held_at_entry() {
        let mut meters = Meters::default();
        meters.rise(PoolKind::Persistent, 100);
        let outer = meters.open_scope();
        let inner = meters.open_scope();
        meters.rise(PoolKind::Pass, 50);
        meters.fall(PoolKind::Pass, 50);
        assert_eq!(meters.close_scope(inner), Some(150));
        let later = meters.open_scope();
        assert_eq!(meters.close_scope(later), Some(100));
        assert_eq!(meters.scope_peak(outer), Some(150));
        meters.reset_peak();
        assert_eq!((meters.total().peak, meters.of(PoolKind::Pass).peak), (100, 0));
        assert_eq!(meters.close_scope(outer), Some(150));
        assert_eq!(meters.close_scope(outer), None);
    }

    #[test]
    fn test_m07_scopes_may_close_in_any_order() {
        let mut meters = Meters::default();
        let [first, second, third] = [meters.open_scope(), meters.open_scope(), meters.open_scope()];
        meters.rise(PoolKind::Pass, 10);
        meters.fall(PoolKind::Pass, 10);
        assert_eq!(meters.close_scope(second), Some(10));
        assert_eq!(meters.close_scope(third), Some(10));
        assert_eq!(meters.close_scope(first), Some(10));
    }

    #[test]
    fn test_m07_change_of_kind_is_no_peak_of_the_total() {
        let mut meters = Meters::default();
        meters.rise(PoolKind::Pass, 10);
        meters.shift(PoolKind::Pass, PoolKind::Persistent, 10);
        assert_eq!((meters.total().active, meters.total().peak), (10, 10));
        assert_eq!((meters.of(PoolKind::Pass).active, meters.of(PoolKind::Persistent).peak), (0, 10));
    }
}
