//! Captured steps: the plans that a step ran, and where a replay finds what they read.
use super::budget::Room;
use super::program::Program;
use super::{Place, Plan};
use crate::device::Device;
use crate::dtype::DType;
use crate::graph::{MadeView, Node, Notes, OutputId, Tensor, is_capturing};
use crate::layout::Layout;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::sync::{Arc, Weak};

/// A plan that a step under capture ran.
pub struct Run {
    pub(super) plan: Arc<Plan>,
    pub(super) program: Program,
    /// Numbers of the nodes that it computed.
    nodes: Vec<u64>,
    pub(super) leaves: Vec<LeafOf>,
    /// The values that it gave to nodes, in the plan's order.
    kept: Vec<OutputId>,
    /// The budget that bounded it, in bytes.
    pub(super) budget: Option<usize>,
}

/// A value that a run read.
pub(super) struct LeafOf {
    id: OutputId,
    node: Weak<Node>,
    pub dtype: DType,
    layout: Arc<Layout>,
    pub is_overwritten: bool,
}

thread_local! {
    static RUNS: RefCell<Option<Vec<Run>>> = const { RefCell::new(None) };
}

/// Begins to note the plans that this thread runs.
pub fn begin_runs() {
    RUNS.replace(Some(Vec::new()));
}

/// Stops that; the runs noted, in their order.
pub fn end_runs() -> Vec<Run> {
    RUNS.take().unwrap_or_default()
}

/// Notes a plan that has run for a program, while its nodes are alive.
pub(super) fn note_run(program: &Program, plan: &Arc<Plan>, room: Option<&Room>) {
    if !is_capturing() {
        return;
    }
    let overwritten: FxHashSet<u32> =
        plan.places.iter().filter_map(|place| if let Place::Leaf(l) = place { Some(*l) } else { None }).collect();
    let leaves = program.leaves.iter().zip(&program.origins).zip(0..).map(|((leaf, (node, out)), at)| LeafOf {
        id: (node.upgrade().map_or(u64::MAX, |n| n.id), *out),
        node: node.clone(),
        dtype: leaf.dtype,
        layout: leaf.value.layout.clone(),
        is_overwritten: overwritten.contains(&at),
    });
    let run = Run {
        plan: plan.clone(),
        program: program.shell(),
        nodes: program.nodes.iter().map(|n| n.id).collect(),
        leaves: leaves.collect(),
        kept: plan.kept.iter().map(|k| (program.nodes[k.node as usize].id, k.out)).collect(),
        budget: room.map(Room::budget),
    };
    RUNS.with_borrow_mut(|runs| runs.as_mut().map(|runs| runs.push(run)));
}

/// Where a replay finds a value.
#[derive(Clone, Debug)]
pub enum Source {
    /// It was there before: one of those that the replay is given.
    External(usize),
    /// An earlier run of the replay has made it.
    Slot(usize),
    /// A part of another one's storage, laid out so where that one's first element lay at an offset.
    View(Box<Source>, usize, Arc<Layout>),
}

impl Source {
    pub(super) fn root(&self) -> &Source {
        match self {
            Source::View(of, ..) => of.root(),
            _ => self,
        }
    }
}

/// A value that was there before the step.
pub struct External {
    /// Whose it was.
    pub id: OutputId,
    /// That tensor, if it is there still.
    pub tensor: Option<Tensor>,
    /// Where it lay.
    pub device: Device,
    /// Its type.
    pub dtype: DType,
    /// How it lay there.
    pub layout: Arc<Layout>,
    /// A run writes its results there: it must be nobody else's.
    pub is_overwritten: bool,
}

/// An argument of a run that changes from step to step.
pub(super) enum Number {
    Seed(u32),
    Counter(u32),
    Update { call: u32, word: u32 },
}

/// A run, and where its leaves, its results and its numbers go.
pub(super) struct Bound {
    pub run: Run,
    pub sources: Vec<Source>,
    pub slots: Vec<usize>,
    pub numbers: Vec<(u32, Number)>,
    /// What it is the last to read.
    pub last: Vec<Source>,
    /// What it makes and no run reads.
    pub unread: Vec<usize>,
}

/// A captured step.
pub struct Captured {
    pub(super) runs: Vec<Bound>,
    /// What the replay must be given.
    pub externals: Vec<External>,
    known: FxHashMap<OutputId, Source>,
    /// The run that makes each slot.
    pub(super) made: Vec<usize>,
    views: FxHashMap<u64, MadeView>,
    first: u64,
    pinned: Vec<Source>,
}

impl Captured {
    /// Finds out where every leaf of the runs came from.
    ///
    /// # Errors
    /// Why a leaf cannot be found again in a replay.
    pub fn new(runs: Vec<Run>, notes: &Notes) -> std::result::Result<Captured, String> {
        let mut captured = Captured {
            runs: Vec::with_capacity(runs.len()),
            externals: Vec::new(),
            known: FxHashMap::default(),
            made: Vec::new(),
            views: notes.views.clone(),
            first: notes.first,
            pinned: Vec::new(),
        };
        let changing = Changing::new(notes);
        for (at, run) in runs.into_iter().enumerate() {
            let device = run.program.device;
            let sources = run.leaves.iter().map(|leaf| captured.leaf(leaf, device)).collect::<std::result::Result<_, _>>()?;
            let slots = run.kept.iter().map(|&id| captured.slot(id, at)).collect();
            let numbers = changing.numbers(&run);
            captured.runs.push(Bound { run, sources, slots, numbers, last: Vec::new(), unread: Vec::new() });
        }
        Ok(captured)
    }

    fn slot(&mut self, id: OutputId, run: usize) -> usize {
        let slot = self.made.len();
        self.made.push(run);
        self.known.insert(id, Source::Slot(slot));
        slot
    }

    fn leaf(&mut self, leaf: &LeafOf, device: Device) -> std::result::Result<Source, String> {
        let shape = &leaf.layout.shape;
        if let Some(source) = self.find(leaf.id, leaf.dtype, device)? {
            match &source {
                Source::View(..) if leaf.is_overwritten => {
                    return Err(format!(
                        "the step overwrites a part, of shape {shape:?}, of another tensor; expected whole tensors"
                    ));
                }
                Source::External(n) => self.externals[*n].is_overwritten |= leaf.is_overwritten,
                _ => {}
            }
            return Ok(source);
        }
        if leaf.id.0 >= self.first {
            return Err(format!(
                "the step reads a tensor of shape {shape:?} that came about outside of it meanwhile; expected that no other thread and no \
                 foreign code computes what it reads"
            ));
        }
        let (tensor, layout) = (of_node(&leaf.node, leaf.id.1), leaf.layout.clone());
        let external = External { id: leaf.id, tensor, device, dtype: leaf.dtype, layout, is_overwritten: leaf.is_overwritten };
        Ok(self.external(external))
    }

    fn external(&mut self, external: External) -> Source {
        let source = Source::External(self.externals.len());
        self.known.insert(external.id, source.clone());
        self.externals.push(external);
        source
    }

    /// The source of a value that is known, or a part of one that was there before.
    fn find(&mut self, id: OutputId, dtype: DType, device: Device) -> std::result::Result<Option<Source>, String> {
        if let Some(source) = self.known.get(&id) {
            return Ok(Some(source.clone()));
        }
        let Some(view) = self.views.get(&id.0).cloned() else { return Ok(None) };
        let of = match self.find(view.of, dtype, device)? {
            Some(of) => of,
            None if view.of.0 >= self.first => return Ok(None),
            None => {
                let (tensor, layout) = (of_node(&view.node, view.of.1), view.of_layout.clone());
                self.external(External { id: view.of, tensor, device, dtype, layout, is_overwritten: false })
            }
        };
        let source = Source::View(Box::new(of), view.of_layout.offset, view.layout);
        self.known.insert(id, source.clone());
        Ok(Some(source))
    }

    /// Where a replay finds the value of a tensor that was computed in the step or read by it.
    pub fn source_of(&mut self, t: &Tensor) -> Option<Source> {
        self.find(t.id(), t.dtype(), t.device().unwrap_or(Device::CPU)).ok().flatten()
    }

    /// Where a replay finds the value of an output by its number, if a run makes it.
    pub fn slot_of(&self, id: OutputId) -> Option<Source> {
        self.known.get(&id).filter(|source| matches!(source, Source::Slot(_))).cloned()
    }

    /// The run that makes what a source names; `None` for what was there before.
    pub fn made_in(&self, source: &Source) -> Option<usize> {
        match source.root() {
            Source::Slot(slot) => Some(self.made[*slot]),
            _ => None,
        }
    }

    /// The last run that computes one of these nodes.
    pub fn run_of(&self, nodes: &[u64]) -> Option<usize> {
        self.runs.iter().rposition(|bound| bound.run.nodes.iter().any(|n| nodes.contains(n)))
    }

    /// Whether a run reads a value that was there before.
    pub fn reads(&self, id: OutputId) -> bool {
        matches!(self.known.get(&id), Some(Source::External(_)))
    }

    /// Keeps what a source names to the end of every replay.
    pub fn pin(&mut self, source: &Source) {
        self.pinned.push(source.root().clone());
    }

    /// Works out how long each value is needed, when everything that must last is pinned.
    pub fn finish(&mut self) {
        let key = |source: &Source| match source.root() {
            Source::External(n) => (false, *n),
            Source::Slot(n) => (true, *n),
            // A root is no view.
            Source::View(..) => (true, usize::MAX),
        };
        let mut seen: FxHashSet<(bool, usize)> = self.pinned.iter().map(key).collect();
        for bound in self.runs.iter_mut().rev() {
            bound.unread = bound.slots.iter().copied().filter(|&slot| !seen.contains(&(true, slot))).collect();
            bound.last = bound.sources.iter().filter(|source| seen.insert(key(source))).map(|s| s.root().clone()).collect();
        }
        self.known = FxHashMap::default();
        self.views = FxHashMap::default();
        for leaf in self.runs.iter_mut().flat_map(|bound| &mut bound.run.leaves) {
            leaf.node = Weak::new();
        }
    }
}

fn of_node(node: &Weak<Node>, index: u32) -> Option<Tensor> {
    node.upgrade().map(|node| Tensor { node, index })
}

/// Nodes whose numbers change from step to step.
struct Changing<'a> {
    draws: FxHashMap<u64, u32>,
    updates: FxHashMap<u64, u32>,
    clones: &'a FxHashMap<u64, u64>,
}

impl<'a> Changing<'a> {
    fn new(notes: &'a Notes) -> Changing<'a> {
        let calls = notes.updates.iter().zip(0..).flat_map(|(nodes, call)| nodes.iter().map(move |&node| (node, call)));
        Changing {
            draws: notes.draws.iter().map(|&(node, _)| node).zip(0..).collect(),
            updates: calls.collect(),
            clones: &notes.clones,
        }
    }

    /// The arguments of a run that change.
    fn numbers(&self, run: &Run) -> Vec<(u32, Number)> {
        let mut found = Vec::new();
        let ends = run.program.arg_start.iter().copied().skip(1).chain([run.program.args.len() as u32]);
        for ((&node, &start), end) in run.nodes.iter().zip(&run.program.arg_start).zip(ends) {
            let mut original = node;
            while let Some(&of) = self.clones.get(&original) {
                original = of;
            }
            if let Some(&draw) = self.draws.get(&original) {
                found.push((start, Number::Seed(draw)));
                found.push((start + 1, Number::Counter(draw)));
            }
            if let Some(&call) = self.updates.get(&node) {
                found.extend((start..end).map(|at| (at, Number::Update { call, word: at - start })));
            }
        }
        found
    }
}
