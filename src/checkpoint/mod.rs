//! Checkpoint segments: beginning and ending them, what a replay needs, and the replay itself.
mod needs;
mod replay;

pub use needs::{SegmentRow, figures, held, segments};
pub use replay::Replays;

use crate::graph::{Mark, Scope, Segment, next_id, scope};
use needs::Needs;
use smallvec::SmallVec;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// A segment on the tapes that record on this thread; `None` where nothing records.
pub fn open(name: &str) -> Option<Arc<Segment>> {
    let (tapes, parent) = scope(|s| (if s.paused { SmallVec::new() } else { s.tapes.clone() }, s.segment.clone()));
    if tapes.is_empty() {
        return None;
    }
    let parent = parent.filter(|p| p.is_live());
    let mut marks: SmallVec<[Mark; 1]> = SmallVec::new();
    // In a run of a called segment the tapes of the segments around it do not record, but they compute its values again with their own.
    let around = parent.iter().flat_map(|p| p.marks.iter()).filter(|m| m.is_live());
    marks.extend(around.filter(|m| !tapes.iter().any(|t| Arc::ptr_eq(t, &m.tape))).cloned());
    marks.extend(tapes.iter().map(|t| Mark { tape: t.clone(), generation: t.generation.load(Relaxed) }));
    let depth = parent.as_ref().map_or(0, |p| p.depth + 1);
    let (figures, held) = (OnceLock::new(), OnceLock::new());
    let segment = Arc::new(Segment { id: next_id(), name: name.into(), parent, depth, marks, figures, held });
    for tape in &tapes {
        tape.segments.lock().push(Arc::downgrade(&segment));
    }
    Some(segment)
}

/// What is made on this thread belongs to the segment until the scope is dropped; `close` comes after that.
pub fn enter(segment: &Arc<Segment>) -> Scope {
    Scope::enter(|s| s.segment = Some(segment.clone()))
}

/// Keeps no more of what entered an outermost segment than its replay reads. While it was under way everything was kept, since only its
/// end shows what is needed.
pub fn close(segment: &Arc<Segment>) {
    if segment.parent.is_some() {
        return;
    }
    let Some(tape) = segment.marks.iter().find(|m| m.is_live()).map(|m| m.tape.clone()) else { return };
    let needs = Needs::new(segment, &tape);
    for node in &needs.nodes {
        // What a tape that was opened inside still needs stays counted.
        if let Some(root) = node.segment.as_ref().and_then(|s| s.root_for(&node.marks)) {
            node.release_inputs_but(needs.kept(node, root));
        }
    }
}
