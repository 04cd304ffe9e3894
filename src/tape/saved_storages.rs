//! Which storages a tape's saved set needs, and what clearing the tape would do to each.
use crate::backend::op::{Op, ViewOp};
use crate::graph::{Mark, Node, Stage, Storage, TapeCore, Tensor};
use crate::layout::Layout;
use crate::pool::class_bytes;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What clearing the tape does to a storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It has no memory yet.
    Pending,
    /// It is freed.
    Freed,
    /// It stays: a Python tensor (a parameter, a user's variable) holds it.
    HeldByPython,
    /// It stays: an exported array, or a view that is held, shares it.
    HeldByShare,
    /// It stays: another tape needs it.
    HeldByTape,
    /// It stays until what reads it is computed.
    HeldByPending,
}

/// A value that a gradient rule reads, or a source that only recipes keep alive.
struct Saved {
    tensor: Tensor,
    /// How many rules of this tape saved it that give it back when the tape is cleared.
    released: u32,
    /// Whether a rule reads it.
    is_read: bool,
    /// The output of a user's op, if it is what the op's forward computed for that.
    forward_of: Option<Tensor>,
}

/// The names of one output of a node: its address and which output.
type Key = (usize, u32);

fn key_of(t: &Tensor) -> Key {
    (Arc::as_ptr(&t.node) as usize, t.index)
}

/// The saved set of a tape under collection.
#[derive(Default)]
pub(super) struct SavedStorages {
    order: Vec<Key>,
    saved: FxHashMap<Key, Saved>,
    /// How often nodes that forget their inputs when the tape is cleared name a node.
    forgotten: FxHashMap<usize, usize>,
    /// How often Python holds a value that it lets go of when the tape is cleared.
    alone: FxHashMap<Key, u32>,
}

/// Values that share one storage, or will.
pub(super) struct Group {
    storage: Option<Arc<Storage>>,
    /// The tensor that the bytes are charged to: the longest-lived holder.
    origin: Tensor,
    is_operand: bool,
    /// The origin is a view that has forgotten its base, so that it does not say where the bytes come from.
    is_vague: bool,
    bytes: usize,
    members: Vec<Saved>,
}

impl Group {
    /// The tensor that the bytes are charged to.
    pub fn origin(&self) -> &Tensor {
        &self.origin
    }

    /// Whether it outlives the tape anyway.
    pub fn is_operand(&self) -> bool {
        self.is_operand
    }

    /// Bytes of the storage.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the values in it that rules read, at most all of it; all of it for one that only recipes keep.
    pub fn bytes_read(&self) -> usize {
        let read = self.members.iter().filter(|m| m.is_read).map(|m| m.tensor.spec().bytes());
        let all = self.origin.spec().bytes();
        if self.values() == 0 { all } else { read.sum::<usize>().min(all) }
    }

    /// Values in it that rules read.
    pub fn values(&self) -> usize {
        self.members.iter().filter(|m| m.is_read).count()
    }

    /// Tells storages apart while they live; 0 without memory.
    pub fn key(&self) -> usize {
        self.storage.as_ref().map_or(0, |s| Arc::as_ptr(s) as usize)
    }
}

/// The layout that a view gives a value laid out so; `None` where it must be copied.
fn viewed(view: &ViewOp, from: &Layout, to: &[usize]) -> Option<Layout> {
    match view {
        ViewOp::Alias => Some(from.clone()),
        ViewOp::Permute(order) => Some(from.permute(order)),
        ViewOp::Expand => Some(from.expand(to)),
        ViewOp::Slice(ranges) => Some(from.slice(ranges)),
        ViewOp::Reshape => from.reshape(to),
    }
}

/// The tensor whose value an op only passes on under another identity.
fn source(t: &Tensor) -> Option<Tensor> {
    let state = t.node.state.lock();
    match &t.node.op {
        Op::View(_) if t.node.variable.is_none() => state.inputs.first().cloned(),
        // The forward's outputs are a user's op's last inputs.
        Op::Custom => state.inputs.get((state.inputs.len() + t.index()).checked_sub(t.node.outs.len())?).cloned(),
        _ => None,
    }
}

/// Where a saved value's bytes are or will be, the tensor that they come from, and the one that they are charged to: views share their
/// base's storage, unless they had to be copied; a user's op answers for what its forward computed.
fn trace(t: &Tensor) -> (Tensor, Tensor, Tensor) {
    let mut chain: SmallVec<[Tensor; 4]> = smallvec::smallvec![t.clone()];
    while let Some(next) = chain.last().and_then(source) {
        if let (Some(mine), Some(its)) = (chain.last().and_then(Tensor::value), next.value())
            && !Arc::ptr_eq(&mine.storage, &its.storage)
        {
            break;
        }
        chain.push(next);
    }
    // From the base up: a pending view that strides cannot say starts a storage of its own; so does every kept view of a number.
    let mut at = chain.len() - 1;
    if matches!(chain[at].node.op, Op::Const) && chain[at].value().is_none() {
        at = 0;
    }
    let mut layout = match chain[at].value() {
        Some(value) => (*value.layout).clone(),
        None => Layout::contiguous(chain[at].shape()),
    };
    for i in (0..at).rev() {
        let Op::View(view) = &chain[i].node.op else { continue };
        if let Some(value) = chain[i].value() {
            layout = (*value.layout).clone();
            continue;
        }
        layout = viewed(view, &layout, chain[i].shape()).unwrap_or_else(|| {
            at = i;
            Layout::contiguous(chain[i].shape())
        });
    }
    let holder = chain[..=at].iter().find(|t| t.value().is_some()).unwrap_or(&chain[at]).clone();
    let charged = chain[..=at].iter().find(|t| matches!(t.node.op, Op::Custom)).unwrap_or(&chain[at]).clone();
    (holder, chain[at].clone(), charged)
}

impl SavedStorages {
    /// Adds what a live node of the tape saved and names, and says how many inputs it has.
    pub fn add(&mut self, node: &Arc<Node>, tape: &Arc<TapeCore>) -> usize {
        let (inputs, saved, stage) = {
            let state = node.state.lock();
            (state.inputs.clone(), state.saved, state.stage)
        };
        let is_released = !is_kept_by_another(node, tape);
        let given = match node.op {
            Op::Custom => inputs.len().saturating_sub(node.outs.len()),
            _ => inputs.len(),
        };
        for (i, t) in inputs.iter().enumerate() {
            let is_read = saved.has_input(i);
            if is_read || is_kept_by_recipes_alone(t) {
                let forward_of = i.checked_sub(given).map(|o| Tensor { node: node.clone(), index: o as u32 });
                self.note(t, is_read, is_released, forward_of);
            }
            if is_released && stage == Stage::Computed {
                *self.forgotten.entry(Arc::as_ptr(&t.node) as usize).or_default() += 1;
            }
        }
        for o in 0..node.outs.len() {
            if saved.has_output(o) {
                self.note(&Tensor { node: node.clone(), index: o as u32 }, true, is_released, None);
            }
        }
        inputs.len()
    }

    /// Adds a value that Python holds once, for what goes when the tape is cleared.
    pub fn add_alone(&mut self, t: &Tensor) {
        *self.alone.entry(key_of(t)).or_default() += 1;
        *self.forgotten.entry(Arc::as_ptr(&t.node) as usize).or_default() += 1;
        self.note(t, false, false, None);
    }

    fn note(&mut self, t: &Tensor, is_read: bool, is_released: bool, forward_of: Option<Tensor>) {
        let order = &mut self.order;
        let saved = self.saved.entry(key_of(t)).or_insert_with(|| {
            order.push(key_of(t));
            Saved { tensor: t.clone(), released: 0, is_read: false, forward_of }
        });
        saved.released += u32::from(is_read && is_released);
        saved.is_read |= is_read;
    }

    /// The storages in the order they were met, and what clearing the tape does to each.
    pub fn groups(mut self, tape: &Arc<TapeCore>) -> Vec<(Group, Fate)> {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: FxHashMap<Key, usize> = FxHashMap::default();
        for key in std::mem::take(&mut self.order) {
            let Some(saved) = self.saved.remove(&key) else { continue };
            let (holder, base, charged) = trace(&saved.tensor);
            let storage = holder.value().map(|v| v.storage);
            let key = match &storage {
                Some(s) => (Arc::as_ptr(s) as usize, u32::MAX),
                None => key_of(&base),
            };
            let origin = saved.forward_of.clone().unwrap_or(charged);
            let is_recorded = origin.node.marks.iter().any(|m| m.is_live() && Arc::ptr_eq(&m.tape, tape));
            let is_operand = origin.node.variable.is_some() || !is_recorded;
            let is_vague = is_operand && matches!(origin.node.op, Op::View(_)) && origin.node.variable.is_none();
            let at = *known.entry(key).or_insert_with(|| {
                let bytes = storage.as_ref().and_then(|s| s.bytes().ok());
                let bytes = bytes.unwrap_or_else(|| class_bytes(origin.spec().bytes()));
                groups.push(Group { storage, origin: origin.clone(), is_operand, is_vague, bytes, members: Vec::new() });
                groups.len() - 1
            });
            let group = &mut groups[at];
            if !is_vague && (group.is_vague || (is_operand && !group.is_operand)) {
                (group.origin, group.is_operand, group.is_vague) = (origin, is_operand, false);
            }
            // A pending view of a computed base: the base's own count says who holds the storage.
            if saved.tensor.value().is_none() && holder.value().is_some() {
                group.members.push(Saved { tensor: holder, released: u32::MAX, is_read: false, forward_of: None });
            }
            group.members.push(saved);
        }
        let clones = clones(&groups);
        let fates: Vec<Fate> = groups.iter().map(|g| self.fate(g, &clones)).collect();
        groups.into_iter().zip(fates).collect()
    }

    /// What clearing the tape does to a storage: it goes when every value in it goes and nobody else shares it.
    fn fate(&self, group: &Group, clones: &FxHashMap<usize, usize>) -> Fate {
        let Some(storage) = &group.storage else { return Fate::Pending };
        let mut in_it: SmallVec<[Key; 4]> = SmallVec::new();
        for m in &group.members {
            if m.tensor.value().is_none_or(|v| !Arc::ptr_eq(&v.storage, storage)) {
                continue;
            }
            if !in_it.contains(&key_of(&m.tensor)) {
                in_it.push(key_of(&m.tensor));
            }
            let out = m.tensor.out();
            if out.python.load(Relaxed) as usize > self.alone.get(&key_of(&m.tensor)).map_or(0, |&n| n as usize) {
                return Fate::HeldByPython;
            }
            if out.pending.load(Relaxed) > 0 {
                return Fate::HeldByPending;
            }
            if out.saved.load(Relaxed) > m.released {
                return Fate::HeldByTape;
            }
            // A leaf's value goes with its node, when the last recipe that names it has forgotten it.
            let address = Arc::as_ptr(&m.tensor.node) as usize;
            let others = Arc::strong_count(&m.tensor.node) - clones.get(&address).copied().unwrap_or(0);
            if matches!(m.tensor.node.op, Op::Leaf) && others > self.forgotten.get(&address).copied().unwrap_or(0) {
                return Fate::HeldByTape;
            }
        }
        // One count is the group's own.
        if Arc::strong_count(storage) > in_it.len() + 1 { Fate::HeldByShare } else { Fate::Freed }
    }
}

/// Whether another tape than this one keeps the node's recipe.
pub(super) fn is_kept_by_another(node: &Node, tape: &Arc<TapeCore>) -> bool {
    let mut marks = node.marks.iter().chain(node.segment.iter().flat_map(|s| s.marks.iter()));
    marks.any(|m: &Mark| m.is_live() && !Arc::ptr_eq(&m.tape, tape))
}

/// A source of the tape with a value that nothing but recipes keeps alive, although no gradient rule reads it.
fn is_kept_by_recipes_alone(t: &Tensor) -> bool {
    let out = t.out();
    let is_idle = || out.pending.load(Relaxed) == 0 || matches!(t.node.op, Op::Leaf);
    out.python.load(Relaxed) == 0 && !t.node.is_recorded() && is_idle() && t.value().is_some()
}

/// How often the groups themselves name each node.
fn clones(groups: &[Group]) -> FxHashMap<usize, usize> {
    let mut found: FxHashMap<usize, usize> = FxHashMap::default();
    for t in groups.iter().flat_map(|g| g.members.iter().map(|m| &m.tensor).chain([&g.origin])) {
        *found.entry(Arc::as_ptr(&t.node) as usize).or_default() += 1;
    }
    found
}
