//! Notes of a step under capture: what it does beside recording ops, by the numbers of nodes, so that no value lives longer for it.
use super::node::{Node, Tensor, next_id};
use super::record::place_of_caller;
use super::variable::Variable;
use crate::layout::Layout;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

/// An output by the number of its node and its own.
pub type OutputId = (u64, u32);

/// A leaf that was made of a part of another value's storage.
#[derive(Clone, Debug)]
pub struct MadeView {
    /// Whose storage it is.
    pub of: OutputId,
    /// That node.
    pub node: Weak<Node>,
    /// Where the other value's elements lay.
    pub of_layout: Arc<Layout>,
    /// Where its own elements lay.
    pub layout: Arc<Layout>,
}

/// A leaf's gradient that a step read or changed.
#[derive(Debug)]
pub struct GradNote {
    /// The leaf.
    pub of: Arc<Variable>,
    /// The gradient before.
    pub before: Option<OutputId>,
    /// It was replaced without a look at it.
    pub is_replaced: bool,
}

/// What a step did.
#[derive(Debug)]
pub struct Notes {
    /// Nodes with smaller numbers were there before.
    pub first: u64,
    /// The nodes that it made.
    pub nodes: Vec<Weak<Node>>,
    /// Nodes that compute another's recipe again, with the other's number.
    pub clones: FxHashMap<u64, u64>,
    /// Leaves that it made of parts of values.
    pub views: FxHashMap<u64, MadeView>,
    /// Random nodes in the order of the draws, and how many counters each took.
    pub draws: Vec<(u64, u64)>,
    /// The nodes of each call that updated parameters.
    pub updates: Vec<Vec<u64>>,
    /// Gradients that it read or changed.
    pub grads: Vec<GradNote>,
    /// Why it cannot be repeated from these notes, if so.
    pub refusal: Option<String>,
}

thread_local! {
    static IS_CAPTURING: Cell<bool> = const { Cell::new(false) };
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// Whether a step of this thread is under capture.
pub fn is_capturing() -> bool {
    IS_CAPTURING.get()
}

/// Begins to take notes on this thread.
pub fn begin_notes() {
    let notes = Notes {
        first: next_id(),
        nodes: Vec::new(),
        clones: FxHashMap::default(),
        views: FxHashMap::default(),
        draws: Vec::new(),
        updates: Vec::new(),
        grads: Vec::new(),
        refusal: None,
    };
    NOTES.replace(Some(notes));
    IS_CAPTURING.set(true);
}

/// Stops taking notes; those taken, if there are any.
pub fn end_notes() -> Option<Notes> {
    IS_CAPTURING.set(false);
    NOTES.take()
}

/// Changes the notes, if a step is under capture.
fn note(change: impl FnOnce(&mut Notes)) {
    if is_capturing() {
        NOTES.with_borrow_mut(|notes| notes.as_mut().map(change));
    }
}

/// Whether a node was there before the step under capture.
pub fn is_older_than_capture(node: &Node) -> bool {
    NOTES.with_borrow(|notes| notes.as_ref().is_some_and(|n| node.id < n.first))
}

/// That the step under capture cannot be repeated from notes; the first reason stays.
pub fn refuse_capture(reason: impl FnOnce(&str) -> String) {
    if !is_capturing() {
        return;
    }
    // Outside the borrow: looking at the user's frames may run the user's code.
    let place = place_of_caller();
    let reason = reason(place.as_deref().unwrap_or("an unknown line"));
    note(|notes| _ = notes.refusal.get_or_insert(reason));
}

/// A node that was recorded.
pub(super) fn note_node(node: &Arc<Node>) {
    note(|notes| notes.nodes.push(Arc::downgrade(node)));
}

/// A node that computes another's recipe again.
pub(super) fn note_clone(clone: &Node, original: &Node) {
    note(|notes| _ = notes.clones.insert(clone.id, original.id));
}

/// A leaf that was made of a part of a value, or of values of the host.
pub(super) fn note_leaf(leaf: &Tensor, of: &[Tensor]) {
    if !is_capturing() {
        return;
    }
    let view = of.first().and_then(|of| {
        let (own, other) = (leaf.value()?, of.value()?);
        let is_shared = Arc::ptr_eq(&own.storage, &other.storage);
        let view = MadeView { of: of.id(), node: Arc::downgrade(&of.node), of_layout: other.layout, layout: own.layout };
        is_shared.then_some(view)
    });
    match view {
        Some(view) => note(|notes| {
            notes.views.insert(leaf.node.id, view);
            notes.nodes.push(Arc::downgrade(&leaf.node));
        }),
        None => {
            let (shape, dtype) = (leaf.shape().to_vec(), leaf.dtype());
            refuse_capture(|place| {
                format!(
                    "the step made a tensor of shape {shape:?} and dtype {dtype} of values of the host (called at {place}), which every \
                     replay would repeat; expected tensors from outside: make it before the step, or give the values as an argument"
                )
            });
        }
    }
}

/// A random node that took so many counters.
pub fn note_draw(node: &Node, counters: u64) {
    note(|notes| notes.draws.push((node.id, counters)));
}

/// The nodes of one call that updates parameters.
pub fn note_update(nodes: impl Iterator<Item = u64>) {
    note(|notes| notes.updates.push(nodes.collect()));
}

/// A leaf whose gradient is read or about to change, and what it is.
pub fn note_grad(variable: &Arc<Variable>, before: Option<&Tensor>, is_replaced: bool) {
    note(|notes| {
        if !notes.grads.iter().any(|g| Arc::ptr_eq(&g.of, variable)) {
            notes.grads.push(GradNote { of: variable.clone(), before: before.map(Tensor::id), is_replaced });
        }
    });
}

impl Node {
    /// A node of the same op and outputs that is by itself: a plan can be run for it, and it holds nothing.
    pub fn shell(&self) -> Node {
        let specs = self.outs.iter().map(|out| out.spec.clone()).collect();
        let mut node = Node::build(self.op.clone(), SmallVec::new(), SmallVec::new(), specs);
        node.place = self.place.clone();
        node
    }
}
