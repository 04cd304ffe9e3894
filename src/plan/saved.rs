//! What is kept for gradient rules where a budget does not hold all of it: values in the order in which they are best done without.
use super::Loc;
use super::budget::Planner;
use super::flow::Flow;
use super::program::Program;
use crate::graph::Node;
use crate::pool::class_bytes;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

const NONE: u32 = u32::MAX;
/// Launches looked at to rate one value.
const MAX_VISITED: usize = 128;

/// Nodes by address.
pub(super) type Nodes = FxHashSet<*const Node>;

/// Values that only gradient rules need and that are kept or given up together: those of one node, and those that lie in the same memory.
pub(super) struct Group {
    pub nodes: SmallVec<[Arc<Node>; 1]>,
    temps: SmallVec<[u32; 2]>,
    pub bytes: usize,
}

impl Group {
    /// Whether all of it is of these nodes.
    pub fn is_of(&self, nodes: &Nodes) -> bool {
        self.nodes.iter().all(|node| nodes.contains(&Arc::as_ptr(node)))
    }
}

/// The values that a program keeps for gradient rules alone, first those that are cheapest to do without, byte for byte. The order depends
/// on the program only, so what a smaller budget keeps a larger one keeps too.
pub(super) fn cheapest_first(program: &Program, planner: &Planner) -> Vec<Group> {
    let groups = groups(program, planner);
    let order = Ranking::new(&planner.flow, &groups).order();
    let mut groups: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
    order.into_iter().filter_map(|g| groups[g as usize].take()).collect()
}

fn groups(program: &Program, planner: &Planner) -> Vec<Group> {
    let temps = &planner.plain.temps;
    let mut sets = Sets((0..temps.len() as u32).collect());
    let mut is_wanted = vec![false; temps.len()];
    // Nodes with one of their temporaries.
    let mut members: Vec<(u32, u32)> = Vec::new();
    for kept in &planner.plain.kept {
        let Loc::Temp(t) = kept.loc else { continue };
        is_wanted[t as usize] |= !program.is_saved_only(kept.node, kept.out);
        match members.last() {
            Some(&(node, other)) if node == kept.node => sets.join(t, other),
            _ => members.push((kept.node, t)),
        }
    }
    let mut is_blocked = vec![false; temps.len()];
    for t in (0..temps.len()).filter(|&t| is_wanted[t]) {
        is_blocked[sets.root(t as u32) as usize] = true;
    }
    let mut group_of = vec![NONE; temps.len()];
    let mut groups: Vec<Group> = Vec::new();
    for (node, t) in members {
        let root = sets.root(t) as usize;
        if is_blocked[root] {
            continue;
        }
        if group_of[root] == NONE {
            group_of[root] = groups.len() as u32;
            groups.push(Group { nodes: SmallVec::new(), temps: SmallVec::new(), bytes: 0 });
        }
        groups[group_of[root] as usize].nodes.push(program.nodes[node as usize].clone());
    }
    let mut is_counted = vec![false; temps.len()];
    for kept in &planner.plain.kept {
        let Loc::Temp(t) = kept.loc else { continue };
        let group = group_of[sets.root(t) as usize];
        if group != NONE && !std::mem::replace(&mut is_counted[t as usize], true) {
            let group = &mut groups[group as usize];
            group.temps.push(t);
            group.bytes += class_bytes(temps[t as usize].bytes);
        }
    }
    groups
}

/// Disjoint sets of temporaries.
struct Sets(Vec<u32>);

impl Sets {
    fn root(&mut self, mut t: u32) -> u32 {
        while self.0[t as usize] != t {
            self.0[t as usize] = self.0[self.0[t as usize] as usize];
            t = self.0[t as usize];
        }
        t
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}

/// Drops one group after the other; what each costs depends on what was dropped around it.
struct Ranking<'a> {
    flow: &'a Flow,
    groups: &'a [Group],
    group_of: Vec<u32>,
    is_there: Vec<bool>,
    /// The last launch that makes one of them: what comes later does not compute them again.
    last: u32,
    stamps: Vec<u32>,
    stamp: u32,
}

impl<'a> Ranking<'a> {
    fn new(flow: &'a Flow, groups: &'a [Group]) -> Ranking<'a> {
        let mut group_of = vec![NONE; flow.bytes.len()];
        for (g, group) in groups.iter().enumerate() {
            group.temps.iter().for_each(|&t| group_of[t as usize] = g as u32);
        }
        let last = groups.iter().flat_map(|g| &g.temps).map(|&t| flow.maker[t as usize]).max().unwrap_or(0);
        let stamps = vec![0; flow.reads.len()];
        Ranking { flow, groups, group_of, is_there: flow.is_kept.clone(), last, stamps, stamp: 0 }
    }

    fn order(mut self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.groups.len());
        let mut waiting: BinaryHeap<Reverse<(u64, u32)>> =
            (0..self.groups.len() as u32).map(|g| Reverse((self.rate(g), g))).collect();
        while let Some(Reverse((rating, g))) = waiting.pop() {
            // What was dropped meanwhile can only have made it dearer.
            let now = self.rate(g);
            if now > rating && waiting.peek().is_some_and(|Reverse(next)| *next < (now, g)) {
                waiting.push(Reverse((now, g)));
                continue;
            }
            self.groups[g as usize].temps.iter().for_each(|&t| self.is_there[t as usize] = false);
            order.push(g);
        }
        order
    }

    /// Work per byte of computing a group again, with what must be computed before it and what was dropped that is computed from it.
    fn rate(&mut self, g: u32) -> u64 {
        let flow = self.flow;
        self.stamp += 1;
        let mut total: u64 = 0;
        let mut visited = 0;
        let mut stack: SmallVec<[u32; 16]> = SmallVec::from_slice(&self.groups[g as usize].temps);
        while let Some(t) = stack.pop() {
            let maker = flow.maker[t as usize] as usize;
            if visited > MAX_VISITED || std::mem::replace(&mut self.stamps[maker], self.stamp) == self.stamp {
                continue;
            }
            visited += 1;
            total += flow.work[maker];
            stack.extend(flow.reads[maker].iter().copied().filter(|&v| !self.is_there[v as usize]));
        }
        stack.extend_from_slice(&self.groups[g as usize].temps);
        while let Some(t) = stack.pop() {
            for &reader in flow.readers[t as usize].iter().take_while(|&&r| r <= self.last) {
                if visited > MAX_VISITED || self.stamps[reader as usize] == self.stamp {
                    continue;
                }
                let missing: SmallVec<[u32; 4]> =
                    flow.makes[reader as usize].iter().copied().filter(|&v| !self.is_there[v as usize]).collect();
                if missing.is_empty() {
                    continue;
                }
                self.stamps[reader as usize] = self.stamp;
                visited += 1;
                if missing.iter().any(|&v| self.group_of[v as usize] != NONE) {
                    total += flow.work[reader as usize];
                }
                stack.extend(missing);
            }
        }
        let bytes = self.groups[g as usize].bytes.max(1) as u128;
        ((u128::from(total) << 16) / bytes).min(u128::from(u64::MAX)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    /// A chain of launches of which each reads the value before, all saved.
    fn chain(work: &[u64]) -> (Flow, Vec<Group>) {
        let n = work.len();
        let flow = Flow {
            reads: (0..n as u32).map(|s| if s == 0 { smallvec![] } else { smallvec![s - 1] }).collect(),
            makes: (0..n as u32).map(|s| smallvec![s]).collect(),
            work: work.to_vec(),
            is_repeatable: vec![true; n],
            takes_over: vec![SmallVec::new(); n],
            bytes: vec![0; n],
            maker: (0..n as u32).collect(),
            readers: (1..=n as u32).map(|s| if s == n as u32 { vec![] } else { vec![s] }).collect(),
            is_kept: vec![true; n],
        };
        let groups = (0..n as u32).map(|t| Group { nodes: smallvec![], temps: smallvec![t], bytes: 64 }).collect();
        (flow, groups)
    }

    #[test]
    fn test_cheap_values_go_first_and_equal_ones_so_that_what_stays_is_spread() {
        let (flow, groups) = chain(&[5, 1, 5, 1, 5, 1]);
        let order = Ranking::new(&flow, &groups).order();
        assert_eq!(order[..3], [1, 3, 5]);
        let (flow, groups) = chain(&[1; 16]);
        let order = Ranking::new(&flow, &groups).order();
        let mut first = order[..8].to_vec();
        first.sort_unstable();
        assert!(first.windows(2).all(|pair| pair[1] - pair[0] == 2));
    }
}
