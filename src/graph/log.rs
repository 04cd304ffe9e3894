//! The log of a segment whose function is called twice: sixteen bytes an op, what the results are, compared at the second run.
use super::custom::Fingerprint;
use super::node::{Node, Spec, Tensor, next_id};
use super::segment::work;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, Weak};

/// How an op came to be recorded or not, which its recipe does not show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// As its inputs want it.
    Recorded,
    /// Under `no_grad`: on no tape.
    Paused,
    /// The value of a tensor that is cut off from what it came from.
    Detached,
    /// A source of a tape.
    Source,
}

/// One op: what it is, its numbers, what it reads, and the line that called it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    /// The op's name in the upper eight bits, a hash of its attributes, shapes and dtypes in the others.
    op: u32,
    args: u32,
    inputs: u32,
    /// How it was recorded in the upper two bits, the number of the line in the others.
    place: u32,
}

const PLACE_BITS: u32 = 30;

impl Entry {
    fn mode(&self) -> u32 {
        self.place >> PLACE_BITS
    }

    fn line(&self) -> Arc<str> {
        PLACES.lock().word(self.place & ((1 << PLACE_BITS) - 1))
    }
}

/// Where a result of a run came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    /// An output of an op of the run.
    Made(u32, u32),
    /// A tensor that the function was given, by position, and which output of its node it is.
    Given(u32, u32),
    /// A tensor from outside, which has a gradient of its own.
    Outside,
    /// A tensor of which the log knows the shape and dtype alone.
    Unknown(u32),
}

/// What a run returned.
#[derive(Debug)]
struct Results {
    origins: Vec<Origin>,
    /// A hash of the containers and keys around them.
    structure: u32,
}

/// What tells a user's gradient rule and its arguments from others.
#[derive(Debug)]
struct Rule {
    /// Its op's position among the entries.
    at: u32,
    rule: Vec<(u64, u64)>,
    arguments: Vec<(u64, u64)>,
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
    rules: Vec<Rule>,
    results: Option<Results>,
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
    pub(super) fn push(&self, node: &Node, inputs: &[Tensor], values: &[u8], place: &str, mode: Mode) {
        self.inner.lock().push(node, inputs, values, place, mode);
        if let Some(parent) = &self.parent {
            parent.push(node, inputs, values, place, mode);
        }
    }

    /// Adds what tells the gradient rule of a user's op, which was pushed, and the arguments that it gets besides tensors.
    pub fn push_rule(&self, node: &Node, name: &str, rule: &Fingerprint, arguments: &Fingerprint) {
        self.inner.lock().push_rule(node, name, rule, arguments);
        if let Some(parent) = &self.parent {
            parent.push_rule(node, name, rule, arguments);
        }
    }

    /// Enters what the run returned: the tensors, and the containers and keys around them.
    pub fn enter_results(&self, tensors: &[Tensor], structure: &str) {
        let mut inner = self.inner.lock();
        let origins = tensors.iter().map(|t| inner.origin(t)).collect();
        inner.results = Some(Results { origins, structure: hash(structure) });
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
        let mut run = std::mem::take(&mut inner.run);
        let expected = run.expected.take()?;
        let first = expected.inner.lock();
        run.difference.or_else(|| {
            let now = inner.entries.len();
            if let Some(next) = first.entries.get(now) {
                return Some(format!("the second run ended after {now} ops; the first went on with {}", describe(next)));
            }
            inner.other_results(&first)
        })
    }
}

impl Inner {
    fn push(&mut self, node: &Node, inputs: &[Tensor], values: &[u8], place: &str, mode: Mode) {
        let (mut hasher, mut changed) = (FxHasher::default(), None);
        for (i, t) in inputs.iter().enumerate() {
            self.refer(t, &mut hasher);
            if !self.run.known.contains_key(&t.node.id) && t.node.id < self.start {
                self.outside.push(t.node.id);
                let is_new = |log: &Arc<Log>| log.inner.lock().outside.binary_search(&t.node.id).is_err();
                if self.run.expected.as_ref().is_some_and(is_new) {
                    changed.get_or_insert((i, t.spec().clone()));
                }
            }
        }
        let inputs = hasher.finish();
        let place = PLACES.lock().number(place) | (mode as u32) << PLACE_BITS;
        let entry = Entry { op: op_word(node), args: hash((&node.args, values)), inputs: (inputs ^ inputs >> 32) as u32, place };
        self.compare(&entry, changed);
        self.run.known.insert(node.id, self.entries.len() as u32);
        self.entries.push(entry);
        self.work += work(node);
    }

    /// Hashes which tensor it is: the same number in both runs.
    fn refer(&self, t: &Tensor, hasher: &mut FxHasher) {
        match self.run.known.get(&t.node.id) {
            Some(at) => (0u8, *at, t.index).hash(hasher),
            None if t.node.id < self.start => (1u8, t.node.id, t.index).hash(hasher),
            // A leaf made in this run out of nothing that the log knows.
            None => (2u8, t.spec(), t.index).hash(hasher),
        }
    }

    fn origin(&self, t: &Tensor) -> Origin {
        match self.run.known.get(&t.node.id) {
            Some(&at) if (at as usize) < self.entries.len() => Origin::Made(at, t.index),
            Some(&at) => Origin::Given(u32::MAX - at, t.index),
            None if t.node.id < self.start => Origin::Outside,
            None => Origin::Unknown(hash(t.spec())),
        }
    }

    /// How the results differ from the first run's; their number is compared by who gives them back.
    fn other_results(&self, first: &Inner) -> Option<String> {
        let (before, now) = (first.results.as_ref()?, self.results.as_ref()?);
        if before.origins.len() != now.origins.len() {
            return None;
        }
        let mut pairs = before.origins.iter().zip(&now.origins).enumerate();
        if let Some((i, (a, b))) = pairs.find(|(_, (a, b))| a != b) {
            let (a, b) = (first.describe_origin(*a), self.describe_origin(*b));
            return Some(format!("result {i} is another tensor: {a} in the first run, {b} in the second"));
        }
        let is_same = before.structure == now.structure;
        (!is_same).then(|| "the results lie in other containers, or under other keys, than in the first run".into())
    }

    fn describe_origin(&self, origin: Origin) -> String {
        let output = |index: u32| if index > 0 { format!("output {index} of ") } else { String::new() };
        match origin {
            Origin::Made(at, index) => match self.entries.get(at as usize) {
                Some(entry) => format!("{}op {at}, {}", output(index), describe(entry)),
                None => format!("{}op {at}", output(index)),
            },
            Origin::Given(at, _) => format!("the tensor given as number {at}"),
            Origin::Outside => "a tensor from outside".into(),
            Origin::Unknown(_) => "a new leaf".into(),
        }
    }

    fn push_rule(&mut self, node: &Node, name: &str, rule: &Fingerprint, arguments: &Fingerprint) {
        let newest = self.entries.len().saturating_sub(1) as u32;
        let Some(&at) = self.run.known.get(&node.id).filter(|&&at| at == newest) else { return };
        let own = Rule { at, rule: self.parts(rule), arguments: self.parts(arguments) };
        if let Some(expected) = self.run.expected.as_ref().filter(|_| self.run.difference.is_none()) {
            let log = expected.inner.lock();
            let first = log.rules.binary_search_by_key(&at, |r| r.at).ok().map(|i| &log.rules[i]);
            // Where the first run recorded nothing, no rule is asked.
            let what = first.and_then(|first| {
                // The same function reads what it captured when it is asked, in a plain run too.
                let is_same_function = first.rule.first().zip(own.rule.first()).is_some_and(|(a, b)| a.0 != 0 && a.0 == b.0);
                if !is_same_function && !are_alike(&first.rule, &own.rule) {
                    return Some("has another gradient rule");
                }
                (!are_alike(&first.arguments, &own.arguments)).then_some("gives its gradient rule other arguments")
            });
            let pair = what.zip(log.entries.get(at as usize)).zip(self.entries.get(at as usize));
            let message = pair.map(|((what, before), now)| {
                let (before, now) = (describe(before), describe(now));
                format!("op {at} ({name}) {what}: {before} in the first run, {now} in the second")
            });
            drop(log);
            self.run.difference = message;
        }
        self.rules.push(own);
    }

    /// The parts of a fingerprint, with the tensors in it as this log knows them.
    fn parts(&self, fingerprint: &Fingerprint) -> Vec<(u64, u64)> {
        let mut parts = fingerprint.parts.clone();
        if !fingerprint.tensors.is_empty() {
            let mut hasher = FxHasher::default();
            fingerprint.tensors.iter().for_each(|t| self.refer(t, &mut hasher));
            parts.push((0, hasher.finish()));
        }
        parts
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
        } else if first.mode() != entry.mode() {
            Some(both("is recorded in one run only (no_grad or detach() in the other)"))
        } else {
            None
        };
    }
}

fn describe(entry: &Entry) -> String {
    format!("{} at {}", NAMES.lock().word(entry.op >> 24), entry.line())
}

/// Whether each part is the same object, or looks the same.
fn are_alike(first: &[(u64, u64)], second: &[(u64, u64)]) -> bool {
    first.len() == second.len() && first.iter().zip(second).all(|(a, b)| a.0 != 0 && a.0 == b.0 || a.1 == b.1)
}
