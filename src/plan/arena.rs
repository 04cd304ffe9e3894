//! Offsets in common memory for slots that do not outlive their plan, so that its size comes close to their running sum. A device makes
//! buffers of so many bytes at most: the memory is cut into pages of that, and no slot lies across two.
use super::place::{FOREVER, Slot};
use std::collections::BTreeSet;

/// Slots up to which every pair may be compared.
const FEW: usize = 6000;

/// The offset of each slot (of those that outlive the plan, 0), and the bytes that all take.
pub(super) fn offsets(slots: &[Slot], least: usize, page: usize) -> (Vec<usize>, usize) {
    let mut best = in_order(slots, page);
    if slots.len() > FEW {
        return best;
    }
    let lasting = |slot: &Slot| slot.to as usize - slot.from as usize + 1;
    let orders: [&dyn Fn(&Slot) -> usize; 3] = [&|slot| slot.bytes, &lasting, &|slot| slot.bytes.saturating_mul(lasting(slot))];
    for order in orders {
        if best.1 <= least {
            break;
        }
        let other = largest_first(slots, order, page);
        if other.1 < best.1 {
            best = other;
        }
    }
    best
}

/// Where a slot begins that may begin at `start`: there, or where the next page does.
fn in_page(start: usize, bytes: usize, page: usize) -> usize {
    if start / page == (start + bytes.max(1) - 1) / page { start } else { start.next_multiple_of(page) }
}

/// First launch first: each slot takes the smallest gap that holds it.
fn in_order(slots: &[Slot], page: usize) -> (Vec<usize>, usize) {
    let mut offsets = vec![0; slots.len()];
    let mut total = 0;
    // Free ranges by (bytes, offset), and by (offset, end).
    let mut gaps: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut ranges: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut ends: Vec<usize> = (0..slots.len()).filter(|&s| slots[s].to != FOREVER).collect();
    ends.sort_by_key(|&s| slots[s].to);
    let mut ended = ends.into_iter().peekable();
    for (s, slot) in slots.iter().enumerate() {
        while let Some(e) = ended.next_if(|&e| slots[e].to < slot.from) {
            free(&mut gaps, &mut ranges, offsets[e], offsets[e] + slots[e].bytes);
        }
        if slot.to == FOREVER {
            continue;
        }
        let holds = |&&(bytes, start): &&(usize, usize)| in_page(start, slot.bytes, page) + slot.bytes <= start + bytes;
        let found = gaps.range((slot.bytes, 0)..).find(holds).copied();
        let (start, end) = match found {
            Some((bytes, start)) => (start, start + bytes),
            // The last gap grows if it touches the end.
            None => match ranges.last().copied().filter(|&(_, end)| end == total) {
                Some((start, end)) => (start, end),
                None => (total, total),
            },
        };
        if end > start {
            gaps.remove(&(end - start, start));
            ranges.remove(&(start, end));
        }
        let at = in_page(start, slot.bytes, page);
        if at > start {
            gaps.insert((at - start, start));
            ranges.insert((start, at));
        }
        offsets[s] = at;
        let used = at + slot.bytes;
        total = total.max(used);
        if end > used {
            gaps.insert((end - used, used));
            ranges.insert((used, end));
        }
    }
    (offsets, total)
}

/// Frees a range and joins it with its neighbours.
fn free(gaps: &mut BTreeSet<(usize, usize)>, ranges: &mut BTreeSet<(usize, usize)>, mut start: usize, mut end: usize) {
    if let Some(&(s, e)) = ranges.range(..(start, 0)).next_back()
        && e == start
    {
        ranges.remove(&(s, e));
        gaps.remove(&(e - s, s));
        start = s;
    }
    if let Some(&(s, e)) = ranges.range((end, 0)..).next()
        && s == end
    {
        ranges.remove(&(s, e));
        gaps.remove(&(e - s, s));
        end = e;
    }
    ranges.insert((start, end));
    gaps.insert((end - start, start));
}

/// Largest slot first, by some measure: each takes the lowest offset at which it meets none that lives at the same time.
fn largest_first(slots: &[Slot], measure: &dyn Fn(&Slot) -> usize, page: usize) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..slots.len()).filter(|&s| slots[s].to != FOREVER).collect();
    order.sort_by_key(|&s| (usize::MAX - measure(&slots[s]), slots[s].from));
    let mut offsets = vec![0; slots.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    let mut total = 0;
    for s in order {
        let slot = slots[s];
        let mut offset = 0;
        // Placed slots stand in the order of their offsets.
        for &p in &placed {
            let other = slots[p];
            if other.from > slot.to || slot.from > other.to {
                continue;
            }
            if offsets[p] >= offset + slot.bytes {
                break;
            }
            offset = in_page(offset.max(offsets[p] + other.bytes), slot.bytes, page);
        }
        offsets[s] = offset;
        total = total.max(offset + slot.bytes);
        let at = placed.partition_point(|&p| offsets[p] <= offset);
        placed.insert(at, s);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::place::tests::any_slots;
    use proptest::prelude::*;

    fn check(slots: &[Slot], offsets: &[usize], total: usize, page: usize) {
        for (a, x) in slots.iter().enumerate().filter(|(_, x)| x.to != FOREVER) {
            assert!(offsets[a] + x.bytes <= total);
            assert_eq!(offsets[a] / page, (offsets[a] + x.bytes - 1) / page, "{x:?} lies across pages of {page}");
            for (b, y) in slots.iter().enumerate().skip(a + 1).filter(|(_, y)| y.to != FOREVER) {
                let together = x.from <= y.to && y.from <= x.to;
                let apart = offsets[a] + x.bytes <= offsets[b] || offsets[b] + y.bytes <= offsets[a];
                assert!(!together || apart, "{x:?} at {} and {y:?} at {}", offsets[a], offsets[b]);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn test_b01_slots_that_live_together_lie_apart(slots in any_slots(20, 12, 10)) {
            // The largest slot has 1216 bytes.
            for page in [usize::MAX, 1280, 4096] {
                let (by_time, total) = in_order(&slots, page);
                check(&slots, &by_time, total, page);
                for measure in [|slot: &Slot| slot.bytes, |slot: &Slot| (slot.to - slot.from) as usize] {
                    let (by_size, total) = largest_first(&slots, &measure, page);
                    check(&slots, &by_size, total, page);
                }
            }
        }
    }

    #[test]
    fn test_b01_equal_slots_take_no_more_than_their_running_sum() {
        let slots: Vec<Slot> = (0..30).map(|s| Slot { bytes: 64, from: s, to: s + 3 }).collect();
        assert_eq!(offsets(&slots, 256, usize::MAX).1, 256);
        assert_eq!(offsets(&slots, 256, 128).1, 256);
    }
}
