//! How long what each launch of a plan makes stays alive: worked out for observers alone, since a running plan needs only sums.
use super::{Loc, Place, Plan};
use crate::pool::class_bytes;
use crate::shape::elems;
use rustc_hash::FxHashMap;

/// Memory that a launch makes, with what later launches put there in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// Bytes of its size class.
    pub bytes: usize,
    /// The last launch that needs it; `usize::MAX` if it outlives the plan.
    pub last: usize,
}

fn last_uses(plan: &Plan) -> FxHashMap<u32, usize> {
    let mut last: FxHashMap<u32, usize> = FxHashMap::default();
    for (s, launch) in plan.launches.iter().enumerate() {
        for operand in launch.ins.iter().chain(&launch.outs) {
            if let Loc::Temp(t) = operand.loc {
                last.insert(t, s);
            }
        }
    }
    for kept in &plan.kept {
        if let Loc::Temp(t) = kept.loc {
            last.insert(t, usize::MAX);
        }
    }
    last
}

/// What each launch makes; an output that takes over the memory of an input that ends there lengthens the input's life.
pub(super) fn lives(plan: &Plan) -> Vec<Vec<Life>> {
    let last = last_uses(plan);
    let last_of = |t: u32| last.get(&t).copied().unwrap_or(0);
    let mut made: Vec<Vec<Life>> = vec![Vec::new(); plan.launches.len()];
    let mut homes: FxHashMap<u32, (usize, usize)> = FxHashMap::default();
    for (s, launch) in plan.launches.iter().enumerate() {
        let mut taken: Vec<u32> = Vec::new();
        for out in &launch.outs {
            let Loc::Temp(t) = out.loc else { continue };
            let place = plan.places[t as usize];
            if matches!(place, Place::Leaf(_)) {
                continue;
            }
            let heir = launch.ins.iter().find_map(|i| match i.loc {
                Loc::Temp(u) if last_of(u) == s && plan.places[u as usize] == place && !taken.contains(&u) => Some(u),
                _ => None,
            });
            let home = match heir.and_then(|u| Some((u, homes.get(&u).copied()?))) {
                Some((u, home)) => {
                    taken.push(u);
                    made[home.0][home.1].last = last_of(t);
                    home
                }
                None => {
                    let bytes = class_bytes(elems(&out.layout.shape) * out.dtype.size_bytes());
                    made[s].push(Life { bytes, last: last_of(t) });
                    (s, made[s].len() - 1)
                }
            };
            homes.insert(t, home);
        }
    }
    made
}
