//! Buffers that slots have one after the other, each of one size class, and larger ones in which kept slots lie beside each other.
use super::lend::Lent;
use super::place::{FOREVER, Slot};
use crate::graph::MAPPED_BYTES;
use std::collections::BTreeMap;

/// Bytes from which a slot may be a part of a buffer: size classes are multiples of the system's pages then, so that what lies beside it
/// can go back.
pub(super) const LEAST_PART: usize = 64 << 10;
/// Parts that a buffer has at most.
const MOST_PARTS: usize = 64;

/// Where a slot lies that is lent nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub buffer: u32,
    /// The offset, if it is a part of the buffer.
    pub part: Option<usize>,
}

/// The buffers of a plan, and the home of each slot.
pub(super) struct Sharing {
    pub homes: Vec<At>,
    pub buffers: Vec<usize>,
}

impl Sharing {
    /// Bytes of all buffers.
    pub fn total(&self) -> usize {
        self.buffers.iter().sum()
    }
}

/// The buffers of slots, but for those that are lent one. Kept slots that begin after launch `beside` may lie beside each other in a buffer
/// that had a larger temporary before.
pub(super) fn share(slots: &[Slot], lent: &[Lent], beside: Option<u32>) -> Sharing {
    let mut is_host = vec![false; slots.len()];
    lent.iter().flatten().for_each(|&(kept, _)| is_host[kept as usize] = true);
    let mut buffers = Buffers::default();
    let mut homes: Vec<At> = Vec::with_capacity(slots.len());
    let is_ending = |s: &u32| slots[*s as usize].to != FOREVER && lent[*s as usize].is_none();
    let mut ends: Vec<u32> = (0..slots.len() as u32).filter(is_ending).collect();
    ends.sort_by_key(|&s| slots[s as usize].to);
    let mut ended = ends.into_iter().peekable();
    for (s, slot) in slots.iter().enumerate() {
        // Slots stand in the order of their first launches.
        while let Some(s) = ended.next_if(|&s| slots[s as usize].to < slot.from) {
            buffers.give(slots[s as usize].bytes, homes[s as usize].buffer);
        }
        let may_be_part = slot.to == FOREVER && slot.bytes >= LEAST_PART && beside.is_some_and(|launch| slot.from > launch);
        homes.push(match (lent[s], is_host[s]) {
            (Some(_), _) => At { buffer: u32::MAX, part: None },
            // What has guests has a buffer of its own from the start.
            (None, true) => buffers.make(slot.bytes),
            (None, false) if may_be_part => buffers.take_beside(slot.bytes),
            (None, false) => buffers.take(slot.bytes),
        });
    }
    Sharing { homes, buffers: buffers.bytes }
}

#[derive(Default)]
struct Buffers {
    bytes: Vec<usize>,
    free: BTreeMap<usize, Vec<u32>>,
    /// Buffers with parts: bytes that are left behind the last one, and the buffer.
    parted: Vec<(usize, u32)>,
}

impl Buffers {
    fn make(&mut self, bytes: usize) -> At {
        self.bytes.push(bytes);
        At { buffer: self.bytes.len() as u32 - 1, part: None }
    }

    fn take(&mut self, bytes: usize) -> At {
        match self.free.get_mut(&bytes).and_then(Vec::pop) {
            Some(buffer) => At { buffer, part: None },
            None => self.make(bytes),
        }
    }

    fn give(&mut self, bytes: usize, buffer: u32) {
        self.free.entry(bytes).or_default().push(buffer);
    }

    fn take_beside(&mut self, bytes: usize) -> At {
        if self.free.get(&bytes).is_some_and(|list| !list.is_empty()) {
            return self.take(bytes);
        }
        let fitting = self.parted.iter_mut().filter(|(left, _)| *left >= bytes);
        if let Some((left, buffer)) = fitting.min() {
            let offset = self.bytes[*buffer as usize] - *left;
            *left -= bytes;
            return At { buffer: *buffer, part: Some(offset) };
        }
        // The class of which as many as fit leave the smallest part.
        let left = |class: usize| (class % bytes) as f64 / class as f64;
        let classes = MAPPED_BYTES.max(bytes + 1)..=MAPPED_BYTES.max(bytes.saturating_mul(MOST_PARTS));
        let larger = self.free.range_mut(classes).filter(|(_, list)| !list.is_empty());
        let least = larger.min_by(|(a, _), (b, _)| left(**a).total_cmp(&left(**b)));
        match least.and_then(|(&class, list)| Some((class, list.pop()?))) {
            Some((class, buffer)) => {
                self.parted.push((class - bytes, buffer));
                At { buffer, part: Some(0) }
            }
            None => self.make(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lend::lend;
    use super::*;
    use crate::plan::place::tests::any_slots;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn test_b04_what_lives_together_in_shared_buffers_lies_apart(slots in any_slots(9, 20, 3), launch in 0u32..40) {
            // So large that kept ones may be parts, and others may have them.
            let slots: Vec<Slot> = slots.iter().map(|s| Slot { bytes: s.bytes * 8192, ..*s }).collect();
            let (none, guests) = (vec![None; slots.len()], lend(&slots, usize::MAX));
            for (lent, beside) in [(&none, None), (&guests, None), (&none, Some(launch)), (&guests, Some(launch))] {
                let sharing = share(&slots, lent, beside);
                let range = |s: usize| {
                    let (at, offset) = lent[s].map_or((s, 0), |(kept, offset)| (kept as usize, offset));
                    let start = offset + sharing.homes[at].part.unwrap_or(0);
                    (sharing.homes[at].buffer, start, start + slots[s].bytes)
                };
                for a in 0..slots.len() {
                    let (buffer, start, end) = range(a);
                    prop_assert!(end <= sharing.buffers[buffer as usize]);
                    let is_late = slots[a].to == FOREVER && beside.is_some_and(|launch| launch < slots[a].from);
                    prop_assert!(sharing.homes[a].part.is_none() || is_late);
                    for b in a + 1..slots.len() {
                        let together = slots[a].from <= slots[b].to && slots[b].from <= slots[a].to;
                        let (other, first, last) = range(b);
                        prop_assert!(!together || buffer != other || last <= start || end <= first);
                    }
                }
            }
        }
    }

    #[test]
    fn test_b04_kept_slots_lie_beside_each_other_where_a_larger_one_was() {
        const KIB: usize = 2 << 10;
        let brief = |from, to, kib| Slot { bytes: kib * KIB, from, to };
        let kept = |from, kib| Slot { bytes: kib * KIB, from, to: FOREVER };
        let slots = [brief(0, 3, 512), brief(1, 2, 512), kept(1, 192), kept(3, 192), kept(4, 192), kept(5, 192), kept(6, 16)];
        let lent = vec![None; slots.len()];
        assert_eq!(share(&slots, &lent, None).total(), (2 * 512 + 4 * 192 + 16) * KIB);
        let sharing = share(&slots, &lent, Some(1));
        assert_eq!(sharing.total(), (2 * 512 + 192 + 16) * KIB);
        let parts: Vec<_> = sharing.homes.iter().map(|at| at.part).collect();
        assert_eq!(parts, [None, None, None, Some(0), Some(192 * KIB), Some(0), None]);
        assert_eq!(sharing.homes[3].buffer, sharing.homes[4].buffer);
    }
}
