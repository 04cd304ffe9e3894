//! Planning under a budget: several rules for what to drop are tried, and the cheapest plan that fits is taken.
use super::flow::Flow;
use super::lower::{Lowered, Temp, lower};
use super::place::{Placement, place_tightly};
use super::prepare::prepare;
use super::program::Program;
use super::rebuild::{Rule, schedule};
use super::refine::refine;
use super::{Kept, Launch, Loc, Operand, PlanOptions};
use crate::backend::Prepared;
use crate::error::{Error, Result};
use crate::graph::{Node, TapeCore, is_any_limited, limiting_tapes};
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
/// Steps of the search for the smallest budget.
const SEARCH: usize = 12;

/// What a plan may use of a tape's budget.
pub(super) struct Room {
    /// Bytes of temporaries and kept values.
    pub bytes: usize,
    /// What counts against the budget before the plan runs.
    held: usize,
    tape: Arc<TapeCore>,
}

impl Room {
    /// The least room that the budgets of recording tapes, of running backward passes and of the nodes' tapes leave; `None` without one.
    pub fn of(nodes: &[Arc<Node>]) -> Option<Room> {
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
            let held = budget.held();
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
}

/// The search for plans of one program.
pub(super) struct Planner<'a> {
    program: &'a Program,
    pub plain: Lowered,
    /// Its kernels.
    pub prepared: Vec<Arc<Prepared>>,
    flow: Flow,
    /// Bytes of what outlives the plan.
    kept: usize,
}

impl<'a> Planner<'a> {
    /// Lowers the program.
    pub fn new(program: &'a Program, options: PlanOptions) -> Result<Planner<'a>> {
        let mut plain = lower(program, options, true)?;
        let prepared = prepare(program, &mut plain)?;
        let flow = Flow::new(program, &plain, options.deterministic);
        let kept = place_tightly(program, &plain).buffers.iter().sum();
        Ok(Planner { program, plain, prepared, flow, kept })
    }

    /// The program as it is.
    pub fn without_repeats(&self) -> Candidate {
        self.candidate((0..self.plain.launches.len() as u32).collect())
    }

    /// The cheapest plan found that fits.
    pub fn best(&self, room: usize) -> Option<Candidate> {
        let plain = self.without_repeats();
        if plain.need() <= room {
            return Some(plain);
        }
        let (rules, parts) = match self.plain.launches.len() {
            0..SOME => (&RULES[..], &PARTS[..]),
            SOME..MANY => (&RULES[..], &PARTS[..1]),
            _ => (&RULES[..FEW_RULES], &PARTS[..1]),
        };
        let tries = rules.iter().flat_map(|&rule| parts.iter().map(move |&part| (rule, part)));
        let found = tries.filter_map(|(rule, part)| self.attempt(room, rule, part)).min_by_key(|c| (c.work, c.need()));
        found.or_else(|| self.smallest().filter(|c| c.need() <= room))
    }

    /// The plan that needs the least memory of those found by halving.
    pub fn smallest(&self) -> Option<Candidate> {
        let plain = self.without_repeats();
        let mut low = self.flow.least_bytes();
        let mut high = plain.need().saturating_sub(self.kept);
        let mut best = Some(plain);
        for _ in 0..SEARCH {
            if high <= low + low / 128 {
                break;
            }
            let middle = low + (high - low) / 2;
            let found = RULES.iter().find_map(|&rule| self.attempt(self.kept + middle, rule, PARTS[0]));
            match found {
                Some(candidate) => {
                    high = candidate.need().saturating_sub(self.kept).min(middle);
                    best = Some(candidate);
                }
                None => low = middle,
            }
        }
        best
    }

    /// A plan by one rule, with a lower limit where the offsets' gaps took the last one over the room.
    fn attempt(&self, room: usize, rule: Rule, part: usize) -> Option<Candidate> {
        let mut limit = room.checked_sub(self.kept)?;
        for _ in 0..ATTEMPTS {
            if limit < self.flow.least_bytes() {
                return None;
            }
            let order = schedule(&self.flow, limit.saturating_mul(part) / PARTS[0], rule)?;
            let candidate = self.candidate(refine(&self.flow, &order, limit));
            let over = candidate.need().saturating_sub(room);
            if over == 0 {
                return Some(candidate);
            }
            limit = limit.checked_sub(over)?;
        }
        None
    }

    fn candidate(&self, origin: Vec<u32>) -> Candidate {
        let lowered = in_order(&self.plain, &origin);
        let placement = place_tightly(self.program, &lowered);
        let work = origin.iter().map(|&l| self.flow.work[l as usize]).sum();
        Candidate { lowered, placement, origin, work }
    }
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
