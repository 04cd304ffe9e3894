//! Segments: which nodes one `checkpoint(...)` made, how segments nest, and what counts as outside of them.
use super::node::{Node, Tensor};
use super::record::{Mark, TapeCore};
use super::saved::Saved;
use crate::backend::op::Op;
use crate::shape::elems;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock, Weak};

/// What a segment whose function is called again did not keep, found at its first run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Bytes of the values kept for the replay.
    pub kept: usize,
    /// Bytes of the values that the gradient rules would have saved.
    pub dropped: usize,
    /// Units of work of one replay.
    pub replay_cost: u64,
}

/// A value that a segment's first run made, that is no result of it, and that a Python tensor held at its end.
#[derive(Debug, Clone)]
pub struct HeldValue {
    /// What made it.
    pub node: Weak<Node>,
    /// Which of its outputs.
    pub index: usize,
    /// The name of the innermost segment that it was made in.
    pub segment: Box<str>,
}

/// The nodes recorded inside one `checkpoint(...)`: their values are dropped after the forward pass and rebuilt in backward.
#[derive(Debug)]
pub struct Segment {
    /// Its creation number: its nodes have larger ones.
    pub id: u64,
    /// What reports and messages call it.
    pub name: Box<str>,
    /// The segment that it was begun in.
    pub parent: Option<Arc<Segment>>,
    /// How many segments it lies in.
    pub depth: u32,
    /// The tapes that may ask for its nodes again, outermost first: those of the segments around it, and those that recorded when it began.
    pub marks: SmallVec<[Mark; 1]>,
    /// Set where the function is called again, so that no node says what was dropped.
    pub figures: OnceLock<Figures>,
    /// What Python tensors held of that first run, and of runs nested in it.
    pub held: OnceLock<Vec<HeldValue>>,
}

impl Segment {
    /// Whether a tape may still ask for a replay.
    pub fn is_live(&self) -> bool {
        self.marks.iter().any(Mark::is_live)
    }

    /// Whether it began while the tape recorded, itself or a segment around it: the tape's walk then finds its values dropped.
    pub fn is_on(&self, tape: &TapeCore) -> bool {
        self.marks.iter().any(|m| std::ptr::eq(&*m.tape, tape))
    }

    /// The segments from this one outwards.
    pub fn chain(self: &Arc<Segment>) -> impl Iterator<Item = &Arc<Segment>> {
        std::iter::successors(Some(self), |s| s.parent.as_ref())
    }

    /// Whether the node was made inside it or inside a segment nested in it.
    pub fn contains(self: &Arc<Segment>, node: &Node) -> bool {
        let mut at = node.segment.as_ref();
        while let Some(s) = at.filter(|s| s.depth >= self.depth) {
            if Arc::ptr_eq(s, self) {
                return true;
            }
            at = s.parent.as_ref();
        }
        false
    }

    /// The outermost segment of the chain whose values the tape's walk finds dropped.
    pub fn root_on(self: &Arc<Segment>, tape: &TapeCore) -> Option<&Arc<Segment>> {
        self.chain().take_while(|s| s.is_on(tape)).last()
    }

    /// The segment whose replay rebuilds what a node in this segment with these marks leaves behind; `None` if no tape will ask for it, or if
    /// the newest that will was opened inside the outermost segment, which that tape knows nothing of.
    pub fn root_for(self: &Arc<Segment>, marks: &[Mark]) -> Option<&Arc<Segment>> {
        self.newest_tape(marks).and_then(|tape| self.root_on(&tape))
    }

    /// The newest tape that may differentiate through a node in this segment with these marks, else the newest that may ask for its value
    /// again. A first run of a called segment does neither.
    fn newest_tape(&self, marks: &[Mark]) -> Option<Arc<TapeCore>> {
        let asks = |m: &&Mark| m.is_live() && !m.tape.is_first_run();
        let newest = |marks: &[Mark]| marks.iter().filter(asks).max_by_key(|m| m.tape.id).map(|m| m.tape.clone());
        newest(marks).or_else(|| newest(&self.marks))
    }

    /// The outermost segment of the chain.
    pub fn outermost(self: &Arc<Segment>) -> &Arc<Segment> {
        self.chain().last().unwrap_or(self)
    }

    /// Bit mask of the inputs made outside that a replay reads; numbers are part of a recipe and need no value.
    pub fn outside(self: &Arc<Segment>, inputs: &[Tensor]) -> u32 {
        let is_outside = |t: &Tensor| t.node.op != Op::Const && !self.contains(&t.node);
        inputs.iter().enumerate().filter(|(_, t)| is_outside(t)).fold(0, |mask, (i, _)| mask | Saved::bit(i))
    }
}

/// What is counted as saved for a node with these inputs: outside of segments what its rule reads, inside of them every value that enters
/// from outside. A tape that was opened inside a segment has what its rules read counted as well.
pub(super) fn counted(inputs: &[Tensor], segment: Option<&Arc<Segment>>, marks: &[Mark], reads: Saved) -> Saved {
    let Some(segment) = segment else {
        return if marks.iter().all(|m| m.tape.is_first_run()) { Saved::default() } else { reads };
    };
    let Some(tape) = segment.newest_tape(marks) else { return Saved::default() };
    match segment.root_on(&tape) {
        Some(root) => Saved { inputs: root.outside(inputs), outputs: 0 },
        None => Saved { inputs: reads.inputs | segment.outermost().outside(inputs), outputs: reads.outputs },
    }
}

/// Units of work of a node by itself: 2mnk for a product, else 4 for each element moved.
pub fn work(node: &Node) -> u64 {
    let inputs = node.state.lock().inputs.clone();
    let out: usize = node.outs.iter().map(|o| elems(&o.spec.shape)).sum();
    match &node.op {
        Op::View(_) | Op::Const | Op::Custom | Op::Leaf => 0,
        Op::MatMul(_) => 2 * (out * inputs.first().and_then(|a| a.shape().last().copied()).unwrap_or(0)) as u64,
        _ => 4 * (out + inputs.iter().filter(|t| t.node.op != Op::Const).map(Tensor::elems).sum::<usize>()) as u64,
    }
}
