//! Probes: tapes of one run of a segment's function, whose sources are the values that enter from outside and want a gradient.
use super::node::{Node, Tensor};
use super::record::TapeCore;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

/// What a probing tape takes for its sources.
#[derive(Debug)]
pub struct Probe {
    sources: Mutex<Sources>,
    /// The first run: it finds the sources, and counts nothing as saved, since it is never differentiated.
    pub is_first: bool,
}

#[derive(Debug, Default)]
struct Sources {
    keys: FxHashSet<(u64, u32)>,
    list: Vec<Tensor>,
}

impl Probe {
    /// A first run, which finds its sources among the leaves that want a gradient and the values of the tapes it runs in.
    pub fn first() -> Probe {
        Probe { sources: Mutex::default(), is_first: true }
    }

    /// A second run with these sources.
    pub fn again<'a>(sources: impl Iterator<Item = &'a Tensor>) -> Probe {
        let keys = sources.map(|t| (t.node.id, t.index)).collect();
        Probe { sources: Mutex::new(Sources { keys, list: Vec::new() }), is_first: false }
    }

    /// Whether a value from outside is a source; in the first run it becomes one if it wants a gradient there.
    pub(super) fn admits(&self, t: &Tensor, wants: impl FnOnce() -> bool) -> bool {
        let mut sources = self.sources.lock();
        let key = (t.node.id, t.index);
        if sources.keys.contains(&key) {
            return true;
        }
        let is_new = self.is_first && wants();
        if is_new {
            sources.keys.insert(key);
            sources.list.push(t.clone());
        }
        is_new
    }

    /// Whether it is one of the sources.
    pub fn is_source(&self, t: &Tensor) -> bool {
        self.sources.lock().keys.contains(&(t.node.id, t.index))
    }

    /// The sources that the first run found, in the order in which it read them; once, so that what it made does not keep them alive.
    pub fn take_found(&self) -> Vec<Tensor> {
        std::mem::take(&mut self.sources.lock().list)
    }
}

impl Node {
    /// Whether the first run of a segment's function inside this tape computed it and kept it elsewhere than in its results: the segment is
    /// differentiated by its second run, so no gradient of this value can reach what it came from.
    pub fn is_lost_to(&self, tape: &TapeCore) -> bool {
        let is_first_run = |t: &TapeCore| t.probe.as_ref().is_some_and(|p| p.is_first) && t.outer.contains(&tape.id);
        self.marks.iter().any(|m| !m.is_live() && is_first_run(&m.tape))
    }
}
