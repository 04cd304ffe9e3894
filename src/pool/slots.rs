//! Owns the generational slot table of one pool: one slot per storage, and no slot and generation given out twice.

use std::num::NonZeroU32;

/// Most slots of one table: a slot number and a position in the list of live slots must both fit a `u32`.
const MAX_SLOTS: usize = u32::MAX as usize;

/// Entries that a cleared table keeps room for, so that short tapes do not pay for growing it again.
const KEPT_CAPACITY: usize = 4096;

/// One place for a storage. Occupied while `buffer` is there; a vacant slot already has a newer generation than every
/// handle that was given out for it, so comparing generations is the whole check.
#[derive(Debug)]
struct Slot<B> {
    /// 0 once the slot is retired: no handle has it.
    generation: u32,
    /// Where the slot stands in `live`, while occupied.
    position: u32,
    class: usize,
    buffer: Option<B>,
}

/// Why a lookup found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Miss {
    /// Generation of the slot now; 0 if it is retired or was never there.
    pub(crate) current: u32,
    /// True when no handle with this slot and generation can ever have been given out.
    pub(crate) is_foreign: bool,
}

/// The slot table of one pool.
#[derive(Debug)]
pub(crate) struct Slots<B> {
    slots: Vec<Slot<B>>,
    vacant: Vec<u32>,
    /// The occupied slots, so that a reset costs what is live and not what once was.
    live: Vec<u32>,
    /// Generation that the next change of a slot draws.
    next: NonZeroU32,
    /// Most slots the table ever had: `clear` forgets slots, yet their old handles are still known to be stale.
    most_slots: usize,
    has_wrapped: bool,
}

impl<B> Default for Slots<B> {
    fn default() -> Self {
        Slots {
            slots: Vec::new(),
            vacant: Vec::new(),
            live: Vec::new(),
            next: NonZeroU32::MIN,
            most_slots: 0,
            has_wrapped: false,
        }
    }
}

impl<B> Slots<B> {
    /// True when `occupy` may be called.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.slots.len() < MAX_SLOTS
    }

    pub(crate) fn live_count(&self) -> usize {
        self.live.len()
    }

    /// Puts a buffer into a slot. The caller has checked `has_room`.
    #[inline]
    pub(crate) fn occupy(&mut self, class: usize, buffer: B) -> (u32, NonZeroU32) {
        let generation = self.draw();
        // `has_room` bounds both lengths, so neither cast loses bits.
        let position = self.live.len() as u32;
        let filled = Slot { generation: generation.get(), position, class, buffer: Some(buffer) };
        let number = self.vacant_slot(generation.get()).unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(number as usize) {
            Some(slot) => *slot = filled,
            None => self.slots.push(filled),
        }
        self.live.push(number);
        (number, generation)
    }

    /// A vacant slot that may take this generation. One that may not has seen it before the counter wrapped, and is
    /// retired.
    #[inline]
    fn vacant_slot(&mut self, generation: u32) -> Option<u32> {
        loop {
            let number = self.vacant.pop()?;
            match self.slots.get_mut(number as usize) {
                Some(slot) if slot.generation < generation => return Some(number),
                Some(slot) => slot.generation = 0,
                None => {}
            }
        }
    }

    /// Empties the slot if slot and generation match what was given out.
    #[inline]
    pub(crate) fn vacate(&mut self, number: u32, generation: NonZeroU32) -> Option<(usize, B)> {
        let slot = self.slots.get_mut(number as usize).filter(|slot| slot.generation == generation.get())?;
        let buffer = slot.buffer.take()?;
        let (class, position) = (slot.class, slot.position as usize);
        self.live.swap_remove(position);
        if let Some(moved) = self.live.get(position).copied()
            && let Some(slot) = self.slots.get_mut(moved as usize)
        {
            slot.position = position as u32;
        }
        self.advance(number, generation.get());
        Some((class, buffer))
    }

    /// Gives an emptied slot a newer generation, or retires it where that would wrap.
    #[inline]
    fn advance(&mut self, number: u32, had: u32) {
        let drawn = self.draw().get();
        let is_newer = drawn > had;
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.generation = if is_newer { drawn } else { 0 };
        }
        if is_newer {
            self.vacant.push(number);
        }
    }

    /// The class and buffer of a live storage.
    #[inline]
    pub(crate) fn find(&self, number: u32, generation: NonZeroU32) -> Option<(usize, &B)> {
        let slot = self.slots.get(number as usize).filter(|slot| slot.generation == generation.get())?;
        Some((slot.class, slot.buffer.as_ref()?))
    }

    /// The buffer of a live storage.
    #[inline]
    pub(crate) fn find_mut(&mut self, number: u32, generation: NonZeroU32) -> Option<&mut B> {
        let slot = self.slots.get_mut(number as usize).filter(|slot| slot.generation == generation.get())?;
        slot.buffer.as_mut()
    }

    /// Why `find` has nothing for this slot and generation.
    #[cold]
    pub(crate) fn miss(&self, number: u32, generation: NonZeroU32) -> Miss {
        let had = generation.get();
        match self.slots.get(number as usize) {
            Some(slot) => Miss { current: slot.generation, is_foreign: slot.generation != 0 && had > slot.generation },
            None if (number as usize) < self.most_slots => Miss { current: self.next.get(), is_foreign: had >= self.next.get() },
            None => Miss { current: 0, is_foreign: true },
        }
    }

    /// Slot, generation, class of every live storage.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, NonZeroU32, usize)> + '_ {
        self.live.iter().filter_map(|number| {
            let slot = self.slots.get(*number as usize)?;
            Some((*number, NonZeroU32::new(slot.generation)?, slot.class))
        })
    }

    /// Empties any one live slot.
    pub(crate) fn vacate_any(&mut self) -> Option<(usize, B)> {
        let number = self.live.last().copied()?;
        let generation = NonZeroU32::new(self.slots.get(number as usize)?.generation)?;
        self.vacate(number, generation)
    }

    /// Forgets the slots of a table that has nothing live, and returns most of its memory. New slots draw newer
    /// generations than all forgotten ones; after the counter wrapped that no longer holds, and the table stays.
    pub(crate) fn clear(&mut self) {
        if self.has_wrapped || !self.live.is_empty() {
            return;
        }
        self.most_slots = self.most_slots.max(self.slots.len());
        self.slots.clear();
        self.slots.shrink_to(KEPT_CAPACITY);
        self.vacant.clear();
        self.vacant.shrink_to(KEPT_CAPACITY);
        self.live.shrink_to(KEPT_CAPACITY);
    }

    #[inline]
    fn draw(&mut self) -> NonZeroU32 {
        let drawn = self.next;
        match drawn.checked_add(1) {
            Some(next) => self.next = next,
            None => self.wrap(),
        }
        drawn
    }

    /// Starts the counter again. Forgotten slots come back as retired ones, so that none of them repeats a generation.
    #[cold]
    fn wrap(&mut self) {
        self.next = NonZeroU32::MIN;
        self.has_wrapped = true;
        while self.slots.len() < self.most_slots {
            self.slots.push(Slot { generation: 0, position: 0, class: 0, buffer: None });
        }
    }

    /// Lets the counter skip ahead; going back would give generations out twice.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(NonZeroU32::new(next).unwrap());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn test_r08_vacated_slot_has_a_newer_generation_before_and_after_reuse() {
        let mut slots = Slots::default();
        let (slot, old) = slots.occupy(64, 'a');
        assert_eq!(slots.vacate(slot, old), Some((64, 'a')));
        let vacant = slots.miss(slot, old);
        assert!(vacant.current > old.get() && !vacant.is_foreign);
        let (again, new) = slots.occupy(64, 'b');
        assert_eq!(again, slot);
        assert_eq!(slots.find(slot, old), None);
        assert_eq!(slots.find_mut(slot, old), None);
        assert_eq!(slots.vacate(slot, old), None);
        assert_eq!(slots.miss(slot, old), Miss { current: new.get(), is_foreign: false });
        assert_eq!(slots.find(slot, new), Some((64, &'b')));
    }

    #[test]
    fn test_r08_generation_of_a_vacant_slot_finds_nothing() {
        let mut slots = Slots::default();
        let (slot, generation) = slots.occupy(64, 'a');
        slots.vacate(slot, generation);
        let forged = NonZeroU32::new(slots.miss(slot, generation).current).unwrap();
        assert_eq!(slots.find(slot, forged), None);
        assert_eq!(slots.vacate(slot, forged), None);
        assert_eq!(slots.live_count(), 0);
    }

    #[test]
    fn test_r08_slot_and_generation_never_repeat_across_wraps_and_clears() {
        for start in 0..24 {
            let mut slots = Slots::default();
            let mut seen = HashSet::new();
            let mut held = Vec::new();
            // Three rounds of the counter, with the same low generations in each.
            for round in 0..3 {
                for step in 0..40_u32 {
                    if step == 12 {
                        slots.skip_to(u32::MAX - start);
                    }
                    let handle = slots.occupy(64, (round, step));
                    assert!(seen.insert(handle), "{handle:?} was given out twice (start {start})");
                    held.push(handle);
                    if step % 3 != 0 {
                        let (slot, generation) = held.swap_remove((step as usize * 7) % held.len());
                        assert!(slots.vacate(slot, generation).is_some());
                    }
                    if step == 8 || step == 36 {
                        for (slot, generation) in held.drain(..) {
                            assert!(slots.vacate(slot, generation).is_some());
                        }
                        slots.clear();
                    }
                    let live = seen.iter().filter(|(slot, generation)| slots.find(*slot, *generation).is_some());
                    assert_eq!(live.count(), held.len());
                    for (slot, generation) in seen.iter().filter(|handle| !held.contains(handle)) {
                        assert_ne!(slots.miss(*slot, *generation).current, generation.get());
                    }
                }
            }
        }
    }

    #[test]
    fn test_r08_wrapping_slot_is_retired() {
        let mut slots = Slots::default();
        slots.skip_to(u32::MAX);
        let (slot, generation) = slots.occupy(64, 'a');
        assert_eq!(generation.get(), u32::MAX);
        assert!(slots.vacate(slot, generation).is_some());
        assert_eq!(slots.miss(slot, generation), Miss { current: 0, is_foreign: false });
        let (other, low) = slots.occupy(64, 'b');
        assert_ne!(other, slot);
        assert_eq!(slots.find(other, low), Some((64, &'b')));
    }

    #[test]
    fn test_clear_returns_the_memory_of_a_large_table_and_keeps_stale_handles_stale() {
        let mut slots = Slots::default();
        let handles: Vec<_> = (0..100_000).map(|number| slots.occupy(64, number)).collect();
        while slots.vacate_any().is_some() {}
        slots.clear();
        assert!(slots.slots.capacity() <= KEPT_CAPACITY && slots.vacant.capacity() <= KEPT_CAPACITY);
        assert!(slots.live.capacity() <= KEPT_CAPACITY);
        for (slot, generation) in handles {
            let miss = slots.miss(slot, generation);
            assert!(!miss.is_foreign && miss.current > generation.get());
        }
    }
}
