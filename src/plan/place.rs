//! Placement: how long every temporary lives, which ones take over the memory of others, and the buffers that all lie in.
use super::arena::{FEW, offsets};
use super::lend::{Lent, lend};
use super::lower::{Lowered, Temp};
use super::program::{Program, in_place};
use super::share::{At, LEAST_PART, Sharing, share};
use super::{Kept, Launch, Loc, Place, Step};
use crate::backend::{Kernel, gpu};
use crate::device::Device;
use crate::graph::{MAPPED_BYTES, pools};
use crate::layout::Layout;
use crate::pool::class_bytes;
use smallvec::SmallVec;

/// Where each temporary lies, the sizes of the plan's buffers, and the bytes that live from launch to launch.
pub(super) struct Placement {
    pub places: Vec<Place>,
    pub buffers: Vec<usize>,
    /// Bytes in which temporaries lie at offsets, and of each of the buffers that they are made of.
    pub arena: usize,
    pub page: usize,
    pub steps: Vec<Step>,
    pub overwrites_leaves: bool,
}

/// Memory of one temporary, or of several that take over from each other in place: it counts once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Bytes of its size class.
    pub bytes: usize,
    /// The launch that makes what is in it first.
    pub from: u32,
    /// The launch that reads it last; `FOREVER` if it outlives the plan.
    pub to: u32,
}

/// What holds a temporary: a slot, or a leaf that it overwrites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    Slot(u32),
    Leaf(u32),
}

/// Kept temporaries are in use to the end.
pub(super) const FOREVER: u32 = u32::MAX;
/// Bytes of a plan's buffers from which it is worth a second look how they are shared, if more than one part in so many is not alive.
const LARGE: usize = 32 << 20;
const LITTLE: usize = 32;
/// Bytes of which adapters let bindings start at multiples.
const BINDING_STEP: usize = 256;

/// The slots of a lowered program.
pub(super) struct Slots<'a> {
    temps: &'a [Temp],
    last: Vec<u32>,
    leaf_last: Vec<u32>,
    homes: Vec<Option<Home>>,
    pub slots: Vec<Slot>,
    overwrites_leaves: bool,
}

fn last_uses(lowered: &Lowered) -> Vec<u32> {
    let mut last: Vec<u32> = lowered.temps.iter().map(|t| t.made).collect();
    for (s, launch) in lowered.launches.iter().enumerate() {
        for operand in &launch.ins {
            if let Loc::Temp(t) = operand.loc {
                last[t as usize] = last[t as usize].max(s as u32);
            }
        }
    }
    for Kept { loc, .. } in &lowered.kept {
        if let Loc::Temp(t) = loc {
            last[*t as usize] = FOREVER;
        }
    }
    last
}

fn leaf_last_uses(program: &Program, lowered: &Lowered) -> Vec<u32> {
    let mut last = vec![0u32; program.leaves.len()];
    for (s, launch) in lowered.launches.iter().enumerate() {
        for operand in &launch.ins {
            if let Loc::Leaf(l) = operand.loc {
                last[l as usize] = s as u32;
            }
        }
    }
    for k in &lowered.kept {
        if let Loc::Leaf(l) = k.loc {
            last[l as usize] = FOREVER;
        }
    }
    last
}

/// Places the temporaries of a lowered program: buffers of one size class are used again after the last use of what was in them. Where that
/// takes much more than what is alive, temporaries of other sizes lie in the buffers of kept ones before those are written, or kept ones
/// beside each other in what temporaries are done with.
pub(super) fn place(program: &Program, lowered: &Lowered) -> Placement {
    let slots = Slots::new(program, lowered);
    let mut lent = vec![None; slots.slots.len()];
    let mut sharing = share(&slots.slots, &lent, None);
    if program.device.is_cpu() && sharing.total() >= LARGE {
        let steps = steps(&slots.slots, lowered.launches.len());
        if sharing.total() - sharing.total() / LITTLE > peak(&steps) {
            (lent, sharing) = better_sharing(&slots.slots, lent, sharing, highest(&steps));
        }
    }
    slots.placement(lowered, sharing.buffers, (0, usize::MAX), |s| match (lent[s], sharing.homes[s]) {
        (Some((kept, offset)), _) => Place::Lent { buffer: sharing.homes[kept as usize].buffer, offset },
        (None, At { buffer, part: None }) => Place::Buffer(buffer),
        (None, At { buffer, part: Some(offset) }) => Place::Part { buffer, offset, bytes: slots.slots[s].bytes },
    })
}

/// The sharing that takes the fewest bytes: as it is, with guests of kept slots, or with kept slots beside each other after the launch at
/// which most is alive, for which it must save more than a little: such a buffer is held as long as one of them lives.
fn better_sharing(slots: &[Slot], lent: Vec<Lent>, sharing: Sharing, highest: u32) -> (Vec<Lent>, Sharing) {
    let little = sharing.total() / LITTLE;
    let guests = lend(slots, usize::MAX);
    let ways = [(guests.clone(), None, 0), (lent.clone(), Some(highest), little), (guests, Some(highest), little)];
    let mut best = (lent, sharing);
    for (lent, beside, least) in ways {
        let other = share(slots, &lent, beside);
        if other.total() + least < best.1.total() {
            best = (lent, other);
        }
    }
    best
}

/// Whether kept temporaries may lie in common memory with others, where they hold no more than their own bytes after the plan.
pub(super) fn can_keep_in_common(device: Device) -> bool {
    device.is_cpu() && pools(device).lock().gives_back()
}

/// Places them in as little memory as can be: a buffer each for what is kept, in which what has at most `small` bytes may lie before, and
/// offsets in common memory for the rest. What is large and kept and made from launch `common_from` on is there too, if that is given; then
/// nothing lies in what is kept before.
pub(super) fn place_tightly(program: &Program, lowered: &Lowered, small: usize, common_from: Option<u32>) -> Placement {
    let slots = Slots::new(program, lowered);
    let mut in_common = match program.device.is_cpu() {
        true => slots.slots.clone(),
        false => whole_steps(&slots.slots, BINDING_STEP),
    };
    let lent = if common_from.is_some() { vec![None; in_common.len()] } else { lend(&in_common, small) };
    let is_late = |slot: &Slot| slot.bytes >= LEAST_PART && common_from.is_some_and(|from| slot.from >= from);
    let late: usize = in_common.iter().filter(|slot| slot.to == FOREVER && is_late(slot)).map(|slot| slot.bytes).sum();
    let shares = late >= MAPPED_BYTES && in_common.len() <= FEW;
    let mut buffers = Vec::new();
    let mut of_slot = vec![0; slots.slots.len()];
    for (s, slot) in slots.slots.iter().enumerate() {
        if slot.to == FOREVER && !(shares && is_late(slot)) {
            of_slot[s] = buffers.len() as u32;
            buffers.push(slot.bytes);
            in_common[s].bytes = 0;
        } else if lent[s].is_some() {
            in_common[s].bytes = 0;
        }
    }
    let least = peak(&steps(&in_common, lowered.launches.len()));
    let page = page_bytes(program.device);
    let (offsets, arena) = offsets(&in_common, least, page);
    let common = buffers.len() as u32;
    slots.placement(lowered, buffers, (arena, page), |s| match (lent[s], slots.slots[s]) {
        (Some((kept, offset)), _) => Place::Lent { buffer: of_slot[kept as usize], offset },
        (None, Slot { to: FOREVER, .. }) if in_common[s].bytes == 0 => Place::Buffer(of_slot[s]),
        // On the host the common memory is one buffer.
        (None, Slot { to: FOREVER, bytes, .. }) => Place::Part { buffer: common, offset: offsets[s], bytes },
        (None, _) => Place::Arena(offsets[s]),
    })
}

/// Bytes of the largest buffer that a device makes.
fn page_bytes(device: Device) -> usize {
    let adapter = device.gpu_index().and_then(|index| gpu::gpu(index).ok());
    adapter.map_or(usize::MAX, |adapter| adapter.max_buffer_bytes())
}

/// The slots with as much memory for each that ends that the next can begin at a multiple of `step`: a binding that had to start before its
/// slot could end before it too.
fn whole_steps(slots: &[Slot], step: usize) -> Vec<Slot> {
    let whole = |slot: &Slot| match slot.to {
        FOREVER => *slot,
        _ => Slot { bytes: slot.bytes.next_multiple_of(step), ..*slot },
    };
    slots.iter().map(whole).collect()
}

/// Bytes that begin with each launch, and that end after it.
fn steps(slots: &[Slot], launches: usize) -> Vec<Step> {
    let mut steps = vec![Step::default(); launches];
    for slot in slots {
        steps[slot.from as usize].born += slot.bytes;
        if let Some(step) = steps.get_mut(slot.to as usize) {
            step.dead += slot.bytes;
        }
    }
    steps
}

impl<'a> Slots<'a> {
    /// Walks the launches once and finds every temporary's home.
    pub fn new(program: &Program, lowered: &'a Lowered) -> Slots<'a> {
        let mut slots = Slots {
            temps: &lowered.temps,
            last: last_uses(lowered),
            leaf_last: leaf_last_uses(program, lowered),
            homes: vec![None; lowered.temps.len()],
            slots: Vec::new(),
            overwrites_leaves: false,
        };
        for (s, launch) in lowered.launches.iter().enumerate() {
            slots.launch(program, launch, s as u32);
        }
        slots
    }

    fn placement(
        &self,
        lowered: &Lowered,
        buffers: Vec<usize>,
        (arena, page): (usize, usize),
        of_slot: impl Fn(usize) -> Place,
    ) -> Placement {
        let place = |home: &Option<Home>| match home {
            Some(Home::Slot(s)) => of_slot(*s as usize),
            Some(Home::Leaf(l)) => Place::Leaf(*l),
            None => Place::Buffer(0),
        };
        let places = self.homes.iter().map(place).collect();
        let steps = steps(&self.slots, lowered.launches.len());
        Placement { places, buffers, arena, page, steps, overwrites_leaves: self.overwrites_leaves }
    }

    /// Finds homes for the outputs of launch `s`.
    fn launch(&mut self, program: &Program, launch: &Launch, s: u32) {
        let mut taken: Vec<u32> = Vec::new();
        for (o, out) in launch.outs.iter().enumerate() {
            let Loc::Temp(t) = out.loc else { continue };
            let t = t as usize;
            let home = match self.overwritable(program, launch, o, s, &taken) {
                Some((home, source)) => {
                    taken.extend(source);
                    match home {
                        Home::Slot(slot) => self.slots[slot as usize].to = self.last[t],
                        Home::Leaf(_) => self.overwrites_leaves = true,
                    }
                    home
                }
                None => {
                    self.slots.push(Slot { bytes: class_bytes(self.temps[t].bytes), from: s, to: self.last[t] });
                    Home::Slot(self.slots.len() as u32 - 1)
                }
            };
            self.homes[t] = Some(home);
        }
    }

    /// The home of an input that ends here and that this launch may overwrite with output `o`, and the temporary that gives it up.
    fn overwritable(&self, program: &Program, launch: &Launch, o: usize, s: u32, taken: &[u32]) -> Option<(Home, Option<u32>)> {
        may_take_over(launch, o, self.temps).into_iter().find_map(|k| match launch.ins[k].loc {
            Loc::Temp(t) if self.last[t as usize] == s && !taken.contains(&t) => Some((self.homes[t as usize]?, Some(t))),
            Loc::Leaf(l) if program.leaves[l as usize].overwritable && self.leaf_last[l as usize] == s => {
                Some((Home::Leaf(l), None))
            }
            _ => None,
        })
    }
}

/// Inputs whose memory output `o` of a launch can take over if they end there. What is no window of a larger temporary, and is read at
/// the same places as the output is written.
pub(super) fn may_take_over(launch: &Launch, o: usize, temps: &[Temp]) -> SmallVec<[usize; 4]> {
    let out = &launch.outs[o];
    let class = class_bytes(bytes_of(out.dtype.size_bytes(), &out.layout));
    let fits = |k: usize| {
        let input = &launch.ins[k];
        let is_whole = match input.loc {
            Loc::Temp(t) => class_bytes(temps[t as usize].bytes) == class,
            _ => true,
        };
        is_whole
            && input.layout.offset == 0
            && input.layout.is_contiguous()
            && input.dtype.size_bytes() == out.dtype.size_bytes()
            && input.layout.shape == out.layout.shape
            && launch.ins.iter().filter(|i| i.loc == input.loc).count() == 1
    };
    match &launch.kernel {
        Kernel::Fused(_) => (0..launch.ins.len()).filter(|&k| matches!(launch.ins[k].loc, Loc::Temp(_)) && fits(k)).collect(),
        // Its first output may hold the product before the epilogue reads its inputs.
        Kernel::Reduce(..) | Kernel::MatMul(..) => SmallVec::new(),
        Kernel::Op(op) => in_place(op).iter().filter(|&&(out, k)| out == o && fits(k)).map(|&(_, k)| k).collect(),
    }
}

fn bytes_of(size: usize, layout: &Layout) -> usize {
    layout.shape.iter().product::<usize>() * size
}

/// The step at which the running sum is highest.
pub(super) fn highest(steps: &[Step]) -> u32 {
    let mut live = 0;
    let mut best = (0, 0);
    for (s, step) in steps.iter().enumerate() {
        live += step.born;
        best = if live > best.0 { (live, s as u32) } else { best };
        live -= step.dead;
    }
    best.1
}

/// The highest running sum of the steps.
pub(super) fn peak(steps: &[Step]) -> usize {
    let mut live = 0;
    let mut peak = 0;
    for step in steps {
        live += step.born;
        peak = peak.max(live);
        live -= step.dead;
    }
    peak
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Slots in the order of their first launch, one of `kept` of them outliving the plan.
    pub fn any_slots(sizes: usize, life: u32, kept: u8) -> impl Strategy<Value = Vec<Slot>> {
        proptest::collection::vec((1..sizes, 0u32..40, 0..life, 0..kept), 1..70).prop_map(|raw| {
            let slot = |(bytes, from, life, kept): (usize, u32, u32, u8)| Slot {
                bytes: bytes * 64,
                from,
                to: if kept == 0 { FOREVER } else { from + life },
            };
            let mut slots: Vec<Slot> = raw.into_iter().map(slot).collect();
            slots.sort_by_key(|s| s.from);
            slots
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn test_g03_bindings_start_where_their_slots_do(
            raw in proptest::collection::vec((1usize..40, 0u32..40, 0u32..20, 0u8..3), 1..60)
        ) {
            let mut slots: Vec<Slot> = raw
                .iter()
                .map(|&(size, from, life, kept)| {
                    Slot { bytes: class_bytes(size * 64), from, to: if kept == 0 { FOREVER } else { from + life } }
                })
                .collect();
            slots.sort_by_key(|s| s.from);
            let whole = whole_steps(&slots, BINDING_STEP);
            for (place, (slot, whole)) in lend(&whole, 1536).iter().zip(slots.iter().zip(&whole)) {
                prop_assert!(whole.bytes >= slot.bytes && (slot.to != FOREVER || whole.bytes == slot.bytes));
                prop_assert!(place.is_none_or(|(_, offset)| offset % BINDING_STEP == 0));
            }
            let ending: Vec<Slot> = whole.iter().filter(|slot| slot.to != FOREVER).copied().collect();
            prop_assert!(offsets(&ending, 0, 4096).0.iter().all(|offset| offset % BINDING_STEP == 0));
        }
    }
}
