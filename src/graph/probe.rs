//! Probes: tapes of one run of a segment's function, whose sources are the values that enter from outside and want a gradient.
use super::node::{Node, Tensor};
use super::record::{TapeCore, scope};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// What a probing tape takes for its sources.
#[derive(Debug)]
pub struct Probe {
    sources: Mutex<Sources>,
    /// What is given to a second run in place of what required a gradient in the first one: no tape has recorded it, as where a replay
    /// rebuilt it. A first run inside takes over what is granted around it.
    granted: FxHashSet<(u64, u32)>,
    /// The first run: it finds the sources, and counts nothing as saved, since it is never differentiated.
    pub is_first: bool,
}

fn key_of(t: &Tensor) -> (u64, u32) {
    (t.node.id, t.index)
}

#[derive(Debug, Default)]
struct Sources {
    keys: FxHashSet<(u64, u32)>,
    list: Vec<Tensor>,
}

impl Probe {
    /// A first run, which finds its sources among the leaves that want a gradient, the values of the tapes that it runs in, and what those
    /// `around` it are granted.
    pub fn first(around: &[Arc<TapeCore>]) -> Probe {
        let granted = around.iter().filter_map(|t| t.probe.as_ref()).flat_map(|p| p.granted.iter().copied()).collect();
        Probe { sources: Mutex::default(), granted, is_first: true }
    }

    /// A second run with these sources, and with what stands for inputs that required a gradient.
    pub fn again<'a>(sources: impl Iterator<Item = &'a Tensor>, granted: impl Iterator<Item = &'a Tensor>) -> Probe {
        let sources = Sources { keys: sources.map(key_of).collect(), list: Vec::new() };
        Probe { sources: Mutex::new(sources), granted: granted.map(key_of).collect(), is_first: false }
    }

    /// Whether a value from outside is a source; in the first run it becomes one if it wants a gradient there, `wants` or was granted it.
    pub(super) fn admits(&self, t: &Tensor, wants: impl FnOnce() -> bool) -> bool {
        let mut sources = self.sources.lock();
        let key = key_of(t);
        if sources.keys.contains(&key) {
            return true;
        }
        let is_new = self.is_first && (self.granted.contains(&key) || wants());
        if is_new {
            sources.keys.insert(key);
            sources.list.push(t.clone());
        }
        is_new
    }

    /// Whether it is one of the sources.
    pub fn is_source(&self, t: &Tensor) -> bool {
        self.sources.lock().keys.contains(&key_of(t))
    }

    /// The sources that the first run found, in the order in which it read them; once, so that what it made does not keep them alive.
    pub fn take_found(&self) -> Vec<Tensor> {
        std::mem::take(&mut self.sources.lock().list)
    }
}

/// Whether this thread is in a second run that was given the tensor in place of one that required a gradient in the first.
pub fn is_granted(t: &Tensor) -> bool {
    let grants = |tape: &Arc<TapeCore>| tape.probe.as_ref().is_some_and(|p| p.granted.contains(&key_of(t)));
    scope(|s| s.tapes.iter().any(grants))
}

/// Whether a run of a segment's function inside tapes with these numbers takes a value from outside for a source.
pub fn is_wanted_in(outer: &[u32], t: &Tensor) -> bool {
    let is_leaf = || t.node.variable.as_ref().is_some_and(|v| v.requires_grad());
    let is_recorded = || t.node.marks.iter().any(|m| m.is_live() && outer.contains(&m.tape.id));
    t.dtype().is_float() && (is_leaf() || is_recorded() || is_granted(t))
}

impl Node {
    /// Whether the first run of a segment's function inside this tape computed it and kept it elsewhere than in its results: the segment is
    /// differentiated by its second run, so no gradient of this value can reach what it came from.
    pub fn is_lost_to(&self, tape: &TapeCore) -> bool {
        self.marks.iter().any(|m| !m.is_live() && m.tape.is_first_run() && m.tape.outer.contains(&tape.id))
    }
}
