//! Profiles: while one is open, evaluations tell it how long their stages and their launches take.
use super::Plan;
use super::cost::{LaunchCounts, counts};
use super::program::Program;
use crate::backend::clock::{self, Duty, Lap, Laps, now};
use crate::backend::gpu;
use crate::device::Device;
use crate::error::Result;
use crate::graph::Node;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Weak};

/// Profiles that are open, and those among them that want to know how long each launch takes.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static OPEN_TO_LAUNCHES: AtomicUsize = AtomicUsize::new(0);
static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
static NEXT_THREAD: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static THREAD: u32 = NEXT_THREAD.fetch_add(1, Relaxed);
    /// The segment whose second run is being evaluated, and the numbers of its nodes.
    static REPLAY: RefCell<Option<(Box<str>, Range<u64>)>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Registry {
    profiles: Vec<Arc<Profile>>,
    /// What was worked out for a plan before, by its address.
    known: FxHashMap<usize, (Weak<Plan>, Arc<Vec<LaunchCounts>>)>,
}

impl Registry {
    fn counts(&mut self, plan: &Arc<Plan>) -> Arc<Vec<LaunchCounts>> {
        let at = Arc::as_ptr(plan) as usize;
        if let Some((weak, known)) = self.known.get(&at)
            && weak.upgrade().is_some_and(|known_plan| Arc::ptr_eq(&known_plan, plan))
        {
            return known.clone();
        }
        let new = Arc::new(counts(plan));
        self.known.insert(at, (Arc::downgrade(plan), new.clone()));
        new
    }
}

/// What an evaluation, or a thread on behalf of a device, is busy with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Pending nodes are gathered and written down as a key.
    Hash,
    /// The key is looked for among the plans that are kept.
    LookUp,
    /// A plan is made.
    Plan,
    /// Leaves are checked and buffers taken; a device's launches are told where their tensors lie, and their numbers.
    Bind,
    /// Kernels run, on the CPU.
    Run,
    /// A device's commands are encoded.
    Encode,
    /// Commands are handed to a device.
    Submit,
    /// A device is waited for.
    Wait,
    /// Values are handed to their nodes, and what nobody needs goes.
    Keep,
}

impl Stage {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Hash => "hash",
            Stage::LookUp => "look up",
            Stage::Plan => "plan",
            Stage::Bind => "bind",
            Stage::Run => "run",
            Stage::Encode => "encode",
            Stage::Submit => "submit",
            Stage::Wait => "wait",
            Stage::Keep => "keep",
        }
    }
}

/// A stage from its begin to its end, in nanoseconds of the clock. Spans of one thread nest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// What was done.
    pub stage: Stage,
    /// The number of the thread.
    pub thread: u32,
    /// Nanoseconds.
    pub begin: u64,
    /// Nanoseconds.
    pub end: u64,
}

/// A launch that computes again what was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rebuilt {
    launch: u32,
    /// The segment that it belongs to.
    segment: Option<Box<str>>,
}

/// One evaluation that ran a plan.
#[derive(Debug)]
pub struct Evaluation {
    /// Where.
    pub device: Device,
    /// The number of the thread that asked for it.
    pub thread: u32,
    /// Nanoseconds.
    pub begin: u64,
    /// Nanoseconds.
    pub end: u64,
    /// The plan was found in the cache.
    pub cache_hit: bool,
    /// Its launches; evaluations that ran the same plan share them.
    pub counts: Arc<Vec<LaunchCounts>>,
    /// Its stages.
    pub spans: Vec<Span>,
    rebuilt: Vec<Rebuilt>,
    laps: Arc<Laps>,
}

/// A launch of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTime {
    /// The position of its evaluation.
    pub evaluation: usize,
    /// Its position in the plan.
    pub launch: usize,
    /// Begin and end in nanoseconds of the clock; `None` if the device failed before it told.
    pub time: Option<(u64, u64)>,
    /// Its dispatches by their shaders with the nanoseconds of each, where they are timed apart.
    pub dispatches: Vec<(&'static str, u64)>,
    /// The device's own clock tells; else the time ends when the device was found to be done.
    pub is_by_device: bool,
    /// It computes again what was dropped.
    pub is_rebuilt: bool,
    /// The segment that is rebuilt.
    pub segment: Option<Box<str>>,
}

/// The times of one evaluation while it runs.
pub(super) struct Timing {
    begin: u64,
    spans: Mutex<Vec<Span>>,
    /// Where the times of launches go, if anybody wants them.
    laps: Option<Arc<Laps>>,
}

impl Timing {
    /// Begins, if a profile is open.
    pub fn begin() -> Option<Timing> {
        match OPEN.load(Relaxed) {
            0 => None,
            _ => {
                let laps = (OPEN_TO_LAUNCHES.load(Relaxed) > 0).then(Arc::default);
                Some(Timing { begin: now(), spans: Mutex::default(), laps })
            }
        }
    }

    /// A stage that ends when what this gives is dropped.
    pub fn span(timing: Option<&Timing>, stage: Stage) -> Timed<'_> {
        Timed(timing.map(|timing| (timing, stage, now())))
    }

    /// Where the times of launches go, if anybody wants them.
    pub fn laps(timing: Option<&Timing>) -> Option<&Arc<Laps>> {
        timing.and_then(|timing| timing.laps.as_ref())
    }

    /// What ran, while its nodes still know.
    pub fn story(&self, plan: &Arc<Plan>, program: &Program, cache_hit: bool) -> Evaluation {
        let rebuilt = plan.launches.iter().enumerate().filter_map(|(i, launch)| {
            let node = &program.nodes[launch.node as usize];
            let replay = node.replay_of.as_ref().map(|s| s.name.clone()).or_else(|| replay_of(node));
            let is_again = node.was_computed() || plan.repeats.binary_search(&(i as u32)).is_ok();
            let segment = replay.or_else(|| node.segment.as_ref().filter(|_| is_again).map(|s| s.name.clone()));
            (is_again || segment.is_some()).then_some(Rebuilt { launch: i as u32, segment })
        });
        Evaluation {
            device: program.device,
            thread: THREAD.with(|t| *t),
            begin: self.begin,
            end: 0,
            cache_hit,
            rebuilt: rebuilt.collect(),
            counts: REGISTRY.lock().counts(plan),
            spans: Vec::new(),
            laps: self.laps.clone().unwrap_or_default(),
        }
    }

    /// Tells every open profile.
    pub fn end(&self, story: Evaluation) {
        let story = Arc::new(Evaluation { end: now(), spans: std::mem::take(&mut *self.spans.lock()), ..story });
        for profile in &REGISTRY.lock().profiles {
            if story.begin >= profile.begin {
                profile.heard.lock().evaluations.push(story.clone());
            }
        }
    }
}

/// A stage under way.
pub(super) struct Timed<'a>(Option<(&'a Timing, Stage, u64)>);

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        if let Some((timing, stage, begin)) = self.0 {
            timing.spans.lock().push(Span { stage, thread: THREAD.with(|t| *t), begin, end: now() });
        }
    }
}

/// Says that what this thread evaluates until the guard is dropped replays a segment, as far as nodes with these numbers go.
pub fn name_replay(segment: &str, nodes: Range<u64>) -> NamedReplay {
    NamedReplay(REPLAY.replace(Some((segment.into(), nodes))))
}

/// Ends with the naming of a replay.
pub struct NamedReplay(Option<(Box<str>, Range<u64>)>);

impl Drop for NamedReplay {
    fn drop(&mut self) {
        REPLAY.replace(self.0.take());
    }
}

fn replay_of(node: &Node) -> Option<Box<str>> {
    REPLAY.with_borrow(|replay| replay.as_ref().filter(|(_, nodes)| nodes.contains(&node.id)).map(|(name, _)| name.clone()))
}

#[derive(Debug, Default)]
struct Heard {
    end: Option<u64>,
    evaluations: Vec<Arc<Evaluation>>,
    duties: Vec<Span>,
}

/// What all threads evaluate from `open` to `close`, as far as it begins and ends in between.
#[derive(Debug)]
pub struct Profile {
    /// Nanoseconds of the clock.
    pub begin: u64,
    /// The number of the thread that opened it.
    pub thread: u32,
    /// Whether it hears how long each launch takes.
    hears_launches: bool,
    heard: Mutex<Heard>,
}

impl Profile {
    /// Begins to listen, to stages and if so said to launches.
    pub fn open(hears_launches: bool) -> Arc<Profile> {
        let thread = THREAD.with(|t| *t);
        let profile = Arc::new(Profile { begin: now(), thread, hears_launches, heard: Mutex::default() });
        clock::listen(hear);
        REGISTRY.lock().profiles.push(profile.clone());
        OPEN.fetch_add(1, Relaxed);
        OPEN_TO_LAUNCHES.fetch_add(usize::from(hears_launches), Relaxed);
        profile
    }

    /// Stops listening, when devices have told what they still owe; a second call does nothing.
    ///
    /// # Errors
    /// The user's interrupt; it is closed all the same.
    pub fn close(&self) -> Result<()> {
        if self.heard.lock().end.is_some() {
            return Ok(());
        }
        let settled = if self.hears_launches { gpu::settle_laps() } else { Ok(()) };
        self.abandon();
        settled
    }

    /// Stops listening, without what devices still owe.
    pub fn abandon(&self) {
        let mut registry = REGISTRY.lock();
        if let Some(at) = registry.profiles.iter().position(|p| std::ptr::eq(&**p, self)) {
            registry.profiles.swap_remove(at);
            OPEN.fetch_sub(1, Relaxed);
            OPEN_TO_LAUNCHES.fetch_sub(usize::from(self.hears_launches), Relaxed);
            clock::stop_listening();
            self.heard.lock().end = Some(now());
        }
        if registry.profiles.is_empty() {
            registry.known.clear();
        }
    }

    /// When it was closed, in nanoseconds of the clock; now, while it is open.
    pub fn end(&self) -> u64 {
        self.heard.lock().end.unwrap_or_else(now)
    }

    /// The evaluations so far.
    pub fn evaluations(&self) -> Vec<Arc<Evaluation>> {
        self.heard.lock().evaluations.clone()
    }

    /// What threads did on behalf of devices: it lies inside stages of evaluations, or between them.
    pub fn duties(&self) -> Vec<Span> {
        self.heard.lock().duties.clone()
    }

    /// The launches of the evaluations so far. A device's own clock is set as late as the first launch after a submission allows: none
    /// begins before it was submitted.
    pub fn launches(&self) -> Vec<LaunchTime> {
        let evaluations = self.evaluations();
        let known: Vec<Vec<Lap>> = evaluations.iter().map(|e| e.laps.known()).collect();
        let mut ahead: FxHashMap<Device, i128> = FxHashMap::default();
        for (evaluation, laps) in evaluations.iter().zip(&known) {
            for lap in laps {
                if let Some(submitted) = lap.submitted {
                    let least = i128::from(submitted) - i128::from(lap.begin);
                    let most = ahead.entry(evaluation.device).or_insert(least);
                    *most = least.max(*most);
                }
            }
        }
        let mut all = Vec::new();
        for (number, (evaluation, laps)) in evaluations.iter().zip(&known).enumerate() {
            let first = all.len();
            all.extend((0..evaluation.counts.len()).map(|launch| LaunchTime {
                evaluation: number,
                launch,
                time: None,
                dispatches: Vec::new(),
                is_by_device: evaluation.device.is_cpu(),
                is_rebuilt: false,
                segment: None,
            }));
            for lap in laps {
                let ahead = ahead.get(&evaluation.device).copied().filter(|_| lap.submitted.is_some()).unwrap_or(0);
                let begin = (i128::from(lap.begin) + ahead).max(0) as u64;
                let launch = &mut all[first + lap.launch as usize];
                let end = begin + (lap.end - lap.begin);
                launch.time = Some(launch.time.map_or((begin, end), |(from, to)| (from.min(begin), to.max(end))));
                launch.dispatches.extend(lap.dispatch.map(|shader| (shader, end - begin)));
                launch.is_by_device |= lap.submitted.is_some();
            }
            for rebuilt in &evaluation.rebuilt {
                let launch = &mut all[first + rebuilt.launch as usize];
                (launch.is_rebuilt, launch.segment) = (true, rebuilt.segment.clone());
            }
        }
        all
    }
}

/// Passes on what a thread did on behalf of a device.
fn hear(duty: Duty, begin: u64, end: u64) {
    let stage = match duty {
        Duty::Encode => Stage::Encode,
        Duty::Submit => Stage::Submit,
        Duty::Wait => Stage::Wait,
    };
    let span = Span { stage, thread: THREAD.with(|t| *t), begin, end };
    for profile in REGISTRY.lock().profiles.iter().filter(|p| begin >= p.begin) {
        profile.heard.lock().duties.push(span);
    }
}
