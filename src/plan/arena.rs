//! Offsets in common memory for slots, so that its size comes close to their running sum. A device makes buffers of so many bytes at most:
//! the memory is cut into pages of that, and no slot lies across two. What outlives the plan lies at the bottom, without gaps.
use super::place::{FOREVER, Slot};
use std::collections::BTreeSet;

/// Slots up to which every pair may be compared.
pub(super) const FEW: usize = 6000;

/// The offset of each slot, and the bytes that all take; slots of no bytes lie elsewhere. Only of few slots any may outlive the plan.
pub(super) fn offsets(slots: &[Slot], least: usize, page: usize) -> (Vec<usize>, usize) {
    let keeps_any = slots.iter().any(|slot| slot.to == FOREVER && slot.bytes > 0);
    let mut best = if keeps_any { (vec![0; slots.len()], usize::MAX) } else { in_order(slots, page) };
    if slots.len() > FEW {
        return best;
    }
    let lasting = |slot: &Slot| slot.to as usize - slot.from as usize + 1;
    let ends_early = |slot: &Slot| usize::MAX / 2 - slot.to as usize;
    let orders: [&dyn Fn(&Slot) -> usize; 4] =
        [&|slot| slot.bytes, &lasting, &|slot| slot.bytes.saturating_mul(lasting(slot)), &ends_early];
    // The last one serves where those that end late have to make room for what outlives the plan.
    for order in orders.into_iter().take(if keeps_any { 4 } else { 3 }) {
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

/// First launch first: each slot takes the smallest gap that holds it. None outlives the plan.
fn in_order(slots: &[Slot], page: usize) -> (Vec<usize>, usize) {
    let mut offsets = vec![0; slots.len()];
    let mut total = 0;
    // Free ranges by (bytes, offset), and by (offset, end).
    let mut gaps: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut ranges: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut ends: Vec<usize> = (0..slots.len()).filter(|&s| slots[s].bytes > 0).collect();
    ends.sort_by_key(|&s| slots[s].to);
    let mut ended = ends.into_iter().peekable();
    for (s, slot) in slots.iter().enumerate() {
        while let Some(e) = ended.next_if(|&e| slots[e].to < slot.from) {
            free(&mut gaps, &mut ranges, offsets[e], offsets[e] + slots[e].bytes);
        }
        if slot.bytes == 0 {
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

/// Largest slot first, by some measure: each takes the lowest offset at which it meets none that lives at the same time. Before all others
/// come those that outlive the plan, in the order in which they are made: what is above each is free the longer.
fn largest_first(slots: &[Slot], measure: &dyn Fn(&Slot) -> usize, page: usize) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..slots.len()).filter(|&s| slots[s].bytes > 0).collect();
    let size = |slot: &Slot| if slot.to == FOREVER { usize::MAX } else { measure(slot).min(usize::MAX - 1) };
    order.sort_by_key(|&s| (usize::MAX - size(&slots[s]), slots[s].from));
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
        for (a, x) in slots.iter().enumerate().filter(|(_, x)| x.bytes > 0) {
            assert!(offsets[a] + x.bytes <= total);
            assert_eq!(offsets[a] / page, (offsets[a] + x.bytes - 1) / page, "{x:?} lies across pages of {page}");
            for (b, y) in slots.iter().enumerate().skip(a + 1).filter(|(_, y)| y.bytes > 0) {
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
            let elsewhere = |s: &Slot| Slot { bytes: if s.to == FOREVER { 0 } else { s.bytes }, ..*s };
            let ending: Vec<Slot> = slots.iter().map(elsewhere).collect();
            // The largest slot has 1216 bytes.
            for page in [usize::MAX, 1280, 4096] {
                let (by_time, total) = in_order(&ending, page);
                check(&ending, &by_time, total, page);
                for measure in [|slot: &Slot| slot.bytes, |slot: &Slot| (slot.to - slot.from) as usize] {
                    let (by_size, total) = largest_first(&slots, &measure, page);
                    check(&slots, &by_size, total, page);
                }
            }
        }
    }

    #[test]
    fn test_b04_what_outlives_the_plan_lies_at_the_bottom_under_what_ended_before() {
        let kept = |from| Slot { bytes: 64, from, to: FOREVER };
        let slots = [Slot { bytes: 192, from: 0, to: 6 }, Slot { bytes: 192, from: 1, to: 3 }, kept(4), kept(5), kept(7)];
        let (offsets, total) = offsets(&slots, 384, usize::MAX);
        assert_eq!((offsets, total), (vec![192, 0, 0, 64, 128], 384));
    }

    #[test]
    fn test_b01_equal_slots_take_no_more_than_their_running_sum() {
        let slots: Vec<Slot> = (0..30).map(|s| Slot { bytes: 64, from: s, to: s + 3 }).collect();
        assert_eq!(offsets(&slots, 256, usize::MAX).1, 256);
        assert_eq!(offsets(&slots, 256, 128).1, 256);
    }
}
