//! Choosing what stays for gradient rules: a read before backward keeps what fits, the dearest first; backward gives up what makes the rest
//! cheapest.
use super::budget::{Planner, Room};
use super::cache::{Cache, Decision};
use super::evaluate::try_lock_engine;
use super::give_up::{Aside, give_up, read_by, saved_by};
use super::make::plan_of;
use super::program::Program;
use super::saved::{Group, Nodes, cheapest_first};
use super::timing::{Stage, Timing};
use super::{Plan, PlanOptions, options};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::{Node, TapeCore, Tensor};
use std::sync::Arc;

/// Parts of what is kept that backward tries to give up, and steps between the two best of them.
const PARTS: usize = 8;
const FINER: usize = 3;
/// The same in programs of many nodes.
const MANY: usize = 4000;
const PARTS_OF_MANY: usize = 4;
/// Attempts to fit what is kept beside the temporaries that it leaves room for.
const FITTINGS: usize = 8;

pub(super) type Planned = (Program, Option<Room>, Arc<Plan>, bool);

/// The program that computes the roots with its plan and whether that was found in the cache; `None` if there is nothing to compute. Where
/// a budget leaves no room beside values that earlier plans kept for gradient rules, those are given up. `is_look` if it is not run now.
pub(super) fn planned(roots: &[Tensor], cache: &mut Cache, is_look: bool, timing: Option<&Timing>) -> Result<Option<Planned>> {
    let options = options();
    let hashing = Timing::span(timing, Stage::Hash);
    let program = Program::new(roots, options)?;
    drop(hashing);
    if program.nodes.is_empty() {
        return Ok(None);
    }
    let Some(room) = Room::of(program.device, &program.nodes, 0) else {
        let (plan, cache_hit) = plan_of(&program, None, options, cache, is_look, timing)?;
        return Ok(Some((program, None, plan, cache_hit)));
    };
    let mut choice = Choice { roots, options, is_look, cache, timing, aside: Aside::default(), held: Vec::new() };
    match choice.made(program, &room) {
        Ok((program, room, plan, cache_hit)) => Ok(Some((program, Some(room), plan, cache_hit))),
        Err(error) => {
            choice.aside.put_back();
            if matches!(error, Error::Budget { .. }) {
                room.close();
            }
            Err(error)
        }
    }
}

/// Lets go of so many bytes that a tape keeps on a device for its gradient rules, those first that are cheapest to compute again; of
/// nothing while an evaluation is under way.
pub fn make_room(tape: &Arc<TapeCore>, device: Device, bytes: usize) {
    let Some(_engine) = try_lock_engine() else { return };
    let options = options();
    let mut aside = Aside::default();
    // What cannot be let go is held: the caller sees what there is.
    if options.deterministic && let_go(tape, device, bytes, options, &mut aside).is_err() {
        aside.put_back();
    }
}

fn let_go(tape: &Arc<TapeCore>, device: Device, bytes: usize, options: PlanOptions, aside: &mut Aside) -> Result<()> {
    let held = give_up(&saved_by(tape, device), aside);
    if held.is_empty() {
        return Ok(());
    }
    let whole = Program::with(&[], &outputs(&held), options)?;
    let groups = cheapest_first(&whole, &Planner::new(&whole, options)?);
    let all: Nodes = held.iter().map(Arc::as_ptr).collect();
    let kept: Vec<&Group> = groups.iter().filter(|group| group.is_of(&all)).collect();
    let (going, freed) = first(&kept, bytes);
    aside.put_back();
    if freed >= bytes {
        let going: Vec<Arc<Node>> = held.into_iter().filter(|node| going.contains(&Arc::as_ptr(node))).collect();
        give_up(&going, aside);
    }
    Ok(())
}

struct Choice<'a> {
    roots: &'a [Tensor],
    options: PlanOptions,
    /// Backward looks whether there is a plan, for when the tape has let go of what it saved.
    is_look: bool,
    cache: &'a mut Cache,
    timing: Option<&'a Timing>,
    aside: Aside,
    /// What earlier plans kept and may be given up.
    held: Vec<Arc<Node>>,
}

type Made = (Program, Room, Arc<Plan>, bool);

impl Choice<'_> {
    fn made(&mut self, mut program: Program, room: &Room) -> Result<Made> {
        let saves = program.saves();
        if self.is_look {
            program.drop_saved(|_| true, self.options);
        }
        let is_known = self.cache.cheapest_within(&program.key, room.bytes).is_some_and(|plan| plan.rebuilds == 0);
        if !self.options.deterministic || is_known {
            // What may not be computed a second time is kept, all of it.
            return self.plan(program);
        }
        let held = if self.is_look { read_by(&program) } else { saved_by(&room.tape, program.device) };
        // It holds what it reads, which may have to go.
        drop(program);
        self.held = give_up(&held, &mut self.aside);
        if self.held.is_empty() && (self.is_look || !saves) {
            let program = self.without(&Nodes::default())?;
            return self.plan_or_give_up(program);
        }
        let whole = self.whole()?;
        let room = self.room(&whole)?;
        if let Some(dropped) = self.cache.decided(&whole.key, room.bytes) {
            let program = self.without(&at(&whole, &dropped))?;
            match self.plan(program) {
                Err(Error::Budget { .. }) => {}
                other => return other,
            }
        }
        let program = self.without(&Nodes::default())?;
        if Planner::new(&program, self.options)?.plain_need() <= self.room(&program)?.bytes {
            return self.plan(program);
        }
        drop(program);
        let planner = Planner::new(&whole, self.options)?;
        let groups = cheapest_first(&whole, &planner);
        drop(planner);
        if self.is_look { self.for_backward(&whole, &room, &groups) } else { self.for_a_read(&whole, &room, &groups) }
    }

    /// Everything that the roots need, and what else was kept, computed anew.
    fn whole(&self) -> Result<Program> {
        let held = if self.is_look { Vec::new() } else { outputs(&self.held) };
        Program::with(self.roots, &held, self.options)
    }

    fn room(&self, program: &Program) -> Result<Room> {
        Room::of(program.device, &program.nodes, self.aside.bytes()).ok_or(Error::Internal("plan: a budget that has gone"))
    }

    /// The program that computes the roots where some nodes' values are neither held nor kept.
    fn without(&mut self, dropped: &Nodes) -> Result<Program> {
        self.aside.put_back();
        let gone: Vec<Arc<Node>> = self.held.iter().filter(|node| dropped.contains(&Arc::as_ptr(node))).cloned().collect();
        give_up(&gone, &mut self.aside);
        let _hashing = Timing::span(self.timing, Stage::Hash);
        let mut program = Program::new(self.roots, self.options)?;
        program.drop_saved(|node| self.is_look || dropped.contains(&Arc::as_ptr(node)), self.options);
        Ok(program)
    }

    fn plan(&mut self, program: Program) -> Result<Made> {
        let room = self.room(&program)?;
        let (plan, cache_hit) = plan_of(&program, Some(&room), self.options, self.cache, self.is_look, self.timing)?;
        Ok((program, room, plan, cache_hit))
    }

    /// Plans what is left; what it reads of earlier plans goes as long as there is no plan beside it.
    fn plan_or_give_up(&mut self, mut program: Program) -> Result<Made> {
        loop {
            let read = read_by(&program);
            match self.plan(program) {
                Err(error @ Error::Budget { .. }) => {
                    if give_up(&read, &mut self.aside).is_empty() {
                        return Err(error);
                    }
                }
                other => return other,
            }
            program = Program::new(self.roots, self.options)?;
            program.drop_saved(|_| true, self.options);
        }
    }

    /// Keeps as many values as there is room for without computing any a second time now.
    fn for_a_read(&mut self, whole: &Program, room: &Room, groups: &[Group]) -> Result<Made> {
        let groups: Vec<&Group> = groups.iter().collect();
        let mut due = 1;
        for _ in 0..FITTINGS {
            let (dropped, bytes) = first(&groups, due);
            let program = self.without(&dropped)?;
            let left = self.room(&program)?.bytes;
            let need = Planner::new(&program, self.options)?.plain_need();
            if need <= left {
                self.decide(whole, room, &dropped, 0);
                return self.plan(program);
            }
            due = bytes.max(due) + (need - left);
        }
        let (all, _) = first(&groups, usize::MAX);
        let program = self.without(&all)?;
        self.plan_or_give_up(program)
    }

    /// Gives up as much as makes computing the rest cheapest. What a smaller room was best served with is tried, too.
    fn for_backward(&mut self, whole: &Program, room: &Room, groups: &[Group]) -> Result<Made> {
        let held: Nodes = self.held.iter().map(Arc::as_ptr).collect();
        let (kept, gone): (Vec<&Group>, Vec<&Group>) = groups.iter().partition(|group| group.is_of(&held));
        let (gone, _) = first(&gone, usize::MAX);
        let best = self.cheapest_part(&kept, &gone, whole.nodes.len())?;
        let known = self.cache.decided_below(&whole.key, room.bytes).map(|dropped| at(whole, &dropped));
        let mut found: Option<(u64, Nodes)> = None;
        for dropped in best.into_iter().chain(known) {
            let program = self.without(&dropped)?;
            match self.plan(program) {
                Ok((_, _, plan, _)) if found.as_ref().is_none_or(|(work, _)| plan.work < *work) => {
                    found = Some((plan.work, dropped))
                }
                Ok(_) | Err(Error::Budget { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let program = match &found {
            Some((work, dropped)) => {
                self.decide(whole, room, dropped, *work);
                self.without(dropped)?
            }
            None => self.without(&held)?,
        };
        self.plan_or_give_up(program)
    }

    /// The part of what is kept without which the rest is cheapest by a quick look, with what is gone already.
    fn cheapest_part(&mut self, kept: &[&Group], gone: &Nodes, nodes: usize) -> Result<Option<Nodes>> {
        let total: usize = kept.iter().map(|group| group.bytes).sum();
        let parts = if nodes < MANY { PARTS } else { PARTS_OF_MANY };
        let mut step = 1 << FINER;
        let finest = parts * step;
        let mut tried: Vec<usize> = (0..=parts).map(|part| part * step).collect();
        let mut best: Option<(u64, usize, Nodes)> = None;
        while step > 0 {
            for part in tried {
                let (mut dropped, _) = first(kept, (total as u128 * part as u128 / finest as u128) as usize);
                dropped.extend(gone);
                let program = self.without(&dropped)?;
                let left = self.room(&program)?.bytes;
                let work = Planner::new(&program, self.options)?.work_within(left)?;
                if let Some(work) = work
                    && best.as_ref().is_none_or(|(least, ..)| work < *least)
                {
                    best = Some((work, part, dropped));
                }
            }
            step /= 2;
            let Some((_, part, _)) = &best else { break };
            tried = [part.checked_sub(step), Some(part + step)].into_iter().flatten().filter(|&p| p <= finest).collect();
        }
        Ok(best.map(|(.., dropped)| dropped))
    }

    /// Remembers what the whole program does without in this room.
    fn decide(&mut self, whole: &Program, room: &Room, dropped: &Nodes, work: u64) {
        if self.options.cache {
            let positions = (0..whole.nodes.len() as u32).filter(|&at| dropped.contains(&Arc::as_ptr(&whole.nodes[at as usize])));
            self.cache.decide(Decision { key: whole.key.clone(), room: room.bytes, dropped: positions.collect(), work });
        }
    }
}

fn outputs(nodes: &[Arc<Node>]) -> Vec<Tensor> {
    let of = |node: &Arc<Node>| (0..node.outs.len() as u32).map(|index| Tensor { node: node.clone(), index }).collect();
    nodes.iter().flat_map::<Vec<_>, _>(of).collect()
}

/// The program's nodes at some positions.
fn at(program: &Program, positions: &[u32]) -> Nodes {
    positions.iter().filter_map(|&at| program.nodes.get(at as usize)).map(Arc::as_ptr).collect()
}

/// Nodes of the first groups that have so many bytes together, and how many those are.
fn first(groups: &[&Group], bytes: usize) -> (Nodes, usize) {
    let (mut nodes, mut sum) = (Nodes::default(), 0);
    for group in groups {
        if sum >= bytes {
            break;
        }
        sum += group.bytes;
        nodes.extend(group.nodes.iter().map(Arc::as_ptr));
    }
    (nodes, sum)
}
