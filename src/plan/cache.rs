//! The plan cache: bounded, least recently used first, and countable.
use super::Plan;
use super::key::hash;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// Plans kept.
const MAX_PLANS: usize = 256;
/// Words of key kept over all plans (64 MiB); a larger plan is not worth keeping.
const MAX_WORDS: usize = 8 << 20;

/// A plan serves a room that is larger than its own by less than one part in so many: what is held differs a little from step to step.
const NEARLY: usize = 64;

/// How often a plan was found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CacheStats {
    /// Evaluations that found their plan.
    pub hits: u64,
    /// Evaluations that made one.
    pub misses: u64,
    /// Plans kept now.
    pub plans: usize,
}

/// A plan for one room; the same plan may serve several.
struct Entry {
    used: u64,
    /// Bytes that a budget left; `None` without a budget.
    room: Option<usize>,
    plan: Arc<Plan>,
    /// It was only looked at so far, to see whether there is one: the first evaluation that runs it is the miss.
    is_new: bool,
}

/// What a step in two plans does without for gradient rules in some room.
pub(crate) struct Decision {
    /// That of the program which computes everything.
    pub key: Vec<u64>,
    pub room: usize,
    /// Positions of the nodes whose values are neither held nor kept.
    pub dropped: Vec<u32>,
    /// Of the plan that remains.
    pub work: u64,
}

/// Plans by hash; a hit compares the whole key.
#[derive(Default)]
pub(crate) struct Cache {
    plans: FxHashMap<u64, Vec<Entry>>,
    /// Oldest first.
    decisions: VecDeque<Decision>,
    words: usize,
    clock: u64,
    stats: CacheStats,
}

impl Cache {
    /// The plan of a key, for a room if there is a budget: one made for that room or hardly less, or one without rebuilds that fits. Also
    /// whether it ran before. What only looks counts neither as a hit nor as a miss.
    pub fn find(&mut self, key: &[u64], room: Option<usize>, is_look: bool) -> Option<(Arc<Plan>, bool)> {
        self.clock += 1;
        let serves = |e: &Entry| match (room, e.room) {
            (None, None) => true,
            (Some(room), made_for) => {
                let is_near = made_for.is_some_and(|m| m == room || (m <= room && room - m <= m / NEARLY));
                e.plan.buffer_bytes() <= room && (is_near || e.plan.rebuilds == 0)
            }
            (None, Some(_)) => false,
        };
        let entries = self.plans.get_mut(&hash(key)).into_iter().flatten();
        let found = entries.filter(|e| serves(e) && e.plan.key == key).min_by_key(|e| e.plan.work);
        let (plan, ran_before) = match found {
            Some(entry) => {
                entry.used = self.clock;
                let ran_before = !entry.is_new;
                entry.is_new &= is_look;
                (Some(entry.plan.clone()), ran_before)
            }
            None => (None, false),
        };
        if !is_look {
            self.stats.hits += u64::from(ran_before);
            self.stats.misses += u64::from(!ran_before);
        }
        plan.map(|plan| (plan, ran_before))
    }

    /// The plan of a key with the least work that fits into a room, whichever it was made for.
    pub fn cheapest_within(&self, key: &[u64], room: usize) -> Option<Arc<Plan>> {
        let entries = self.plans.get(&hash(key)).into_iter().flatten();
        let fits = entries.filter(|e| e.plan.key == key && e.plan.buffer_bytes() <= room);
        fits.min_by_key(|e| e.plan.work).map(|e| e.plan.clone())
    }

    /// Keeps a plan for a room; `is_new` if it is not run at once.
    pub fn insert(&mut self, plan: &Arc<Plan>, room: Option<usize>, is_new: bool) {
        if plan.key.len() > MAX_WORDS / 4 {
            return;
        }
        let entry = Entry { used: self.clock, room, plan: plan.clone(), is_new };
        self.plans.entry(hash(&plan.key)).or_default().push(entry);
        self.words += plan.key.len();
        self.stats.plans += 1;
        while self.stats.plans > MAX_PLANS || self.words > MAX_WORDS {
            self.evict();
        }
    }

    /// What was decided for a program in this room or hardly less.
    pub fn decided(&self, key: &[u64], room: usize) -> Option<Vec<u32>> {
        let is_near = |made_for: usize| made_for <= room && room - made_for <= made_for / NEARLY;
        let found = self.decisions.iter().filter(|d| is_near(d.room) && d.key == key).max_by_key(|d| d.room);
        found.map(|d| d.dropped.clone())
    }

    /// What costs least of what was decided for a program in smaller rooms.
    pub fn decided_below(&self, key: &[u64], room: usize) -> Option<Vec<u32>> {
        let below = self.decisions.iter().filter(|d| d.room <= room && d.key == key);
        below.min_by_key(|d| d.work).map(|d| d.dropped.clone())
    }

    /// Remembers a decision.
    pub fn decide(&mut self, decision: Decision) {
        self.decisions.retain(|d| d.room != decision.room || d.key != decision.key);
        self.decisions.push_back(decision);
        let words = |d: &VecDeque<Decision>| d.iter().map(|d| d.key.len()).sum::<usize>();
        while self.decisions.len() > MAX_PLANS || words(&self.decisions) > MAX_WORDS {
            self.decisions.pop_front();
        }
    }

    fn evict(&mut self) {
        let oldest = self.plans.iter().flat_map(|(h, list)| list.iter().map(move |e| (e.used, *h))).min();
        let Some((used, h)) = oldest else { return };
        if let Some(list) = self.plans.get_mut(&h) {
            if let Some(i) = list.iter().position(|e| e.used == used) {
                self.words -= list[i].plan.key.len();
                self.stats.plans -= 1;
                list.swap_remove(i);
            }
            if list.is_empty() {
                self.plans.remove(&h);
            }
        }
    }
}

/// Hits, misses and plans so far.
pub fn cache_stats() -> CacheStats {
    super::lock_engine().cache.stats
}

/// Forgets every plan and count.
pub fn clear_cache() {
    super::lock_engine().forget_plans();
}
