//! Owns the model of the pools: what each operation must do and must answer.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::Op;
use super::ledger::{Counting, Ledger, Stamped};
use crate::pool::{Handle, PoolError, PoolId, PoolKind, Pools, ScopeId, class_bytes};

pub(super) struct Living {
    pub(super) pool: PoolId,
    pub(super) class: usize,
    pub(super) stamp: u64,
}

/// What the model knows of a pool id: its state and how often it was reset.
#[derive(Default)]
pub(super) struct Known {
    pub(super) is_open: bool,
    pub(super) is_gone: bool,
    pub(super) resets: u64,
}

/// The pools and, beside them, the plain truth.
pub(super) struct World {
    pub(super) pools: Pools<Counting>,
    pub(super) ledger: Rc<Ledger>,
    pub(super) ids: Vec<PoolId>,
    pub(super) known: HashMap<PoolId, Known>,
    pub(super) living: HashMap<Handle, Living>,
    /// Living handles in the order of birth, so that a pick does not depend on hashing.
    pub(super) order: Vec<Handle>,
    pub(super) dead: Vec<Handle>,
    pub(super) taken: Vec<(usize, Stamped)>,
    /// Cached buffers by class.
    pub(super) cached: BTreeMap<usize, usize>,
    pub(super) taken_bytes: usize,
    pub(super) peaks: [usize; 3],
    pub(super) scopes: Vec<(ScopeId, usize)>,
    pub(super) resets: u64,
    pub(super) newest: Option<PoolId>,
    pub(super) stamps: u64,
}

impl World {
    pub(super) fn new(limit: usize) -> Self {
        let ledger = Rc::new(Ledger::default());
        ledger.limit.set(limit);
        let pools = Pools::new(Counting(Rc::clone(&ledger)), "model");
        let persistent = pools.persistent();
        World {
            pools,
            ledger,
            ids: vec![persistent],
            known: HashMap::from([(persistent, Known { is_open: true, ..Known::default() })]),
            living: HashMap::new(),
            order: Vec::new(),
            dead: Vec::new(),
            taken: Vec::new(),
            cached: BTreeMap::new(),
            taken_bytes: 0,
            peaks: [0; 3],
            scopes: Vec::new(),
            resets: 0,
            newest: None,
            stamps: 0,
        }
    }

    fn id(&self, pick: usize) -> PoolId {
        self.ids[pick % self.ids.len()]
    }

    fn picked(&self, pick: usize) -> Option<Handle> {
        (!self.order.is_empty()).then(|| self.order[pick % self.order.len()])
    }

    pub(super) fn actives(&self) -> [usize; 3] {
        let of = |kind| self.living.values().filter(|it| it.pool.kind() == kind).map(|it| it.class).sum::<usize>();
        let (persistent, pass) = (of(PoolKind::Persistent), of(PoolKind::Pass));
        [persistent + pass, persistent, pass]
    }

    pub(super) fn cached_bytes(&self) -> usize {
        self.cached.iter().map(|(class, count)| class * count).sum()
    }

    pub(super) fn reserved(&self) -> usize {
        self.actives()[0] + self.cached_bytes() + self.taken_bytes
    }

    /// Raises the peaks to what is active now.
    fn note_peaks(&mut self) {
        let actives = self.actives();
        for (peak, active) in self.peaks.iter_mut().zip(actives) {
            *peak = (*peak).max(active);
        }
        self.scopes.iter_mut().for_each(|(_, peak)| *peak = (*peak).max(actives[0]));
    }

    /// True if a buffer of this class can be had; keeps the model's cache in step.
    fn expect_take(&mut self, class: usize) -> bool {
        if let Some(count) = self.cached.get_mut(&class).filter(|count| **count > 0) {
            *count -= 1;
            return true;
        }
        if self.reserved() + class > self.ledger.limit.get() {
            self.cached.clear();
        }
        self.reserved() + class <= self.ledger.limit.get()
    }

    fn born(&mut self, handle: Handle, pool: PoolId, class: usize) {
        assert!(!self.living.contains_key(&handle), "{handle:?} is given out already");
        assert!(!self.dead.contains(&handle), "{handle:?} was given out before");
        self.stamps += 1;
        let stamp = self.stamps;
        self.pools.get_mut(handle).unwrap().stamp = stamp;
        self.living.insert(handle, Living { pool, class, stamp });
        self.order.push(handle);
        self.note_peaks();
    }

    fn died(&mut self, handle: Handle) -> Living {
        self.order.retain(|other| *other != handle);
        self.dead.push(handle);
        let living = self.living.remove(&handle).unwrap();
        self.settle(living.pool);
        living
    }

    /// A dropped pool is gone once nothing lives in it.
    fn settle(&mut self, pool: PoolId) {
        let is_empty = !self.living.values().any(|it| it.pool == pool);
        let known = self.known.get_mut(&pool).unwrap();
        known.is_gone |= !known.is_open && is_empty;
    }

    fn reset_model(&mut self, pool: PoolId) -> usize {
        let mut freed = 0;
        for handle in self.order.clone() {
            if self.living[&handle].pool == pool {
                let class = self.died(handle).class;
                *self.cached.entry(class).or_default() += 1;
                freed += class;
            }
        }
        self.known.get_mut(&pool).unwrap().resets += 1;
        self.resets += 1;
        freed
    }

    fn run_storage_op(&mut self, op: &Op) {
        match *op {
            Op::Alloc(pick, bytes) => {
                let (pool, class) = (self.id(pick), class_bytes(bytes));
                let is_open = self.known[&pool].is_open;
                let can = is_open && self.expect_take(class);
                match self.pools.alloc(pool, bytes) {
                    Ok(handle) if can => self.born(handle, pool, class),
                    Err(PoolError::OutOfMemory { bytes, active, largest, .. }) if is_open && !can => {
                        assert_eq!((bytes, active), (class, self.actives()[0]));
                        let most = self.living.values().map(|it| it.class).max();
                        assert_eq!(largest.first().map(|(_, class)| *class), most);
                    }
                    Err(PoolError::NotOpen { pool: name, .. }) if !is_open => assert_eq!(name, pool.name()),
                    other => panic!("{other:?}"),
                }
            }
            Op::Release(pick) => {
                let Some(handle) = self.picked(pick) else { return };
                self.pools.release(handle).unwrap();
                let class = self.died(handle).class;
                *self.cached.entry(class).or_default() += 1;
            }
            Op::TakeBack(pick) => {
                let Some(handle) = self.picked(pick) else { return };
                let (class, buffer) = self.pools.take_back(handle).unwrap();
                let living = self.died(handle);
                assert_eq!((class, buffer.class, buffer.stamp), (living.class, living.class, living.stamp));
                self.taken_bytes += class;
                self.taken.push((class, buffer));
            }
            Op::Move(pick, target) => {
                let Some(handle) = self.picked(pick) else { return };
                let pool = self.id(target);
                match self.pools.move_to(handle, pool) {
                    Ok(moved) if self.known[&pool].is_open => {
                        assert_eq!(self.pools.get(moved).unwrap().stamp, self.living[&handle].stamp);
                        // The model never sees the storage in both pools, nor in none.
                        let class = self.living[&handle].class;
                        self.living.get_mut(&handle).unwrap().pool = pool;
                        self.note_peaks();
                        self.died(handle);
                        let ids = self.ids.clone();
                        ids.into_iter().for_each(|id| self.settle(id));
                        self.born(moved, pool, class);
                    }
                    Err(PoolError::NotOpen { .. }) if !self.known[&pool].is_open => {}
                    other => panic!("{other:?}"),
                }
            }
            _ => {}
        }
    }

    fn run_dead_op(&mut self, op: &Op) {
        match *op {
            Op::ReleaseDead(pick) if !self.dead.is_empty() => {
                let handle = self.dead[pick % self.dead.len()];
                let error = self.pools.release(handle).unwrap_err();
                self.assert_stale(handle, &error, true);
                let error = self.pools.take_back(handle).map(|_| ()).unwrap_err();
                self.assert_stale(handle, &error, true);
            }
            Op::MoveDead(pick, target) if !self.dead.is_empty() => {
                let (handle, pool) = (self.dead[pick % self.dead.len()], self.id(target));
                match self.pools.move_to(handle, pool).unwrap_err() {
                    PoolError::NotOpen { .. } if !self.known[&pool].is_open => {}
                    error => self.assert_stale(handle, &error, false),
                }
            }
            _ => {}
        }
    }

    fn run_buffer_op(&mut self, op: &Op) {
        match *op {
            Op::Take(bytes) => {
                let class = class_bytes(bytes);
                let can = self.expect_take(class);
                match self.pools.take_buffer(bytes) {
                    Ok(buffer) if can => {
                        assert_eq!(buffer.class, class);
                        self.taken_bytes += class;
                        self.taken.push((bytes, buffer));
                    }
                    Err(PoolError::OutOfMemory { .. }) if !can => {}
                    other => panic!("{:?}", other.map(|_| ())),
                }
            }
            Op::Give(pick) | Op::Discard(pick) if !self.taken.is_empty() => {
                let (bytes, buffer) = self.taken.swap_remove(pick % self.taken.len());
                self.taken_bytes -= buffer.class;
                if matches!(op, Op::Give(_)) {
                    *self.cached.entry(buffer.class).or_default() += 1;
                    self.pools.give_buffer(bytes, buffer);
                } else {
                    self.pools.discard_buffer(bytes, buffer);
                }
            }
            Op::Adopt(pick, target, is_born) if !self.taken.is_empty() => {
                let (bytes, buffer) = self.taken.swap_remove(pick % self.taken.len());
                let (pool, class) = (self.id(target), buffer.class);
                let is_open = self.known[&pool].is_open;
                self.taken_bytes -= class;
                if is_born && is_open {
                    self.pools.note_born(pool, class).unwrap();
                } else if is_born {
                    assert!(self.pools.note_born(pool, class).is_err());
                }
                match self.pools.adopt(pool, bytes, buffer, is_born) {
                    Ok(handle) if is_open => self.born(handle, pool, class),
                    Err(PoolError::NotOpen { .. }) if !is_open => *self.cached.entry(class).or_default() += 1,
                    other => panic!("{other:?}"),
                }
            }
            _ => {}
        }
    }

    fn run_pool_op(&mut self, op: &Op) {
        match *op {
            Op::Reset(pick) => {
                let pool = self.id(pick);
                let before = self.known[&pool].resets;
                if self.known[&pool].is_gone {
                    assert!(matches!(self.pools.reset(pool), Err(PoolError::NotOpen { .. })));
                    return;
                }
                let freed = self.pools.reset(pool).unwrap();
                assert_eq!(freed, self.reset_model(pool));
                if !self.known[&pool].is_gone {
                    let error = self.pools.check_not_reset(pool, before).unwrap_err();
                    assert_eq!(error, PoolError::WasReset { pool: pool.name(), had: before, current: before + 1 });
                    self.pools.check_not_reset(pool, before + 1).unwrap();
                }
            }
            Op::ResetAll => {
                let freed = self.pools.reset_all();
                let ids: Vec<_> = self.ids.iter().copied().filter(|id| !self.known[id].is_gone).collect();
                assert_eq!(freed, ids.into_iter().map(|id| self.reset_model(id)).sum::<usize>());
                self.cached.clear();
            }
            Op::CreatePass => {
                let id = self.pools.create_pass().unwrap();
                assert!(!self.known.contains_key(&id));
                let is_number_in_use = self.ids.iter().any(|other| other.number == id.number && !self.known[other].is_gone);
                assert!(!is_number_in_use);
                self.ids.push(id);
                self.known.insert(id, Known { is_open: true, ..Known::default() });
                self.newest = Some(id);
            }
            Op::DropPass(pick) => {
                let pool = self.id(pick);
                let may = self.known[&pool].is_open && pool.kind() == PoolKind::Pass;
                assert_eq!(self.pools.drop_pass(pool).is_ok(), may);
                if may {
                    self.known.get_mut(&pool).unwrap().is_open = false;
                    self.settle(pool);
                }
            }
            Op::NearWrap(pick, left) if !self.known[&self.id(pick)].is_gone => {
                self.pools.skip_generations(self.id(pick), u32::MAX - left);
            }
            _ => {}
        }
    }

    fn run_figure_op(&mut self, op: &Op) {
        match *op {
            Op::Trim => {
                assert_eq!(self.pools.trim(), self.cached_bytes());
                self.cached.clear();
            }
            Op::ResetPeak => {
                self.pools.reset_peak();
                self.peaks = self.actives();
            }
            Op::OpenScope => {
                let active = self.actives()[0];
                self.scopes.push((self.pools.open_peak_scope(), active));
            }
            Op::CloseScope(pick) if !self.scopes.is_empty() => {
                let (id, peak) = self.scopes.remove(pick % self.scopes.len());
                assert_eq!(self.pools.scope_peak(id), Some(peak));
                assert_eq!(self.pools.close_peak_scope(id), peak);
                assert_eq!(self.pools.scope_peak(id), None);
            }
            _ => {}
        }
    }

    pub(super) fn run(&mut self, op: &Op) {
        match op {
            Op::Alloc(..) | Op::Release(_) | Op::TakeBack(_) | Op::Move(..) => self.run_storage_op(op),
            Op::ReleaseDead(_) | Op::MoveDead(..) => self.run_dead_op(op),
            Op::Take(_) | Op::Give(_) | Op::Discard(_) | Op::Adopt(..) => self.run_buffer_op(op),
            Op::Reset(_) | Op::ResetAll | Op::CreatePass | Op::DropPass(_) | Op::NearWrap(..) => self.run_pool_op(op),
            Op::Trim | Op::ResetPeak | Op::OpenScope | Op::CloseScope(_) => self.run_figure_op(op),
            Op::Read(pick) => {
                let Some(handle) = self.picked(*pick) else { return };
                self.stamps += 1;
                self.pools.get_mut(handle).unwrap().stamp = self.stamps;
                self.living.get_mut(&handle).unwrap().stamp = self.stamps;
            }
        }
    }
}
