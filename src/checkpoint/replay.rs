//! The replay of segments during a backward walk: what gradient rules read there is computed again from its recipe, on demand and late.
use crate::backend::op::Op;
use crate::error::{Error, Result};
use crate::graph::{Node, Saved, Segment, Stage, TapeCore, Tensor, record_clone, scope};
use crate::ops;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What stands in for a node of a segment during its replay.
struct Entry {
    /// The node itself: its address is the key, so it must live.
    _original: Arc<Node>,
    stand_in: Arc<Node>,
    /// Outputs that are held until the walk leaves the segment, so that they survive an evaluation in its midst.
    held: u32,
}

impl Entry {
    fn output(&self, o: usize) -> Tensor {
        Tensor { node: self.stand_in.clone(), index: o as u32 }
    }

    /// Whether an output has its value or can still get it.
    fn is_usable(&self, o: usize) -> bool {
        let node = &self.stand_in;
        let state = node.state.lock();
        let has_recipe = !state.inputs.is_empty() || is_recipe_alone(&node.op);
        state.values[o].is_some() || state.stage == Stage::Pending || has_recipe
    }

    fn hold(&mut self, o: usize) {
        if self.held & Saved::bit(o) == 0 {
            self.held |= Saved::bit(o);
            self.output(o).hold();
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        for o in (0..self.stand_in.outs.len()).filter(|&o| self.held & Saved::bit(o) != 0) {
            self.output(o).unhold();
        }
    }
}

/// A segment that the walk is in, and what was rebuilt of it so far.
struct Replay {
    segment: Arc<Segment>,
    entries: FxHashMap<*const Node, Entry>,
    has_computed: bool,
}

/// The replays of one backward walk.
pub struct Replays<'a> {
    tape: &'a Arc<TapeCore>,
    /// Outermost first. A nested segment is rebuilt again by its own replay: its parent's keeps only what leaves it.
    stack: Vec<Replay>,
    phase: u32,
    replayed: usize,
}

/// Ops whose recipe has no inputs.
fn is_recipe_alone(op: &Op) -> bool {
    matches!(op, Op::Const | Op::Arange | Op::Random(_))
}

impl<'a> Replays<'a> {
    /// No segment yet.
    pub fn new(tape: &'a Arc<TapeCore>) -> Replays<'a> {
        Replays { tape, stack: Vec::new(), phase: 0, replayed: 0 }
    }

    /// Segments of which something was computed again, each as often as it was.
    pub fn count(&self) -> usize {
        self.replayed + self.stack.iter().filter(|r| r.has_computed).count()
    }

    /// Counts a segment that was replayed by other means.
    pub fn add(&mut self, n: usize) {
        self.replayed += n;
    }

    /// The walk has come to a node, newest first: what was rebuilt of the segments it has left is dropped.
    pub fn arrive(&mut self, node: &Node) {
        let before = self.stack.len();
        while self.stack.last().is_some_and(|top| top.segment.id > node.id) {
            let left = self.stack.pop();
            self.replayed += usize::from(left.is_some_and(|r| r.has_computed));
        }
        let mut changed = self.stack.len() != before;
        if let Some(segment) = &node.segment {
            let inside: SmallVec<[&Arc<Segment>; 4]> = segment.chain().take_while(|s| s.is_on(self.tape)).collect();
            for s in inside.into_iter().rev() {
                changed |= self.level(s).1;
            }
        }
        if changed {
            self.separate();
        }
    }

    /// Kernels made from here on are not merged with earlier ones.
    pub fn separate(&mut self) {
        self.phase += 1;
        scope(|s| s.phase = self.phase);
    }

    /// The position of a segment's replay, and whether it is new.
    fn level(&mut self, segment: &Arc<Segment>) -> (usize, bool) {
        if let Some(at) = self.stack.iter().rposition(|r| Arc::ptr_eq(&r.segment, segment)) {
            return (at, false);
        }
        self.stack.push(Replay { segment: segment.clone(), entries: FxHashMap::default(), has_computed: false });
        (self.stack.len() - 1, true)
    }

    /// The inputs that a node's rule reads, with rebuilt values for those that were dropped; `None` if all are there.
    pub fn inputs(&mut self, node: &Node, inputs: &[Tensor], reads: Saved) -> Result<Option<SmallVec<[Tensor; 2]>>> {
        let Some(segment) = node.segment.clone() else { return Ok(None) };
        let mut given: SmallVec<[Tensor; 2]> = inputs.into();
        for (_, t) in given.iter_mut().enumerate().filter(|(i, _)| reads.has_input(*i)) {
            if let Some(level) = self.home(&segment, &t.node) {
                *t = self.rebuild(&level, t)?;
            }
        }
        Ok(Some(given))
    }

    /// The outputs that a node's rule reads, rebuilt; empty if all are there.
    pub fn outputs(&mut self, node: &Arc<Node>, reads: Saved) -> Result<SmallVec<[Tensor; 1]>> {
        let mut given = SmallVec::new();
        let Some(segment) = node.segment.clone().filter(|_| reads.outputs != 0) else { return Ok(given) };
        let Some(level) = self.home(&segment, node) else { return Ok(given) };
        for o in 0..node.outs.len() {
            let own = Tensor { node: node.clone(), index: o as u32 };
            given.push(if reads.has_output(o) { self.rebuild(&level, &own)? } else { own });
        }
        Ok(given)
    }

    /// The innermost segment around a reader that also holds the node: its replay rebuilds it. `None` for what lies outside of all, and for
    /// numbers, which plans make where they are read.
    fn home(&self, reader: &Arc<Segment>, node: &Node) -> Option<Arc<Segment>> {
        if node.op == Op::Const {
            return None;
        }
        reader.chain().take_while(|s| s.is_on(self.tape)).find(|s| s.contains(node)).cloned()
    }

    /// What stands in for a value already: an earlier rebuild, or the value itself where somebody keeps it.
    fn known(&mut self, level: &Arc<Segment>, t: &Tensor) -> Option<Tensor> {
        let at = self.level(level).0;
        let key = Arc::as_ptr(&t.node);
        if let Some(entry) = self.stack[at].entries.get(&key)
            && entry.is_usable(t.index())
        {
            return Some(entry.output(t.index()));
        }
        // Held first, so that it cannot go between the look and its use.
        t.hold();
        let out = t.out();
        if t.value().is_some() || out.python.load(Relaxed) > 1 || out.saved.load(Relaxed) > 0 {
            let held = Saved::bit(t.index());
            self.stack[at].entries.insert(key, Entry { _original: t.node.clone(), stand_in: t.node.clone(), held });
            return Some(t.clone());
        }
        t.unhold();
        None
    }

    /// A dropped value, computed again as far as it takes.
    fn rebuild(&mut self, level: &Arc<Segment>, t: &Tensor) -> Result<Tensor> {
        let mut missing: Vec<(Arc<Segment>, Tensor)> = Vec::new();
        let mut seen: FxHashSet<(u64, *const Node)> = FxHashSet::default();
        let mut stack: Vec<(Arc<Segment>, Tensor)> = vec![(level.clone(), t.clone())];
        while let Some((level, t)) = stack.pop() {
            if seen.contains(&(level.id, Arc::as_ptr(&t.node))) || self.known(&level, &t).is_some() {
                continue;
            }
            seen.insert((level.id, Arc::as_ptr(&t.node)));
            for input in &t.node.state.lock().inputs {
                if let Some(home) = self.home(&level, &input.node) {
                    stack.push((home, input.clone()));
                }
            }
            missing.push((level, t));
        }
        // In the order of the first run, so that values live as long as they did there.
        missing.sort_unstable_by_key(|(_, t)| t.node.id);
        for (level, t) in &missing {
            self.compute(level, t)?;
        }
        self.keep(level, t)
    }

    /// Records a node's recipe over what stands in for its inputs.
    fn compute(&mut self, level: &Arc<Segment>, t: &Tensor) -> Result<()> {
        let inputs = t.node.state.lock().inputs.clone();
        if inputs.is_empty() && !is_recipe_alone(&t.node.op) {
            return Err(Error::Internal("a segment's value is needed whose recipe is gone"));
        }
        let mut given: SmallVec<[Tensor; 2]> = SmallVec::with_capacity(inputs.len());
        for input in &inputs {
            given.push(match self.home(level, &input.node) {
                Some(home) => {
                    // What leaves a nested segment, or belongs to this one, stays until the walk has left it.
                    let is_intermediate = input.node.segment.as_ref().is_some_and(|s| {
                        !Arc::ptr_eq(s, &home)
                            && t.node.segment.as_ref().is_some_and(|mine| mine.chain().any(|c| Arc::ptr_eq(c, s)))
                    });
                    if is_intermediate { self.found(&home, input)? } else { self.keep(&home, input)? }
                }
                None => input.clone(),
            });
        }
        let clone = record_clone(&t.node, given, ops::saves);
        let at = self.level(level).0;
        let replay = &mut self.stack[at];
        replay.has_computed = true;
        replay.entries.insert(Arc::as_ptr(&t.node), Entry { _original: t.node.clone(), stand_in: clone, held: 0 });
        Ok(())
    }

    fn found(&mut self, level: &Arc<Segment>, t: &Tensor) -> Result<Tensor> {
        self.known(level, t).ok_or(Error::Internal("a segment's value that its replay did not compute"))
    }

    /// What stands in for a value, held from now on.
    fn keep(&mut self, level: &Arc<Segment>, t: &Tensor) -> Result<Tensor> {
        let found = self.found(level, t)?;
        let at = self.level(level).0;
        if let Some(entry) = self.stack[at].entries.get_mut(&Arc::as_ptr(&t.node)) {
            entry.hold(t.index());
        }
        Ok(found)
    }
}
