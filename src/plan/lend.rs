//! Lending: what a plan keeps has its buffer from the first launch, and until the kept value is written there, temporaries may lie in it.
use super::flow::Flow;
use super::place::{FOREVER, Slot};
use super::share::LEAST_PART;
use crate::graph::MAPPED_BYTES;

/// Pairs of temporaries and buffers looked at for one placement; beyond, nothing is lent.
const MANY: usize = 16 << 20;
/// Less than one part in so many of what temporaries take is not worth a second search.
const LITTLE: usize = 32;

/// What a planner may count on: so much of the kept values' buffers at each launch, for values that are small enough.
pub(super) struct Lending {
    /// Bytes up to which a value is small; 0 if nothing is lent.
    pub small: usize,
    /// The launch after which large kept values have no buffers of their own, but lie in common memory with others.
    pub common_after: Option<u32>,
    /// Bytes lent while each launch of the program and what is rebuilt for it runs.
    pub bytes: Vec<usize>,
}

impl Lending {
    /// Nothing is lent.
    pub fn none(flow: &Flow) -> Lending {
        Lending { small: 0, common_after: None, bytes: vec![0; flow.reads.len()] }
    }

    /// To values of the size for which most is lent; `None` if that is little. `kept` are the kept temporaries with their bytes.
    pub fn new(flow: &Flow, kept: &[(u32, usize)]) -> Option<Lending> {
        let largest = kept.iter().map(|&(_, bytes)| bytes).max()?;
        let mut sizes: Vec<usize> = flow.bytes.iter().copied().filter(|&bytes| bytes > 0 && bytes <= largest).collect();
        sizes.sort_unstable();
        let all: usize = flow.bytes.iter().sum();
        let lent_to = |small: usize| -> usize { kept.iter().map(|&(_, bytes)| bytes / small * small).sum() };
        let mut best: Option<(usize, usize)> = None;
        let mut start = 0;
        while let Some(&small) = sizes.get(start) {
            let end = sizes.partition_point(|&bytes| bytes <= small);
            // Values of at least half the size: smaller ones would leave gaps that nothing fills.
            let first = sizes.partition_point(|&bytes| bytes <= small / 2);
            let wanted: usize = sizes[first..end].iter().sum();
            let used = wanted.min(lent_to(small));
            if best.is_none_or(|(most, _)| used >= most) {
                best = Some((used, small));
            }
            start = end;
        }
        let (_, small) = best.filter(|&(used, _)| used > all / LITTLE)?;
        Some(Lending { small, common_after: None, bytes: lent(flow, kept.iter().map(|&(t, bytes)| (t, bytes / small * small))) })
    }

    /// To values of any size: those of the kept ones that are made after a launch lie in common memory from then on. `None` if that is
    /// little beside what is alive at most.
    pub fn in_common(flow: &Flow, kept: &[(u32, usize)], after: u32, alive: usize) -> Option<Lending> {
        let late = kept.iter().copied().filter(|&(t, bytes)| bytes >= LEAST_PART && flow.maker[t as usize] > after);
        let common: usize = late.clone().map(|(_, bytes)| bytes).sum();
        let lending = || Lending { small: usize::MAX, common_after: Some(after), bytes: lent(flow, late) };
        (common >= MAPPED_BYTES && common > alive / LITTLE).then(lending)
    }
}

/// What is lent while each launch runs, by temporaries that are made later and lend so many bytes each.
fn lent(flow: &Flow, kept: impl Iterator<Item = (u32, usize)>) -> Vec<usize> {
    let mut lent = vec![0; flow.reads.len()];
    for (t, bytes) in kept {
        // The launch before the one that makes it is the last for which it is lent.
        if let Some(last) = (flow.maker[t as usize] as usize).checked_sub(1) {
            lent[last] += bytes;
        }
    }
    for s in (1..lent.len()).rev() {
        lent[s - 1] += lent[s];
    }
    lent
}

/// Where an ending slot lies in the buffer of a kept one: the kept slot, and the offset.
pub(super) type Lent = Option<(u32, usize)>;

/// For each slot of at most so many bytes that ends, the kept slot in whose buffer it lies before that is written, if there is room.
pub(super) fn lend(slots: &[Slot], small: usize) -> Vec<Lent> {
    let mut lent = vec![None; slots.len()];
    let mut kept: Vec<u32> = (0..slots.len() as u32).filter(|&s| slots[s as usize].to == FOREVER).collect();
    if small == 0 || kept.len().saturating_mul(slots.len()) > MANY {
        return lent;
    }
    kept.sort_by_key(|&s| slots[s as usize].from);
    // What lies in each buffer now, by offset: where it begins, where it ends, and its last launch.
    let mut inside: Vec<Vec<(usize, usize, u32)>> = vec![Vec::new(); kept.len()];
    for (s, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.to != FOREVER && slot.bytes <= small) {
        // The buffer that is written first after the slot has ended: those written later serve what lives longer.
        let first = kept.partition_point(|&k| slots[k as usize].from <= slot.to);
        for (k, inside) in kept.iter().zip(&mut inside).skip(first) {
            let room = slots[*k as usize].bytes;
            if room < slot.bytes {
                continue;
            }
            inside.retain(|&(_, _, to)| to >= slot.from);
            let mut offset = 0;
            let mut at = 0;
            while let Some(&(start, end, _)) = inside.get(at)
                && start < offset + slot.bytes
            {
                offset = end;
                at += 1;
            }
            if offset + slot.bytes <= room {
                inside.insert(at, (offset, offset + slot.bytes, slot.to));
                lent[s] = Some((*k, offset));
                break;
            }
        }
    }
    lent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::place::tests::any_slots;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn test_b01_what_lies_in_a_kept_buffer_ends_before_it_is_written_and_lies_apart(slots in any_slots(9, 20, 3)) {
            let lent = lend(&slots, 6 * 64);
            for (s, place) in lent.iter().enumerate() {
                let Some((k, offset)) = *place else { continue };
                let (slot, kept) = (slots[s], slots[k as usize]);
                prop_assert!(slot.bytes <= 6 * 64 && kept.to == FOREVER && slot.to < kept.from && offset + slot.bytes <= kept.bytes);
                for (o, other) in lent.iter().enumerate().skip(s + 1).filter(|(_, other)| other.is_some_and(|(at, _)| at == k)) {
                    let at = other.map_or(0, |(_, at)| at);
                    let together = slot.from <= slots[o].to && slots[o].from <= slot.to;
                    prop_assert!(!together || offset + slot.bytes <= at || at + slots[o].bytes <= offset);
                }
            }
        }
    }

    #[test]
    fn test_b01_buffers_written_late_are_left_to_what_lives_long() {
        let kept = |from| Slot { bytes: 64, from, to: FOREVER };
        let brief = |from| Slot { bytes: 64, from, to: from + 1 };
        let slots = [brief(0), Slot { bytes: 64, from: 1, to: 8 }, brief(2), brief(5), kept(7), kept(9)];
        let lent: Vec<_> = lend(&slots, 64).into_iter().map(|l| l.map(|(k, _)| k)).collect();
        assert_eq!(lent, [Some(4), Some(5), Some(4), Some(4), None, None]);
    }
}
