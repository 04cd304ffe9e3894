//! Second thoughts about an order with repeats: a value whose gap fits under the limit after all is held instead of rebuilt.
use super::flow::Flow;
use super::lend::Lending;
use super::profile::Profile;
use smallvec::SmallVec;

/// Passes over the repeats; each can make room for others.
const PASSES: usize = 4;
const NONE: u32 = u32::MAX;

/// One value that one step makes.
struct Made {
    temp: u32,
    step: u32,
    /// Steps that read it, in order.
    readers: SmallVec<[u32; 4]>,
    /// It outlives the plan.
    is_kept: bool,
}

impl Made {
    fn last(&self) -> u32 {
        self.readers.last().copied().unwrap_or(self.step)
    }
}

struct Refined<'a> {
    flow: &'a Flow,
    limit: usize,
    order: &'a [u32],
    is_removed: Vec<bool>,
    made: Vec<Made>,
    /// What each step makes and reads, among `made`.
    makes: Vec<SmallVec<[u32; 2]>>,
    reads: Vec<SmallVec<[u32; 4]>>,
    /// The step before that ran the same launch, and the one after.
    earlier: Vec<u32>,
    later: Vec<u32>,
    /// Bytes alive at each step.
    live: Profile,
}

/// The order without the repeats that are not needed under the limit.
pub(super) fn refine(flow: &Flow, lending: &Lending, order: &[u32], limit: usize) -> Vec<u32> {
    let mut r = Refined::new(flow, lending, order, limit);
    r.remove_unread();
    for _ in 0..PASSES {
        if !r.pass() {
            break;
        }
    }
    order.iter().zip(&r.is_removed).filter(|(_, removed)| !**removed).map(|(&l, _)| l).collect()
}

/// What is lent at each step: a launch's first run is the one that the program has, and what runs before it is rebuilt for it.
fn lent_at_steps(lending: &Lending, order: &[u32]) -> Vec<usize> {
    let mut has_run = vec![false; lending.bytes.len()];
    let is_first = |&l: &u32| !std::mem::replace(&mut has_run[l as usize], true);
    let firsts: Vec<bool> = order.iter().map(is_first).collect();
    let mut lent = vec![0; order.len()];
    let mut now = 0;
    for step in (0..order.len()).rev() {
        if firsts[step] {
            now = lending.bytes[order[step] as usize];
        }
        lent[step] = now;
    }
    lent
}

impl<'a> Refined<'a> {
    fn new(flow: &'a Flow, lending: &Lending, order: &'a [u32], limit: usize) -> Refined<'a> {
        let n = order.len();
        let mut newest = vec![NONE; flow.bytes.len()];
        let mut ran = vec![NONE; flow.reads.len()];
        let mut r = Refined {
            flow,
            limit,
            order,
            is_removed: vec![false; n],
            made: Vec::with_capacity(n * 2),
            makes: Vec::with_capacity(n),
            reads: Vec::with_capacity(n),
            earlier: vec![NONE; n],
            later: vec![NONE; n],
            live: Profile::new(lending.small, &lent_at_steps(lending, order)),
        };
        for (step, &launch) in order.iter().enumerate() {
            let reads: SmallVec<[u32; 4]> = flow.reads[launch as usize].iter().map(|&t| newest[t as usize]).collect();
            for &m in &reads {
                r.made[m as usize].readers.push(step as u32);
            }
            r.reads.push(reads);
            let mut makes = SmallVec::new();
            for &temp in &flow.makes[launch as usize] {
                if newest[temp as usize] == NONE || !flow.is_kept[temp as usize] {
                    newest[temp as usize] = r.made.len() as u32;
                }
                makes.push(r.made.len() as u32);
                r.made.push(Made { temp, step: step as u32, readers: SmallVec::new(), is_kept: false });
            }
            r.makes.push(makes);
            let before = std::mem::replace(&mut ran[launch as usize], step as u32);
            if before != NONE {
                r.earlier[step] = before;
                r.later[before as usize] = step as u32;
            }
        }
        for (temp, &m) in newest.iter().enumerate() {
            if m != NONE && flow.is_kept[temp] {
                r.made[m as usize].is_kept = true;
            }
        }
        for m in &r.made {
            r.live.change(m.step as usize..m.last() as usize + 1, flow.bytes[m.temp as usize], true);
        }
        r
    }

    /// Removes steps that nobody reads.
    fn remove_unread(&mut self) {
        for step in (0..self.order.len()).rev() {
            if !self.is_removed[step] && self.is_unread(step) {
                self.remove(step);
            }
        }
    }

    fn is_unread(&self, step: usize) -> bool {
        let is_unread = |&m: &u32| self.made[m as usize].readers.is_empty() && !self.made[m as usize].is_kept;
        // A launch that runs once may be one whose result nobody reads in any plan.
        (self.earlier[step] != NONE || self.later[step] != NONE) && self.makes[step].iter().all(is_unread)
    }

    /// Removes a step whose results nobody reads, and then what was read by it alone.
    fn remove(&mut self, step: usize) {
        let mut unread = vec![step];
        while let Some(step) = unread.pop() {
            self.is_removed[step] = true;
            let (earlier, later) = (self.earlier[step], self.later[step]);
            if earlier != NONE {
                self.later[earlier as usize] = later;
            }
            if later != NONE {
                self.earlier[later as usize] = earlier;
            }
            self.live.remove(step);
            for m in std::mem::take(&mut self.reads[step]) {
                let made = &mut self.made[m as usize];
                let before = made.last() as usize;
                made.readers.retain(|r| *r as usize != step);
                let after = made.last() as usize;
                self.live.change(after + 1..before + 1, self.flow.bytes[made.temp as usize], false);
                let maker = made.step as usize;
                if !self.is_removed[maker] && self.is_unread(maker) && !unread.contains(&maker) {
                    unread.push(maker);
                }
            }
        }
    }

    /// Tries every repeat, the one with the most work per byte and step held first; whether any could go.
    fn pass(&mut self) -> bool {
        let mut repeats: Vec<(f64, usize)> = (0..self.order.len())
            .filter(|&step| !self.is_removed[step] && self.earlier[step] != NONE)
            .map(|step| (self.gain(step), step))
            .collect();
        repeats.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut any = false;
        for (_, step) in repeats {
            if !self.is_removed[step] && self.earlier[step] != NONE && self.fits(step) {
                self.hold_instead(step);
                any = true;
            }
        }
        any
    }

    /// Values of the earlier step that take the place of this one's, with the gap over which they are to be held.
    fn gaps(&self, step: usize) -> impl Iterator<Item = (u32, u32, std::ops::Range<usize>)> + '_ {
        let earlier = self.earlier[step] as usize;
        self.makes[step].iter().zip(&self.makes[earlier]).filter_map(move |(&new, &old)| {
            let made = &self.made[new as usize];
            let is_needed = made.is_kept || !made.readers.is_empty();
            is_needed.then(|| (old, new, self.made[old as usize].last() as usize + 1..step))
        })
    }

    fn gain(&self, step: usize) -> f64 {
        let held: usize =
            self.gaps(step).map(|(old, _, gap)| self.flow.bytes[self.made[old as usize].temp as usize] * gap.len()).sum();
        self.flow.work[self.order[step] as usize] as f64 / (held as f64 + 1.0)
    }

    fn fits(&self, step: usize) -> bool {
        let mut gaps: SmallVec<[(usize, usize); 4]> =
            self.gaps(step).map(|(old, _, gap)| (gap.start, self.flow.bytes[self.made[old as usize].temp as usize])).collect();
        gaps.sort_unstable();
        // All gaps end at the step, so from one start to the next the same values are held.
        let (mut large, mut small) = (0, 0);
        gaps.iter().enumerate().all(|(i, &(start, bytes))| {
            let more = self.live.split(bytes);
            (large, small) = (large + more.0, small + more.1);
            let end = gaps.get(i + 1).map_or(step, |&(next, _)| next);
            self.live.fits(start..end, (large, small), self.limit)
        })
    }

    fn hold_instead(&mut self, step: usize) {
        let gaps: SmallVec<[_; 4]> = self.gaps(step).collect();
        for (old, new, gap) in gaps {
            self.live.change(gap, self.flow.bytes[self.made[old as usize].temp as usize], true);
            let readers = std::mem::take(&mut self.made[new as usize].readers);
            let is_kept = std::mem::take(&mut self.made[new as usize].is_kept);
            for &r in &readers {
                for m in &mut self.reads[r as usize] {
                    if *m == new {
                        *m = old;
                    }
                }
            }
            let made = &mut self.made[old as usize];
            made.readers.extend(readers);
            made.is_kept |= is_kept;
        }
        self.remove(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::{SmallVec, smallvec};

    /// A chain of `n` launches forward and `n` back, each reading one value of the way forward.
    fn chain(n: u32) -> Flow {
        let launches = 2 * n as usize;
        let mut flow = Flow {
            reads: vec![SmallVec::new(); launches],
            makes: (0..2 * n).map(|t| smallvec![t]).collect(),
            work: vec![1; launches],
            is_repeatable: vec![true; launches],
            takes_over: vec![SmallVec::new(); launches],
            bytes: vec![64; launches],
            maker: (0..2 * n).collect(),
            readers: vec![Vec::new(); launches],
            is_kept: vec![false; launches],
        };
        flow.is_kept[launches - 1] = true;
        flow.bytes[launches - 1] = 0;
        for s in 1..2 * n {
            flow.reads[s as usize].push(s - 1);
            if s >= n && 2 * n - 1 - s != s - 1 {
                flow.reads[s as usize].push(2 * n - 1 - s);
            }
        }
        for s in 0..launches {
            for t in flow.reads[s].clone() {
                flow.readers[t as usize].push(s as u32);
            }
        }
        flow
    }

    /// Bytes alive at every step, by last uses alone, and whether every read value was made before.
    fn peak(flow: &Flow, order: &[u32]) -> usize {
        let mut made = vec![NONE; flow.bytes.len()];
        let mut lives: Vec<(usize, u32, u32)> = Vec::new();
        for (step, &l) in order.iter().enumerate() {
            for &t in &flow.reads[l as usize] {
                lives[made[t as usize] as usize].2 = step as u32;
            }
            for &t in &flow.makes[l as usize] {
                made[t as usize] = lives.len() as u32;
                lives.push((flow.bytes[t as usize], step as u32, step as u32));
            }
        }
        let at = |s: u32| lives.iter().filter(|l| l.1 <= s && s <= l.2).map(|l| l.0).sum();
        (0..order.len() as u32).map(at).max().unwrap_or(0)
    }

    #[test]
    fn test_b01_orders_stay_under_their_limit_and_refining_never_adds_work() {
        use super::super::rebuild::{Rule, Way, schedule};
        let flow = chain(100);
        for limit in [12usize, 16, 24, 40, 80, 102] {
            for distance in [0.0, 0.5, 1.0] {
                let rule = Rule { counts_readers: true, is_strict: true, distance };
                let lending = Lending::none(&flow);
                let way = Way { rule, lending: &lending, factors: &[] };
                let Some(order) = schedule(&flow, limit * 64, way).unwrap() else { continue };
                let refined = refine(&flow, &lending, &order, limit * 64);
                assert!(peak(&flow, &order) <= limit * 64 && peak(&flow, &refined) <= limit * 64);
                assert!(refined.len() <= order.len() && refined.len() >= 200);
                if limit >= 102 {
                    assert_eq!(refined.len(), 200);
                }
            }
        }
    }
}
