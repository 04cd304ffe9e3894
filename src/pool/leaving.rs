//! Buffers that the cache dropped and that a device may still be at work on: they count as gone, so little of them may be left.

use super::owners::{Allocator, Pools};

/// Bytes of them from which the device is waited for.
const MOST_LEAVING: usize = 4 << 20;

impl<A: Allocator> Pools<A> {
    /// The cache dropped buffers of so many bytes.
    pub(super) fn note_dropped(&mut self, bytes: usize) {
        self.reserved = self.reserved.saturating_sub(bytes);
        self.leaving = self.leaving.saturating_add(bytes);
        if self.leaving > MOST_LEAVING {
            self.settle();
        }
    }

    /// Waits until what was dropped is free.
    pub(super) fn settle(&mut self) {
        if std::mem::take(&mut self.leaving) > 0 {
            self.allocator.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::WholeId;
    use super::super::owners::Returned;
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    const MIB: usize = 1 << 20;

    /// Bytes that buffers have, and those of dropped ones that the device still uses.
    #[derive(Debug, Default)]
    struct Bytes {
        had: Cell<usize>,
        used: Cell<usize>,
    }

    #[derive(Debug)]
    struct Late(Rc<Bytes>, usize);

    impl Drop for Late {
        fn drop(&mut self) {
            self.0.used.set(self.0.used.get() + self.1);
        }
    }

    /// A device of 64 MiB that uses what was dropped until it is waited for.
    struct Busy(Rc<Bytes>);

    impl Allocator for Busy {
        type Buffer = Late;

        fn allocate(&self, bytes: usize) -> Option<Late> {
            let had = self.0.had.get() + bytes;
            (had <= 64 * MIB).then(|| {
                self.0.had.set(had);
                Late(self.0.clone(), bytes)
            })
        }

        fn returned(&self, buffer: Late) -> Returned<Late> {
            Returned::Free(buffer)
        }

        fn part(&self, _: &Late, _: WholeId, _: usize) -> Option<Late> {
            None
        }

        fn gives_back(&self) -> bool {
            false
        }

        fn give_back(&self, _: &Late, _: usize, _: usize) -> bool {
            false
        }

        fn regain(&self, _: usize) {}

        fn is_bounded(&self) -> bool {
            false
        }

        fn settle(&self) {
            self.0.had.set(self.0.had.get() - self.0.used.take());
        }
    }

    /// Pools whose cache has buffers of 8 MiB, 4 MiB and so on down to 1 MiB, and what their device counts.
    fn pools() -> (Pools<Busy>, Rc<Bytes>) {
        let bytes = Rc::new(Bytes::default());
        let mut pools = Pools::new(Busy(bytes.clone()), "busy");
        let taken: Vec<(usize, Late)> = [8, 4, 2, 1].map(|mib| (mib * MIB, pools.take_buffer(mib * MIB).unwrap())).into();
        taken.into_iter().for_each(|(bytes, buffer)| pools.give_buffer(bytes, buffer));
        (pools, bytes)
    }

    #[test]
    fn test_g04_memory_that_the_cache_gave_back_is_there_for_who_asked_for_it() {
        let (mut pools, bytes) = pools();
        let buffer = pools.take_buffer(60 * MIB);
        assert!(buffer.is_ok());
        assert_eq!((pools.stats().reserved, bytes.had.get()), (60 * MIB, 60 * MIB));
        assert!(pools.take_buffer(8 * MIB).is_err());
    }

    #[test]
    fn test_m07_whatever_drops_buffers_leaves_little_of_them_behind() {
        let (mut pools, bytes) = pools();
        let behind = |pools: &Pools<Busy>| bytes.had.get() - pools.stats().reserved;
        // Small ones go first.
        pools.within(Some(13 * MIB), |_| ());
        assert_eq!((pools.stats().reserved, behind(&pools)), (12 * MIB, 3 * MIB));
        pools.within(Some(10 * MIB), |_| ());
        assert_eq!((pools.stats().reserved, behind(&pools)), (8 * MIB, 0));
        assert_eq!((pools.trim(), behind(&pools)), (8 * MIB, 0));
        for mib in 1..9 {
            let buffer = pools.take_exact(mib * MIB).unwrap();
            pools.give_exact(mib * MIB, buffer);
            assert!(behind(&pools) <= MOST_LEAVING);
        }
        assert_eq!(pools.stats().reserved, (5 + 6 + 7 + 8) * MIB);
        pools.reset_all();
        assert_eq!((pools.stats().reserved, behind(&pools)), (0, 0));
    }
}
