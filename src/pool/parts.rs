//! Owns buffers with parts: storages lie beside each other in one, which is free again when the last of them has ended, and the bytes
//! beside them can go back to the system before that.

use super::owners::{Allocator, Pools};
use super::size_class::class_bytes;

/// Plans with parts that end while a buffer has parts, from which these count as kept for long: gradients that are accumulated or cleared
/// in turns live shorter.
const LONG: u64 = 4;

/// Names a buffer with parts, as long as it has any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WholeId(u32);

/// A buffer with parts.
#[derive(Debug)]
struct Whole<B> {
    buffer: B,
    bytes: usize,
    /// Whether it serves requests of exactly its size, not of a class.
    is_exact: bool,
    /// Whoever took it may make more parts.
    is_open: bool,
    /// Offsets and bytes of the parts that it was cut into.
    parts: Vec<(usize, usize)>,
    /// How many of them have a storage.
    living: usize,
    /// Offsets and bytes of what no part has.
    spare: Vec<(usize, usize)>,
    /// Bytes of what no part has and the system has back.
    given: usize,
    /// Plans with parts that had ended before.
    born: u64,
}

impl<B> Whole<B> {
    /// What lies beside the parts, from which nothing was given back yet.
    fn gaps(&mut self) -> Vec<(usize, usize)> {
        self.parts.sort_unstable();
        let mut gaps = Vec::new();
        let mut end = 0;
        for &(offset, bytes) in self.parts.iter().chain(&[(self.bytes, 0)]) {
            if offset > end {
                gaps.push((end, offset - end));
            }
            end = offset + bytes;
        }
        gaps
    }

    fn spare_bytes(&self) -> usize {
        self.spare.iter().map(|&(_, bytes)| bytes).sum()
    }
}

/// All buffers with parts.
#[derive(Debug)]
pub(super) struct Wholes<B> {
    slots: Vec<Option<Whole<B>>>,
    /// Plans with parts that have ended.
    plans: u64,
}

impl<B> Default for Wholes<B> {
    fn default() -> Self {
        Wholes { slots: Vec::new(), plans: 0 }
    }
}

impl<B> Wholes<B> {
    fn get_mut(&mut self, id: WholeId) -> Option<&mut Whole<B>> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    fn closed(&self) -> impl Iterator<Item = &Whole<B>> {
        self.slots.iter().flatten().filter(|whole| !whole.is_open)
    }
}

impl<A: Allocator> Pools<A> {
    /// A taken buffer of so many bytes will have parts, until `end_parting`. `is_exact` says that `take_exact` gave it.
    pub fn begin_parting(&mut self, bytes: usize, is_exact: bool, buffer: A::Buffer) -> WholeId {
        let bytes = if is_exact { bytes } else { class_bytes(bytes) };
        let (parts, spare) = (Vec::new(), Vec::new());
        let whole = Whole { buffer, bytes, is_exact, is_open: true, parts, living: 0, spare, given: 0, born: self.wholes.plans };
        let free = self.wholes.slots.iter().position(Option::is_none);
        let at = free.unwrap_or(self.wholes.slots.len());
        match self.wholes.slots.get_mut(at) {
            Some(slot) => *slot = Some(whole),
            None => self.wholes.slots.push(Some(whole)),
        }
        WholeId(at as u32)
    }

    /// A new part, as a taken buffer of so many bytes; `None` if it lies beyond the buffer or that can have none.
    pub fn begin_part(&mut self, id: WholeId, offset: usize, bytes: usize) -> Option<A::Buffer> {
        let class = class_bytes(bytes);
        let whole = self.wholes.slots.get_mut(id.0 as usize)?.as_mut()?;
        if offset.checked_add(class)? > whole.bytes {
            return None;
        }
        let part = self.allocator.part(&whole.buffer, id, offset)?;
        whole.parts.push((offset, class));
        whole.living += 1;
        Some(part)
    }

    /// Whoever took these buffers makes no more parts of them, nor has anything to do with them.
    pub fn end_parting(&mut self, ids: impl IntoIterator<Item = WholeId>) {
        let before = self.wholes.plans;
        for id in ids {
            self.wholes.plans = before + 1;
            if let Some(whole) = self.wholes.get_mut(id) {
                whole.is_open = false;
                let gaps = whole.gaps();
                whole.spare.extend(gaps);
            }
            self.free_if_unused(id);
        }
    }

    pub(super) fn end_part(&mut self, id: WholeId, offset: usize, class: usize) {
        if let Some(whole) = self.wholes.get_mut(id) {
            whole.living -= usize::from(whole.living > 0);
            whole.spare.push((offset, class));
        }
        self.free_if_unused(id);
    }

    /// A buffer without parts is one of the cache again. Where the system has some of its bytes back they stay there if what may be
    /// reserved is bounded, and the rest goes after them; else it gets them again, so that steps which repeat ask for nothing.
    fn free_if_unused(&mut self, id: WholeId) {
        let Some(slot) = self.wholes.slots.get_mut(id.0 as usize) else { return };
        let Some(Whole { buffer, bytes, is_exact, given, .. }) = slot.take_if(|whole| !whole.is_open && whole.living == 0) else {
            return;
        };
        self.allocator.regain(given);
        if given > 0 && self.allocator.is_bounded() {
            drop(buffer);
            self.reserved = self.reserved.saturating_sub(bytes - given);
            return;
        }
        self.reserve(given);
        match is_exact {
            true => self.give_exact(bytes, buffer),
            false => self.cache.put(bytes, buffer),
        }
    }

    /// Whether bytes beside the parts of a buffer can go back to the system while the parts stay.
    pub fn gives_back(&self) -> bool {
        self.allocator.gives_back()
    }

    /// Bytes of the system beside the parts of buffers, that nothing can use before the last part has ended.
    fn spare(&self) -> usize {
        self.wholes.closed().map(Whole::spare_bytes).sum()
    }

    /// Of these, what stays there as long as the parts live: reserved, but neither active nor cached.
    pub fn stuck(&self) -> usize {
        if self.gives_back() { 0 } else { self.spare() }
    }

    /// Bytes that `trim` would return.
    pub(super) fn free_bytes(&self) -> usize {
        self.cache.cached_bytes() + if self.gives_back() { self.spare() } else { 0 }
    }

    /// Returns what lies beside parts until at least so many bytes are gone or nothing is left; the bytes.
    pub(super) fn give_back_spare(&mut self, least: usize) -> usize {
        self.give_back_of(|_, _| true, least)
    }

    /// Returns what lies beside parts that are kept for long.
    pub(super) fn give_back_long_kept(&mut self) {
        self.give_back_of(|plans, born| plans - born >= LONG, usize::MAX);
    }

    fn give_back_of(&mut self, is_meant: impl Fn(u64, u64) -> bool, least: usize) -> usize {
        if !self.gives_back() {
            return 0;
        }
        let (allocator, plans) = (&self.allocator, self.wholes.plans);
        let mut returned = 0;
        for whole in self.wholes.slots.iter_mut().flatten().filter(|whole| !whole.is_open && is_meant(plans, whole.born)) {
            if returned >= least {
                break;
            }
            let before = whole.spare_bytes();
            whole.spare.retain(|&(offset, bytes)| !allocator.give_back(&whole.buffer, offset, bytes));
            let given = before - whole.spare_bytes();
            whole.given += given;
            returned += given;
        }
        self.reserved = self.reserved.saturating_sub(returned);
        returned
    }

    /// Buffers that the allocator granted so far.
    pub fn granted(&self) -> u64 {
        self.granted
    }
}

#[cfg(test)]
mod tests {
    use super::super::owners::Returned;
    use super::*;
    use std::cell::Cell;

    /// Buffers by number.
    #[derive(Debug)]
    enum Piece {
        Whole(u32),
        Part(WholeId, usize),
    }

    #[derive(Default)]
    struct Numbers {
        made: Cell<u32>,
        given: Cell<usize>,
        keeps: bool,
        is_bounded: Cell<bool>,
    }

    impl Allocator for Numbers {
        type Buffer = Piece;

        fn allocate(&self, _: usize) -> Option<Piece> {
            self.made.set(self.made.get() + 1);
            Some(Piece::Whole(self.made.get()))
        }

        fn returned(&self, buffer: Piece) -> Returned<Piece> {
            match buffer {
                Piece::Part(id, offset) => Returned::Part(id, offset),
                whole => Returned::Free(whole),
            }
        }

        fn part(&self, _: &Piece, id: WholeId, offset: usize) -> Option<Piece> {
            Some(Piece::Part(id, offset))
        }

        fn gives_back(&self) -> bool {
            !self.keeps
        }

        fn give_back(&self, _: &Piece, _: usize, bytes: usize) -> bool {
            self.given.set(self.given.get() + bytes);
            true
        }

        fn regain(&self, bytes: usize) {
            self.given.set(self.given.get() - bytes);
        }

        fn is_bounded(&self) -> bool {
            self.is_bounded.get()
        }

        fn settle(&self) {}
    }

    /// Pools with one buffer of 4096 bytes that has parts at 1024 and at 2048, and the handles of these.
    fn parted(allocator: Numbers) -> (Pools<Numbers>, Vec<crate::pool::Handle>) {
        let mut pools = Pools::new(allocator, "parts");
        let pool = pools.persistent();
        let buffer = pools.take_buffer(4096).unwrap();
        let whole = pools.begin_parting(4096, false, buffer);
        let mut parts = Vec::new();
        for (offset, bytes) in [(2048, 2048), (1024, 512)] {
            let part = pools.begin_part(whole, offset, bytes).unwrap();
            parts.push(pools.adopt(pool, bytes, part, false).unwrap());
        }
        assert!(pools.begin_part(whole, 4096, 64).is_none());
        // While parts are made the rest is lent to whoever makes them.
        assert_eq!((pools.stats().cached, pools.trim()), (0, 0));
        pools.end_parting([whole]);
        (pools, parts)
    }

    fn figures(pools: &Pools<Numbers>) -> (usize, usize, usize) {
        let stats = pools.stats();
        assert_eq!(stats.active + stats.cached + pools.stuck(), stats.reserved);
        (stats.active, stats.cached, stats.reserved)
    }

    #[test]
    fn test_b04_a_buffer_with_parts_is_free_when_the_last_one_ends_and_every_byte_is_counted() {
        let (mut pools, parts) = parted(Numbers::default());
        let pool = pools.persistent();
        assert_eq!(figures(&pools), (2560, 1536, 4096));
        // A part that becomes another storage stays one.
        let (bytes, part) = pools.take_back(parts[1]).unwrap();
        let second = pools.adopt(pool, bytes, part, false).unwrap();
        pools.release(parts[0]).unwrap();
        assert_eq!(figures(&pools), (512, 3584, 4096));
        assert!(pools.release(parts[0]).is_err() && pools.release(parts[1]).is_err());
        pools.release(second).unwrap();
        assert_eq!((figures(&pools), pools.granted()), ((0, 4096, 4096), 1));
        assert!(matches!(pools.take_buffer(4000), Ok(Piece::Whole(1))));
    }

    #[test]
    fn test_b04_whoever_made_parts_may_be_the_last_to_let_go() {
        let mut pools = Pools::new(Numbers::default(), "parts");
        let pool = pools.persistent();
        let buffer = pools.take_exact(5000).unwrap();
        let whole = pools.begin_parting(5000, true, buffer);
        let part = pools.begin_part(whole, 64, 64).unwrap();
        let part = pools.adopt(pool, 64, part, false).unwrap();
        assert_eq!(pools.reset(pool).unwrap(), 64);
        assert!(pools.get(part).is_err());
        assert_eq!((pools.stats().cached, pools.stats().reserved), (0, 5000));
        pools.end_parting([whole]);
        assert_eq!(figures(&pools), (0, 5000, 5000));
        assert!(matches!(pools.take_exact(5000), Ok(Piece::Whole(1))));
    }

    #[test]
    fn test_m07_what_lies_beside_parts_goes_back_to_the_system_and_is_regained_with_the_last_part() {
        let (mut pools, parts) = parted(Numbers::default());
        assert_eq!((pools.trim(), figures(&pools)), (1536, (2560, 0, 2560)));
        assert_eq!((pools.trim(), pools.allocator().given.get()), (0, 1536));
        pools.release(parts[0]).unwrap();
        assert_eq!(figures(&pools), (512, 2048, 2560));
        assert_eq!((pools.trim(), figures(&pools)), (2048, (512, 0, 512)));
        pools.release(parts[1]).unwrap();
        assert_eq!((figures(&pools), pools.allocator().given.get()), ((0, 4096, 4096), 0));
    }

    #[test]
    fn test_b01_under_a_bound_nothing_is_regained() {
        let (mut pools, parts) = parted(Numbers::default());
        // Room for less than there is beside the parts.
        pools.within(Some(1000), |_| ());
        assert_eq!(figures(&pools), (2560, 0, 2560));
        pools.allocator().is_bounded.set(true);
        for part in parts {
            pools.release(part).unwrap();
        }
        assert_eq!((figures(&pools), pools.allocator().given.get()), ((0, 0, 0), 0));
    }

    #[test]
    fn test_b04_only_parts_that_are_kept_for_long_lose_what_lies_beside_them() {
        let (mut pools, _parts) = parted(Numbers::default());
        for plans in 1..=LONG {
            pools.take_buffer(64).unwrap();
            assert_eq!(pools.allocator().given.get() > 0, plans == LONG);
            let buffer = pools.take_exact(100).unwrap();
            let whole = pools.begin_parting(100, true, buffer);
            pools.end_parting([whole]);
        }
    }

    #[test]
    fn test_b01_what_cannot_be_given_back_is_stuck() {
        let (mut pools, parts) = parted(Numbers { keeps: true, ..Numbers::default() });
        assert_eq!((pools.trim(), figures(&pools), pools.stuck()), (0, (2560, 0, 4096), 1536));
        for part in parts {
            pools.release(part).unwrap();
        }
        assert_eq!((figures(&pools), pools.stuck()), ((0, 4096, 4096), 0));
    }
}
