//! The plan cache: bounded, least recently used first, and countable.
use super::Plan;
use super::key::hash;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Plans kept.
const MAX_PLANS: usize = 256;
/// Words of key kept over all plans (64 MiB); a larger plan is not worth keeping.
const MAX_WORDS: usize = 8 << 20;

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

/// Plans by hash; a hit compares the whole key.
#[derive(Default)]
pub(crate) struct Cache {
    plans: FxHashMap<u64, Vec<(u64, Arc<Plan>)>>,
    words: usize,
    clock: u64,
    stats: CacheStats,
}

impl Cache {
    /// The plan of a key.
    pub fn find(&mut self, key: &[u64]) -> Option<Arc<Plan>> {
        self.clock += 1;
        let found = self.plans.get_mut(&hash(key)).and_then(|list| list.iter_mut().find(|(_, p)| p.key == key));
        match found {
            Some((used, plan)) => {
                *used = self.clock;
                self.stats.hits += 1;
                Some(plan.clone())
            }
            None => {
                self.stats.misses += 1;
                None
            }
        }
    }

    /// Keeps a plan.
    pub fn insert(&mut self, plan: &Arc<Plan>) {
        if plan.key.len() > MAX_WORDS / 4 {
            return;
        }
        self.plans.entry(hash(&plan.key)).or_default().push((self.clock, plan.clone()));
        self.words += plan.key.len();
        self.stats.plans += 1;
        while self.stats.plans > MAX_PLANS || self.words > MAX_WORDS {
            self.evict();
        }
    }

    fn evict(&mut self) {
        let oldest = self.plans.iter().flat_map(|(h, list)| list.iter().map(move |(used, _)| (*used, *h))).min();
        let Some((used, h)) = oldest else { return };
        if let Some(list) = self.plans.get_mut(&h) {
            if let Some(i) = list.iter().position(|(u, _)| *u == used) {
                self.words -= list[i].1.key.len();
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
    super::lock_engine().cache = Cache::default();
}
