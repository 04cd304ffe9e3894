//! Placement: every temporary gets a buffer; buffers of one size class are used again after the last use of what was in them.
use super::lower::{Lowered, Temp};
use super::program::{Program, in_place};
use super::{Kept, Launch, Loc, Place};
use crate::backend::Kernel;
use crate::layout::Layout;
use crate::pool::class_bytes;
use rustc_hash::FxHashMap;

/// Where each temporary lies, and the sizes of the plan's buffers.
pub(super) struct Placement {
    pub places: Vec<Place>,
    pub buffers: Vec<usize>,
    pub overwrites_leaves: bool,
}

struct Placer<'a> {
    temps: &'a [Temp],
    last: Vec<u32>,
    places: Vec<Option<Place>>,
    buffers: Vec<usize>,
    free: FxHashMap<usize, Vec<u32>>,
    overwrites_leaves: bool,
}

/// Kept temporaries are in use to the end.
const FOREVER: u32 = u32::MAX;

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

/// Places the temporaries of a lowered program.
pub(super) fn place(program: &Program, lowered: &Lowered) -> Placement {
    let temps = &lowered.temps;
    let mut p = Placer {
        temps,
        last: last_uses(lowered),
        places: vec![None; temps.len()],
        buffers: Vec::new(),
        free: FxHashMap::default(),
        overwrites_leaves: false,
    };
    let kept_leaves: Vec<u32> =
        lowered.kept.iter().filter_map(|k| if let Loc::Leaf(l) = k.loc { Some(l) } else { None }).collect();
    let mut leaf_last = vec![0u32; program.leaves.len()];
    for (s, launch) in lowered.launches.iter().enumerate() {
        for operand in &launch.ins {
            if let Loc::Leaf(l) = operand.loc {
                leaf_last[l as usize] = s as u32;
            }
        }
    }
    for l in kept_leaves {
        leaf_last[l as usize] = FOREVER;
    }
    for (s, launch) in lowered.launches.iter().enumerate() {
        p.launch(program, launch, s as u32, &leaf_last);
    }
    let places = p.places.into_iter().map(|x| x.unwrap_or(Place::Buffer(0))).collect();
    Placement { places, buffers: p.buffers, overwrites_leaves: p.overwrites_leaves }
}

impl Placer<'_> {
    /// Places the outputs of launch `s`, then frees what it read last.
    fn launch(&mut self, program: &Program, launch: &Launch, s: u32, leaf_last: &[u32]) {
        let mut taken: Vec<u32> = Vec::new();
        for (o, out) in launch.outs.iter().enumerate() {
            let Loc::Temp(t) = out.loc else { continue };
            let reused = self.overwritable(program, launch, o, s, leaf_last, &taken);
            let place = match reused {
                Some((place, source)) => {
                    taken.extend(source);
                    self.overwrites_leaves |= matches!(place, Place::Leaf(_));
                    place
                }
                None => self.buffer(self.temps[t as usize].bytes),
            };
            self.places[t as usize] = Some(place);
        }
        let mut done: Vec<u32> = Vec::new();
        let touched = launch.ins.iter().chain(&launch.outs);
        for operand in touched {
            if let Loc::Temp(t) = operand.loc
                && self.last[t as usize] == s
                && !done.contains(&t)
                && !taken.contains(&t)
            {
                done.push(t);
                if let Some(Place::Buffer(b)) = self.places[t as usize] {
                    self.free.entry(self.buffers[b as usize]).or_default().push(b);
                }
            }
        }
    }

    fn buffer(&mut self, bytes: usize) -> Place {
        let class = class_bytes(bytes);
        if let Some(b) = self.free.get_mut(&class).and_then(Vec::pop) {
            return Place::Buffer(b);
        }
        self.buffers.push(class);
        Place::Buffer(self.buffers.len() as u32 - 1)
    }

    /// A place of an input that ends here and that this launch may overwrite with output `o`, and the temporary that gives it up.
    fn overwritable(
        &self,
        program: &Program,
        launch: &Launch,
        o: usize,
        s: u32,
        leaf_last: &[u32],
        taken: &[u32],
    ) -> Option<(Place, Option<u32>)> {
        let out = &launch.outs[o];
        let fits = |k: usize| {
            let input = &launch.ins[k];
            let contiguous = input.layout.offset == 0 && input.layout.is_contiguous();
            contiguous && input.dtype.size_bytes() == out.dtype.size_bytes() && input.layout.shape == out.layout.shape
        };
        let dying = |k: usize| match launch.ins[k].loc {
            Loc::Temp(t) if self.last[t as usize] == s && !taken.contains(&t) => {
                let place = self.places[t as usize]?;
                // A temporary that holds more than this window of it keeps its buffer.
                (class_bytes(self.temps[t as usize].bytes) == class_bytes(bytes_of(out.dtype.size_bytes(), &out.layout)))
                    .then_some((place, Some(t)))
            }
            Loc::Leaf(l) if program.leaves[l as usize].overwritable && leaf_last[l as usize] == s => Some((Place::Leaf(l), None)),
            _ => None,
        };
        let reads_once = |k: usize| launch.ins.iter().filter(|i| i.loc == launch.ins[k].loc).count() == 1;
        match &launch.kernel {
            Kernel::Fused(_) => (0..launch.ins.len())
                .filter(|&k| fits(k) && reads_once(k) && matches!(launch.ins[k].loc, Loc::Temp(_)))
                .find_map(dying),
            Kernel::Reduce(..) => None,
            Kernel::Op(op) => {
                in_place(op).iter().filter(|&&(out, k)| out == o && fits(k) && reads_once(k)).find_map(|&(_, k)| dying(k))
            }
        }
    }
}

fn bytes_of(size: usize, layout: &Layout) -> usize {
    layout.shape.iter().product::<usize>() * size
}
