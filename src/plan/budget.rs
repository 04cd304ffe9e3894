//! Planning under a budget: several rules for what to drop are tried, and the cheapest plan that fits is taken.
use super::arena::FEW;
use super::flow::Flow;
use super::lend::Lending;
use super::lower::{Lowered, Temp, lower};
use super::place::{Placement, can_keep_in_common, highest, peak, place_tightly};
use super::prepare::prepare;
use super::program::{Input, Program};
use super::rebuild::{Rule, Way, schedule};
use super::refine::refine;
use super::share::LEAST_PART;
use super::vary::Variations;
use super::{Kept, Launch, Loc, Operand, PlanOptions};
use crate::backend::Prepared;
use crate::backend::kind::BinaryKind;
use crate::backend::op::Op;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::{Node, Spent, TapeCore, is_any_limited, limiting_tapes};
use crate::pool::class_bytes;
use std::sync::Arc;

/// Rules in the order in which they are tried; the best one for networks of layers first.
const RULES: [Rule; 6] = [
    Rule { counts_readers: true, is_strict: true, distance: 0.5 },
    Rule { counts_readers: true, is_strict: false, distance: 0.5 },
    Rule { counts_readers: true, is_strict: true, distance: 0.75 },
    Rule { counts_readers: true, is_strict: true, distance: 1.0 },
    Rule { counts_readers: false, is_strict: true, distance: 0.5 },
    Rule { counts_readers: true, is_strict: true, distance: 0.25 },
];
/// Parts of the room (in 128ths) that a rule may use before second thoughts fill the rest.
const PARTS: [usize; 4] = [128, 124, 118, 110];
/// Launches from which rules are tried with the whole room only, and from which only the first ones are.
const SOME: usize = 1500;
const MANY: usize = 4000;
const FEW_RULES: usize = 3;
/// Attempts of one rule when gaps between offsets took it over the room.
const ATTEMPTS: usize = 4;
/// Launches that variations of the cheapest way may cost, and how many are tried at most.
const VARIED_LAUNCHES: usize = 120_000;
const VARIATIONS: usize = 288;
/// One part in so many of the work is what a step aside may cost.
const DETOUR: u64 = 250;
/// Work over the plain program's, in percent, up to which there is nothing to gain.
const CHEAP: u64 = 102;
/// Steps of the search for the smallest budget.
const SEARCH: usize = 12;

/// What a plan may use of a tape's budget.
pub(super) struct Room {
    /// Bytes of temporaries and kept values.
    pub bytes: usize,
    /// What counts against the budget before the plan runs.
    held: usize,
    pub tape: Arc<TapeCore>,
}

impl Room {
    /// The least room on a device that the budgets of recording tapes, of running backward passes and of the nodes' tapes leave, once so many bytes
    /// have been let go; `None` without one.
    pub fn of(device: Device, nodes: &[Arc<Node>], let_go: usize) -> Option<Room> {
        if !is_any_limited() {
            return None;
        }
        let mut tapes = limiting_tapes();
        let mut last: Option<*const TapeCore> = None;
        for mark in nodes.iter().flat_map(|n| &n.marks) {
            let at = Arc::as_ptr(&mark.tape);
            if last != Some(at) && mark.tape.budget.is_some() && mark.is_live() && !tapes.iter().any(|t| Arc::as_ptr(t) == at) {
                tapes.push(mark.tape.clone());
            }
            last = Some(at);
        }
        let room = |tape: &Arc<TapeCore>| {
            let budget = tape.budget.as_ref()?;
            let held = budget.held(device).saturating_sub(let_go);
            Some(Room { bytes: budget.bytes.saturating_sub(held), held, tape: tape.clone() })
        };
        tapes.iter().filter_map(room).min_by_key(|r| r.bytes)
    }

    /// That nothing fits in it: until the next backward pass, what its tape recorded is computed only when it is asked for by name.
    pub fn close(&self) {
        if let Some(budget) = &self.tape.budget {
            budget.refuse();
        }
    }

    /// Adds what a plan has run within it to what its tape has cost, and gives the sum.
    pub fn spend(&self, more: Spent) -> Spent {
        self.tape.budget.as_ref().map_or(more, |budget| budget.spend(more))
    }

    /// The refusal of a plan that needs so many bytes at least.
    pub fn refuse(&self, least: usize) -> Error {
        let smallest = self.held + least;
        let bytes = self.tape.budget.as_ref().map_or(0, |b| b.bytes);
        let message = format!(
            "the budget of tape {} is {bytes} bytes, of which {} are held already; the smallest budget for which a plan was found is {smallest} bytes",
            self.tape.id, self.held
        );
        Error::Budget { op: "grad_tape", message, smallest }
    }
}

/// A lowered program with repeats, placed.
pub(super) struct Candidate {
    pub lowered: Lowered,
    pub placement: Placement,
    /// The launch of the program without repeats that each launch is.
    pub origin: Vec<u32>,
    pub work: u64,
}

impl Candidate {
    /// Bytes of all its buffers: no more are ever active.
    pub fn need(&self) -> usize {
        self.placement.buffers.iter().sum::<usize>() + self.placement.arena
    }

    /// The lower, the better.
    fn rank(&self) -> (u64, usize) {
        (self.work, self.need())
    }
}

/// What a search for the cheapest plan within a room found.
pub(super) enum Found {
    /// One that fits.
    Fits(Candidate),
    /// None that fits; the one that needs the least memory.
    Least(Candidate),
}

/// The search for plans of one program.
pub(super) struct Planner<'a> {
    program: &'a Program,
    pub plain: Lowered,
    /// Its kernels.
    pub prepared: Vec<Arc<Prepared>>,
    pub flow: Flow,
    /// Without lending, and with it where much can be lent: all that large kept values take, where they may lie in common memory.
    lendings: Vec<Lending>,
    /// Bytes of what outlives the plan.
    kept: usize,
}

impl<'a> Planner<'a> {
    /// Lowers the program.
    pub fn new(program: &'a Program, options: PlanOptions) -> Result<Planner<'a>> {
        let mut plain = lower(program, options, true)?;
        let prepared = prepare(program, &mut plain)?;
        let flow = Flow::new(program, &plain, options.deterministic);
        let placement = place_tightly(program, &plain, 0, None);
        let kept = placement.buffers.iter().sum();
        let is_kept = |t: &u32| flow.is_kept[*t as usize];
        let lent: Vec<(u32, usize)> =
            (0..plain.temps.len() as u32).filter(is_kept).map(|t| (t, class_bytes(plain.temps[t as usize].bytes))).collect();
        let is_common = 2 * plain.temps.len() <= FEW && can_keep_in_common(program.device) && !adds_to_leaves(program, &plain);
        // What is made before most is alive, such as a network's output, is held for other reasons than gradients are.
        let (most_alive, alive) = (highest(&placement.steps), peak(&placement.steps));
        let common = if is_common { Lending::in_common(&flow, &lent, most_alive, alive) } else { None };
        let most = common.or_else(|| Lending::new(&flow, &lent));
        let lendings = std::iter::once(Lending::none(&flow)).chain(most).collect();
        Ok(Planner { program, plain, prepared, flow, lendings, kept })
    }

    /// The program as it is.
    pub fn without_repeats(&self) -> Candidate {
        let order: Vec<u32> = (0..self.plain.launches.len() as u32).collect();
        let ways = self.lendings.iter().map(|lending| self.candidate(order.clone(), lending));
        ways.min_by_key(Candidate::need).unwrap_or_else(|| self.candidate(order.clone(), &Lending::none(&self.flow)))
    }

    /// Bytes of the program as it is.
    pub fn plain_need(&self) -> usize {
        self.without_repeats().need()
    }

    /// About the least work of a plan that fits, by few ways.
    pub fn work_within(&self, room: usize) -> Result<Option<u64>> {
        if self.plain_need() <= room {
            return Ok(Some(self.flow.total_work()));
        }
        let rules = if self.plain.launches.len() < MANY { FEW_RULES } else { 1 };
        let mut least: Option<u64> = None;
        for &rule in &RULES[..rules] {
            for lending in &self.lendings {
                let way = Way { rule, lending, factors: &[] };
                let found = self.attempt(room, way, PARTS[0], least.unwrap_or(u64::MAX))?;
                least = found.map(|found| found.work).or(least);
            }
        }
        Ok(least)
    }

    /// The cheapest plan found that fits; without one, the one that needs the least memory.
    pub fn best(&self, room: usize) -> Result<Found> {
        let plain = self.without_repeats();
        if plain.need() <= room {
            return Ok(Found::Fits(plain));
        }
        let (rules, parts) = match self.plain.launches.len() {
            0..SOME => (&RULES[..], &PARTS[..]),
            SOME..MANY => (&RULES[..], &PARTS[..1]),
            _ => (&RULES[..FEW_RULES], &PARTS[..1]),
        };
        let mut best: Option<(Candidate, Way, usize)> = None;
        for (&rule, &part) in rules.iter().flat_map(|rule| parts.iter().map(move |part| (rule, part))) {
            for lending in &self.lendings {
                let way = Way { rule, lending, factors: &[] };
                let most = best.as_ref().map_or(u64::MAX, |(b, ..)| b.work);
                if let Some(found) = self.attempt(room, way, part, most)?
                    && best.as_ref().is_none_or(|(b, ..)| found.rank() < b.rank())
                {
                    best = Some((found, way, part));
                }
            }
        }
        if let Some((found, way, part)) = best {
            return Ok(Found::Fits(self.varied(room, found, way, part)?));
        }
        let least = self.smallest()?;
        Ok(if least.need() <= room { Found::Fits(least) } else { Found::Least(least) })
    }

    /// A plan found by some way, or a cheaper one found by varying it.
    fn varied(&self, room: usize, found: Candidate, way: Way, part: usize) -> Result<Candidate> {
        if found.work * 100 <= self.flow.total_work() * CHEAP {
            return Ok(found);
        }
        let rounds = (VARIED_LAUNCHES / self.plain.launches.len()).min(VARIATIONS);
        let variations = Variations::new(&self.flow);
        let (mut rule, mut factors, mut work) = (way.rule, vec![1.0; self.flow.bytes.len()], found.work);
        let mut best = found;
        for round in 0..rounds {
            let (near, factors_near) = variations.vary(round as u32, rule, &factors);
            let part = if round.is_multiple_of(4) { part } else { PARTS[round % 4 - 1] };
            // Some of the last rounds may go on from what costs a little more, so that the search leaves where nothing near is cheaper.
            let left = rounds - round;
            let worse = if 3 * left < rounds { best.work / DETOUR * (3 * left) as u64 / rounds as u64 } else { 0 };
            let way = Way { rule: near, lending: way.lending, factors: &factors_near };
            if let Some(other) = self.attempt(room, way, part, work + worse)? {
                (rule, factors, work) = (near, factors_near, other.work);
                if other.rank() <= best.rank() {
                    best = other;
                }
            }
        }
        Ok(best)
    }

    /// The plan that needs the least memory of those found by halving.
    fn smallest(&self) -> Result<Candidate> {
        let mut best = self.without_repeats();
        let mut low = self.lendings.iter().map(|lending| self.flow.least_bytes(lending)).min().unwrap_or(0);
        let mut high = best.need().saturating_sub(self.kept);
        for _ in 0..SEARCH {
            if high <= low + low / 128 {
                break;
            }
            let middle = low + (high - low) / 2;
            match self.any(self.kept + middle)? {
                Some(candidate) => {
                    high = candidate.need().saturating_sub(self.kept).min(middle);
                    best = candidate;
                }
                None => low = middle,
            }
        }
        Ok(best)
    }

    /// The first plan found that fits.
    fn any(&self, room: usize) -> Result<Option<Candidate>> {
        for &rule in &RULES {
            for lending in self.lendings.iter().rev() {
                let found = self.attempt(room, Way { rule, lending, factors: &[] }, PARTS[0], u64::MAX)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// A plan by one way of no more than so much work, with a lower limit where the offsets' gaps took the last one over the room.
    fn attempt(&self, room: usize, way: Way, part: usize, most: u64) -> Result<Option<Candidate>> {
        let Some(mut limit) = room.checked_sub(self.kept) else { return Ok(None) };
        let least = self.flow.least_bytes(way.lending);
        for _ in 0..ATTEMPTS {
            if limit < least {
                break;
            }
            let Some(order) = schedule(&self.flow, limit.saturating_mul(part) / PARTS[0], way)? else { break };
            let order = refine(&self.flow, way.lending, &order, limit);
            // A lower limit will hardly make it cheaper.
            if self.work(&order) > most {
                break;
            }
            let candidate = self.candidate(order, way.lending);
            let over = candidate.need().saturating_sub(room);
            if over == 0 {
                return Ok(Some(candidate));
            }
            limit = limit.saturating_sub(over);
        }
        Ok(None)
    }

    fn work(&self, order: &[u32]) -> u64 {
        order.iter().map(|&l| self.flow.work[l as usize]).sum()
    }

    fn candidate(&self, origin: Vec<u32>, lending: &Lending) -> Candidate {
        let lowered = in_order(&self.plain, &origin);
        // Launches run first in the order of the program.
        let common_from = lending.common_after.and_then(|after| origin.iter().position(|&l| l > after)).map(|step| step as u32);
        let placement = place_tightly(self.program, &lowered, lending.small, common_from);
        let work = self.work(&origin);
        Candidate { lowered, placement, origin, work }
    }
}

/// Whether a large value that outlives the plan is a sum with a value that existed before, as gradients are that are accumulated: then two
/// sets of them take turns from plan to plan, and the common memory of the last plan, in which they would lie, could not serve the next.
fn adds_to_leaves(program: &Program, plain: &Lowered) -> bool {
    plain.kept.iter().any(|kept| {
        let is_large = matches!(kept.loc, Loc::Temp(t) if plain.temps[t as usize].bytes >= LEAST_PART);
        let is_sum = matches!(program.nodes[kept.node as usize].op, Op::Binary(BinaryKind::Add));
        is_large && is_sum && program.inputs[kept.node as usize].iter().any(|input| matches!(input, Input::Leaf(_)))
    })
}

/// The lowered program with its launches in another order, some of them several times: each reads what was made last before it.
fn in_order(plain: &Lowered, order: &[u32]) -> Lowered {
    let mut newest: Vec<u32> = vec![u32::MAX; plain.temps.len()];
    let mut is_kept = vec![false; plain.temps.len()];
    for k in &plain.kept {
        if let Loc::Temp(t) = k.loc {
            is_kept[t as usize] = true;
        }
    }
    let mut temps: Vec<Temp> = Vec::with_capacity(order.len());
    let mut launches: Vec<Launch> = Vec::with_capacity(order.len());
    for (step, &l) in order.iter().enumerate() {
        let launch = &plain.launches[l as usize];
        let ins = launch.ins.iter().map(|o| Operand { loc: renamed(&newest, o.loc), ..o.clone() }).collect();
        let mut outs = launch.outs.clone();
        for out in &mut outs {
            if let Loc::Temp(t) = out.loc {
                let t = t as usize;
                // What outlives the plan stays where it was made first.
                if newest[t] == u32::MAX || !is_kept[t] {
                    newest[t] = temps.len() as u32;
                }
                out.loc = Loc::Temp(temps.len() as u32);
                temps.push(Temp { bytes: plain.temps[t].bytes, made: step as u32 });
            }
        }
        let (kernel, shape, args) = (launch.kernel.clone(), launch.shape.clone(), launch.args.clone());
        launches.push(Launch { kernel, shape, ins, outs, scratch: launch.scratch, args, node: launch.node });
    }
    let kept = |k: &Kept| Kept { node: k.node, out: k.out, loc: renamed(&newest, k.loc), layout: k.layout.clone() };
    let kept = plain.kept.iter().map(kept).collect();
    Lowered { launches, temps, kept }
}

fn renamed(newest: &[u32], loc: Loc) -> Loc {
    match loc {
        Loc::Temp(t) => Loc::Temp(newest[t as usize]),
        other => other,
    }
}
