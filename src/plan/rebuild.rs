//! Dropping and rebuilding: walks the launches once under a limit and drops the held value that is cheapest to do without, as dynamic
//! tensor rematerialization does at run time (Kirisame et al. 2021), but with every next use known.
mod rate;

use super::flow::Flow;
use super::lend::Lending;
use crate::backend::cpu;
use crate::error::Result;

/// How a held value is rated: the one with the least work per byte goes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Count what was dropped after it and will be rebuilt from it, too.
    pub counts_readers: bool,
    /// Rebuilding at its next use starts from what the program itself still needs then, not from all that is held now.
    pub is_strict: bool,
    /// The power of the distance to its next use by which the rating is divided.
    pub distance: f64,
}

/// How a walk decides what to drop.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub rule: Rule,
    pub lending: &'a Lending,
    /// What ratings are multiplied by, for each temporary; empty if by nothing.
    pub factors: &'a [f64],
}

/// A plan with more than so many times the work is no plan.
const MAX_WORK_RATIO: u64 = 6;
/// Dropped values looked at to rate one; fewer in programs of many launches.
const MAX_VISITED: usize = 192;
const MAX_VISITED_OF_MANY: usize = 64;
const MANY: usize = 4000;
/// No launch.
const NEVER: u32 = u32::MAX;
/// Held values up to which all are rated for each drop; beyond, the best of one look serve several drops.
const FEW: usize = 256;
const SHORTLIST: usize = 48;

/// Launches between two looks for the user's interrupt.
const POLL_STRIDE: u32 = 64;

/// The order of launches, with repeats, in which never more than `limit` bytes of temporaries live besides those that lie in what is lent;
/// `None` if none is found this way.
pub(super) fn schedule(flow: &Flow, limit: usize, way: Way) -> Result<Option<Vec<u32>>> {
    let mut walk = Walk::new(flow, limit, way);
    for s in 0..flow.reads.len() as u32 {
        if s % POLL_STRIDE == 0 {
            cpu::poll()?;
        }
        walk.now = s;
        if walk.compute(s).is_none() {
            return Ok(None);
        }
        walk.sweep();
    }
    Ok(Some(walk.order))
}

struct Walk<'a> {
    flow: &'a Flow,
    way: Way<'a>,
    limit: usize,
    max_work: u64,
    order: Vec<u32>,
    work: u64,
    now: u32,
    /// Bytes of living values, large and small ones.
    large: usize,
    small: usize,
    /// Only dropping large values helps: the small ones lie in what is lent.
    only_large: bool,
    is_live: Vec<bool>,
    is_dropped: Vec<bool>,
    /// How many launches that are about to run need it.
    locks: Vec<u32>,
    /// Position of the next use among the readers.
    next: Vec<u32>,
    /// When something dropped is used next that is rebuilt from it: values that the program is done with are held for that, too.
    derived: Vec<u32>,
    max_visited: usize,
    /// Living temporaries that have bytes, and where each stands in the list.
    held: Vec<u32>,
    place: Vec<u32>,
    touched: Vec<u32>,
    stamps: Vec<u32>,
    stamp: u32,
    stack: Vec<u32>,
    shortlist: Vec<u32>,
    /// What each distance to the next use counts, by distance.
    far: Vec<f64>,
}

impl<'a> Walk<'a> {
    fn new(flow: &'a Flow, limit: usize, way: Way<'a>) -> Walk<'a> {
        let m = flow.bytes.len();
        Walk {
            flow,
            way,
            limit,
            max_work: flow.total_work().saturating_mul(MAX_WORK_RATIO),
            order: Vec::with_capacity(flow.reads.len() * 3 / 2),
            work: 0,
            now: 0,
            large: 0,
            small: 0,
            only_large: false,
            is_live: vec![false; m],
            is_dropped: vec![false; m],
            locks: vec![0; m],
            next: vec![0; m],
            derived: vec![NEVER; m],
            max_visited: if flow.reads.len() > MANY { MAX_VISITED_OF_MANY } else { MAX_VISITED },
            held: Vec::new(),
            place: vec![u32::MAX; m],
            touched: Vec::new(),
            stamps: vec![0; m],
            stamp: 0,
            stack: Vec::new(),
            shortlist: Vec::new(),
            far: (0..=flow.reads.len() as u32).map(|distance| f64::from(distance).powf(way.rule.distance)).collect(),
        }
    }

    /// Runs launch `s` after rebuilding what it reads, deepest first.
    fn compute(&mut self, s: u32) -> Option<()> {
        let flow = self.flow;
        let mut frames = vec![s];
        self.lock(s);
        while let Some(&launch) = frames.last() {
            let missing = flow.reads[launch as usize].iter().find(|&&t| !self.is_live[t as usize]);
            if let Some(&t) = missing {
                let maker = flow.maker[t as usize];
                if !flow.is_repeatable[maker as usize] {
                    return None;
                }
                self.lock(maker);
                frames.push(maker);
                continue;
            }
            self.run(launch)?;
            frames.pop();
        }
        Some(())
    }

    fn lock(&mut self, launch: u32) {
        for &t in &self.flow.reads[launch as usize] {
            self.locks[t as usize] += 1;
        }
    }

    /// Runs a launch whose inputs live.
    fn run(&mut self, launch: u32) -> Option<()> {
        let flow = self.flow;
        let made = &flow.makes[launch as usize];
        let (taken, filled) = self.takeover(launch);
        let (mut large, mut small) = (0, 0);
        for &t in made.iter().filter(|&&t| !self.is_live[t as usize] && !filled.contains(&t)) {
            match flow.bytes[t as usize] {
                bytes if bytes > self.way.lending.small => large += bytes,
                bytes => small += bytes,
            }
        }
        self.make_room(large, small)?;
        taken.iter().for_each(|&t| self.release(t, false));
        for &t in made {
            self.hold(t);
        }
        for &t in &flow.reads[launch as usize] {
            self.locks[t as usize] -= 1;
            self.touched.push(t);
        }
        self.order.push(launch);
        self.work += flow.work[launch as usize];
        (self.work <= self.max_work).then_some(())
    }

    /// Inputs whose memory outputs take over, and those outputs.
    fn takeover(&mut self, launch: u32) -> (Vec<u32>, Vec<u32>) {
        let flow = self.flow;
        let after = self.now + u32::from(launch == self.now);
        let (mut taken, mut filled) = (Vec::new(), Vec::new());
        for &(to, from) in &flow.takes_over[launch as usize] {
            let f = from as usize;
            let ends = self.is_live[f] && !flow.is_kept[f] && self.locks[f] == 1 && self.next_use(from, after) == NEVER;
            if ends && !self.is_live[to as usize] && !taken.contains(&from) && !filled.contains(&to) {
                taken.push(from);
                filled.push(to);
            }
        }
        (taken, filled)
    }

    fn hold(&mut self, t: u32) {
        self.touched.push(t);
        let t = t as usize;
        self.is_dropped[t] = false;
        if std::mem::replace(&mut self.is_live[t], true) {
            return;
        }
        *self.sum_of(self.flow.bytes[t]) += self.flow.bytes[t];
        if self.flow.bytes[t] > 0 {
            self.place[t] = self.held.len() as u32;
            self.held.push(t as u32);
        }
    }

    fn sum_of(&mut self, bytes: usize) -> &mut usize {
        if bytes > self.way.lending.small { &mut self.large } else { &mut self.small }
    }

    fn release(&mut self, t: u32, is_drop: bool) {
        let i = t as usize;
        self.is_live[i] = false;
        self.is_dropped[i] = is_drop;
        *self.sum_of(self.flow.bytes[i]) -= self.flow.bytes[i];
        let at = self.place[i] as usize;
        if self.flow.bytes[i] > 0 {
            self.held.swap_remove(at);
            if let Some(&moved) = self.held.get(at) {
                self.place[moved as usize] = at as u32;
            }
        }
    }

    /// The first launch from `from` on that reads it, or something that is rebuilt from it; `NEVER` if nobody does.
    fn next_use(&mut self, t: u32, from: u32) -> u32 {
        let readers = &self.flow.readers[t as usize];
        let next = &mut self.next[t as usize];
        while readers.get(*next as usize).is_some_and(|&r| r < self.now) {
            *next += 1;
        }
        let own = readers[*next as usize..].iter().copied().find(|&r| r >= from).unwrap_or(NEVER);
        own.min(self.derived_use(t, from))
    }

    fn derived_use(&mut self, t: u32, from: u32) -> u32 {
        let known = self.derived[t as usize];
        if known >= from {
            return known;
        }
        let mut found = NEVER;
        for &reader in self.flow.readers[t as usize].iter().take_while(|&&r| r < self.now) {
            for &v in &self.flow.makes[reader as usize] {
                let i = v as usize;
                if self.is_live[i] {
                    continue;
                }
                if self.is_dropped[i] {
                    let readers = &self.flow.readers[i];
                    let at = readers.partition_point(|&r| r < from);
                    found = readers.get(at).map_or(found, |&r| found.min(r));
                }
                if self.derived[i] >= from {
                    found = found.min(self.derived[i]);
                }
            }
        }
        self.derived[t as usize] = found;
        found
    }

    /// What a value that is dropped will be rebuilt from is needed when that is used.
    fn derive(&mut self, dropped: u32, used: u32) {
        let flow = self.flow;
        self.stack.clear();
        self.stack.push(dropped);
        while let Some(u) = self.stack.pop() {
            for &v in &flow.reads[flow.maker[u as usize] as usize] {
                let known = self.derived[v as usize];
                if known < self.now || known > used {
                    self.derived[v as usize] = used;
                    if !self.is_live[v as usize] {
                        self.stack.push(v);
                    }
                }
            }
        }
    }

    /// Frees what the launches of this step touched and nobody reads any more.
    fn sweep(&mut self) {
        for t in std::mem::take(&mut self.touched) {
            let i = t as usize;
            if self.is_live[i] && !self.flow.is_kept[i] && self.next_use(t, self.now + 1) == NEVER {
                self.release(t, false);
            }
        }
    }

    fn make_room(&mut self, large: usize, small: usize) -> Option<()> {
        let lent = self.way.lending.bytes[self.now as usize];
        loop {
            let beyond = (self.small + small).saturating_sub(lent);
            if self.large + large + beyond <= self.limit {
                return Some(());
            }
            self.only_large = beyond == 0;
            let worst = if self.held.len() <= FEW { self.cheapest_of_all() } else { self.cheapest_of_some() }?;
            let used = self.next_use(worst, self.now);
            self.release(worst, used != NEVER);
            if used != NEVER {
                self.derive(worst, used);
            }
        }
    }

    fn cheapest_of_all(&mut self) -> Option<u32> {
        let mut best: Option<(f64, u32)> = None;
        for at in 0..self.held.len() {
            let t = self.held[at];
            if let Some(rating) = self.rate(t)
                && best.is_none_or(|(least, _)| rating < least)
            {
                best = Some((rating, t));
            }
        }
        best.map(|(_, t)| t)
    }

    /// The cheapest of a short list of what was cheapest a while ago.
    fn cheapest_of_some(&mut self) -> Option<u32> {
        if self.shortlist.len() < SHORTLIST / 2 {
            let mut rated: Vec<(f64, u32)> = Vec::with_capacity(self.held.len());
            for at in 0..self.held.len() {
                let t = self.held[at];
                rated.extend(self.rate(t).map(|rating| (rating, t)));
            }
            if rated.len() > SHORTLIST {
                rated.select_nth_unstable_by(SHORTLIST, |a, b| a.0.total_cmp(&b.0));
                rated.truncate(SHORTLIST);
            }
            self.shortlist = rated.into_iter().map(|(_, t)| t).collect();
        }
        let mut best: Option<(f64, u32)> = None;
        for t in self.shortlist.clone() {
            if let Some(rating) = self.rate(t)
                && best.is_none_or(|(least, _)| rating < least)
            {
                best = Some((rating, t));
            }
        }
        let Some((_, t)) = best else {
            self.shortlist.clear();
            return self.cheapest_of_all();
        };
        self.shortlist.retain(|&other| other != t);
        Some(t)
    }
}
