//! Making plans: a program's launches with their buffers and prepared kernels, within a tape's budget where it has one.
use super::budget::{Candidate, Found, Planner, Room};
use super::cache::Cache;
use super::lower::{Lowered, lower};
use super::place::{Placement, peak, place};
use super::prepare::prepare;
use super::program::{Program, in_place};
use super::timing::{Stage, Timing};
use super::work::work;
use super::{Plan, PlanOptions};
use crate::backend::Prepared;
use crate::backend::op::Op;
use crate::error::Result;
use std::sync::Arc;

/// The plan of a program, and whether it was found in the cache and had run before; `is_look` if it is not run now.
pub(super) fn plan_of(
    program: &Program,
    room: Option<&Room>,
    options: PlanOptions,
    cache: &mut Cache,
    is_look: bool,
    timing: Option<&Timing>,
) -> Result<(Arc<Plan>, bool)> {
    let bytes = room.map(|r| r.bytes);
    let looking = Timing::span(timing, Stage::LookUp);
    let found = if options.cache { cache.find(&program.key, bytes, is_look) } else { None };
    drop(looking);
    if let Some(found) = found {
        return Ok(found);
    }
    let _planning = Timing::span(timing, Stage::Plan);
    let plan = match room {
        None => Arc::new(make(program, options)?),
        Some(room) => make_within(program, room, options, cache)?,
    };
    if options.cache {
        cache.insert(&plan, bytes, is_look);
    }
    Ok((plan, false))
}

/// The plan of a program that no budget bounds.
pub(super) fn make(program: &Program, options: PlanOptions) -> Result<Plan> {
    let mut lowered = lower(program, options, false)?;
    let prepared = prepare(program, &mut lowered)?;
    let placement = place(program, &lowered);
    let work = lowered.launches.iter().map(work).sum();
    Ok(finished(program, lowered, placement, prepared, (work, work), Vec::new()))
}

/// The cheapest plan for a room that is known or can be found. One for a smaller room is a candidate for a larger one, so work never
/// rises with the budget.
fn make_within(program: &Program, room: &Room, options: PlanOptions, cache: &mut Cache) -> Result<Arc<Plan>> {
    let known = if options.cache { cache.cheapest_within(&program.key, room.bytes) } else { None };
    let planner = Planner::new(program, options)?;
    match (planner.best(room.bytes)?, known) {
        (Found::Fits(found), Some(known)) if known.work <= found.work => Ok(known),
        (Found::Fits(found), _) => Ok(Arc::new(from_candidate(program, &planner, found)?)),
        (Found::Least(_), Some(known)) => Ok(known),
        (Found::Least(least), None) => {
            let need = least.need();
            if options.cache {
                cache.insert(&Arc::new(from_candidate(program, &planner, least)?), Some(need), true);
            }
            Err(room.refuse(need))
        }
    }
}

fn from_candidate(program: &Program, planner: &Planner, candidate: Candidate) -> Result<Plan> {
    let prepared = candidate.origin.iter().map(|&l| planner.prepared[l as usize].clone()).collect();
    let mut is_made = vec![false; planner.plain.launches.len()];
    let repeats = candidate.origin.iter().zip(0..).filter(|&(&l, _)| std::mem::replace(&mut is_made[l as usize], true));
    let repeats = repeats.map(|(_, at)| at).collect();
    let plain_work = planner.plain.launches.iter().map(work).sum();
    Ok(finished(program, candidate.lowered, candidate.placement, prepared, (candidate.work, plain_work), repeats))
}

fn finished(
    program: &Program,
    lowered: Lowered,
    placement: Placement,
    prepared: Vec<Arc<Prepared>>,
    (work, plain_work): (u64, u64),
    repeats: Vec<u32>,
) -> Plan {
    let is_update = |op: &Op| matches!(op, Op::Update(_)) && !in_place(op).is_empty();
    Plan {
        key: program.key.clone(),
        launches: lowered.launches,
        prepared,
        places: placement.places,
        buffers: placement.buffers,
        arena: placement.arena,
        page: placement.page,
        peak: peak(&placement.steps),
        steps: placement.steps,
        kept: lowered.kept,
        is_update: placement.overwrites_leaves || program.nodes.iter().any(|n| is_update(&n.op)),
        work,
        plain_work,
        rebuilds: repeats.len(),
        repeats,
    }
}
