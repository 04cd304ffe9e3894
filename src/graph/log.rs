//! The log of a segment whose function is called twice: sixteen bytes an op, compared at the second run.
use super::node::{Node, Spec, Tensor, next_id};
use super::segment::work;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, Weak};

/// One op: what it is, its numbers, what it reads, and the line that called it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    /// The op's name in the upper eight bits, a hash of its attributes, shapes and dtypes in the others.
    op: u32,
    args: u32,
    inputs: u32,
    place: u32,
}

/// Strings that entries name by number.
#[derive(Default)]
struct Words {
    list: Vec<Arc<str>>,
    numbers: FxHashMap<Arc<str>, u32>,
}

impl Words {
    fn number(&mut self, word: &str) -> u32 {
        if let Some(&n) = self.numbers.get(word) {
            return n;
        }
        let (word, n): (Arc<str>, u32) = (word.into(), self.list.len() as u32);
        self.list.push(word.clone());
        self.numbers.insert(word, n);
        n
    }

    fn word(&self, n: u32) -> Arc<str> {
        self.list.get(n as usize).cloned().unwrap_or_else(|| "an unknown line".into())
    }
}

/// Names of ops, and lines of source: as many as the program has.
static NAMES: LazyLock<Mutex<Words>> = LazyLock::new(Mutex::default);
static PLACES: LazyLock<Mutex<Words>> = LazyLock::new(Mutex::default);

/// What only the run under way needs to know.
#[derive(Debug, Default)]
struct Run {
    /// Nodes of this run by position among the entries; the tensors given to the function by position from the end of the numbers.
    known: FxHashMap<u64, u32>,
    expected: Option<Arc<Log>>,
    difference: Option<String>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Nodes made since the run began have larger numbers.
    start: u64,
    entries: Vec<Entry>,
    /// Numbers of the nodes that were read from outside, each a version of a tensor.
    outside: Vec<u64>,
    work: u64,
    /// What a first run made, leaves apart, until somebody asks.
    made: Vec<Weak<Node>>,
    run: Run,
}

/// The ops of one run of a function.
#[derive(Debug, Default)]
pub struct Log {
    inner: Mutex<Inner>,
    /// The log of the function that called this one.
    parent: Option<Arc<Log>>,
}

fn hash(value: impl Hash) -> u32 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    let h = hasher.finish();
    (h ^ h >> 32) as u32
}

fn op_word(node: &Node) -> u32 {
    let specs: Vec<&Spec> = node.outs.iter().map(|o| &o.spec).collect();
    NAMES.lock().number(node.op.name()) << 24 | hash((&node.op, specs)) & 0xff_ffff
}

impl Log {
    /// An empty log for a run that starts now. `given` are the tensors that the function gets, which count as equal by position;
    /// `expected` is the first run's log.
    pub fn new(given: &[Tensor], expected: Option<Arc<Log>>, parent: Option<Arc<Log>>) -> Log {
        let known = given.iter().enumerate().map(|(i, t)| (t.node.id, u32::MAX - i as u32)).collect();
        let run = Run { known, expected, difference: None };
        Log { inner: Mutex::new(Inner { start: next_id(), run, ..Inner::default() }), parent }
    }

    /// Adds an op, or a leaf with what tells its values.
    pub(super) fn push(&self, node: &Node, inputs: &[Tensor], values: &[u8], place: &str) {
        self.inner.lock().push(node, inputs, values, place);
        if let Some(parent) = &self.parent {
            parent.push(node, inputs, values, place);
        }
    }

    /// Remembers a node that a first run makes.
    pub(super) fn remember(&self, node: &Arc<Node>) {
        let mut inner = self.inner.lock();
        if inner.run.expected.is_none() && node.variable.is_none() {
            inner.made.push(Arc::downgrade(node));
        }
        drop(inner);
        if let Some(parent) = &self.parent {
            parent.remember(node);
        }
    }

    /// The nodes of a first run that are alive, once: a log that is kept is sixteen bytes an op.
    pub fn take_made(&self) -> Vec<Arc<Node>> {
        let made = std::mem::take(&mut self.inner.lock().made);
        made.iter().filter_map(Weak::upgrade).collect()
    }

    /// Units of work of the ops so far.
    pub fn work(&self) -> u64 {
        self.inner.lock().work
    }

    /// Whether a node was made before the run.
    pub fn is_outside(&self, node: &Node) -> bool {
        node.id < self.inner.lock().start
    }

    /// Ends a run; how it differs from the first one, if it does.
    pub fn end(&self) -> Option<String> {
        let mut inner = self.inner.lock();
        inner.outside.sort_unstable();
        inner.outside.dedup();
        inner.entries.shrink_to_fit();
        let run = std::mem::take(&mut inner.run);
        let expected = run.expected?;
        let (now, first) = (inner.entries.len(), expected.inner.lock().entries.clone());
        run.difference.or_else(|| {
            let next = first.get(now)?;
            Some(format!("the second run ended after {now} ops; the first went on with {}", describe(next)))
        })
    }
}

impl Inner {
    fn push(&mut self, node: &Node, inputs: &[Tensor], values: &[u8], place: &str) {
        let (mut hasher, mut changed) = (FxHasher::default(), None);
        for (i, t) in inputs.iter().enumerate() {
            match self.run.known.get(&t.node.id) {
                Some(at) => (0u8, *at, t.index).hash(&mut hasher),
                None if t.node.id < self.start => {
                    (1u8, t.node.id, t.index).hash(&mut hasher);
                    self.outside.push(t.node.id);
                    let is_new = |log: &Arc<Log>| log.inner.lock().outside.binary_search(&t.node.id).is_err();
                    if self.run.expected.as_ref().is_some_and(is_new) {
                        changed.get_or_insert((i, t.spec().clone()));
                    }
                }
                // A leaf made in this run out of nothing that the log knows.
                None => (2u8, t.spec(), t.index).hash(&mut hasher),
            }
        }
        let inputs = hasher.finish();
        let place = PLACES.lock().number(place);
        let entry = Entry { op: op_word(node), args: hash((&node.args, values)), inputs: (inputs ^ inputs >> 32) as u32, place };
        self.compare(&entry, changed);
        self.run.known.insert(node.id, self.entries.len() as u32);
        self.entries.push(entry);
        self.work += work(node);
    }

    /// Remembers the first difference from the first run.
    fn compare(&mut self, entry: &Entry, changed: Option<(usize, Spec)>) {
        let Some(expected) = self.run.expected.as_ref().filter(|_| self.run.difference.is_none()) else { return };
        let at = self.entries.len();
        let first = expected.inner.lock().entries.get(at).copied();
        let Some(first) = first else {
            let message = format!("the first run ended after {at} ops; the second goes on with {}", describe(entry));
            self.run.difference = Some(message);
            return;
        };
        let both =
            |what: &str| format!("op {at} {what}: {} in the first run, {} in the second", describe(&first), describe(entry));
        self.run.difference = if first.op != entry.op {
            let is_same_name = first.op >> 24 == entry.op >> 24;
            Some(both(if is_same_name { "has another shape, dtype or attribute" } else { "is another op" }))
        } else if let Some((i, spec)) = changed {
            let changed = format!("reads another tensor or version as input {i} ({} of shape {:?})", spec.dtype, &spec.shape[..]);
            Some(both(&changed))
        } else if first.inputs != entry.inputs {
            Some(both("reads other results"))
        } else if first.args != entry.args {
            Some(both("was given other numbers (a Python number, an array, or a random generator's state)"))
        } else {
            None
        };
    }
}

fn describe(entry: &Entry) -> String {
    format!("{} at {}", NAMES.lock().word(entry.op >> 24), PLACES.lock().word(entry.place))
}
