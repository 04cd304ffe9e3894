//! The clock of profiles: nanoseconds since the process first asked, the times that launches took, and who hears how long devices keep a
//! thread busy.
use parking_lot::Mutex;
use std::sync::LazyLock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since somebody first asked.
pub fn now() -> u64 {
    START.elapsed().as_nanos() as u64
}

/// What a thread does on behalf of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duty {
    /// Encoding commands.
    Encode,
    /// Handing commands over.
    Submit,
    /// Waiting until the device has done something.
    Wait,
}

/// Hears of a duty from its begin to its end, on the thread that did it.
pub type Listener = fn(Duty, u64, u64);

static LISTENER: OnceLock<Listener> = OnceLock::new();
static LISTENING: AtomicUsize = AtomicUsize::new(0);

/// Has the listener called from now on, until as many calls of `stop_listening`. The first listener stays.
pub fn listen(listener: Listener) {
    let _ = LISTENER.set(listener);
    LISTENING.fetch_add(1, Relaxed);
}

/// Takes one call of `listen` back.
pub fn stop_listening() {
    LISTENING.fetch_sub(1, Relaxed);
}

/// A duty under way; it ends when this is dropped.
pub struct OnDuty(Option<(Listener, Duty, u64)>);

impl OnDuty {
    /// Begins a duty. Costs a look at a number unless somebody listens.
    pub fn begin(duty: Duty) -> OnDuty {
        OnDuty(match LISTENING.load(Relaxed) {
            0 => None,
            _ => LISTENER.get().map(|&listener| (listener, duty, now())),
        })
    }
}

impl Drop for OnDuty {
    fn drop(&mut self) {
        if let Some((listener, duty, begin)) = self.0 {
            listener(duty, begin, now());
        }
    }
}

/// The time that a launch took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lap {
    /// Its position in its plan.
    pub launch: u32,
    /// The shader, where one of several dispatches of a launch is timed.
    pub dispatch: Option<&'static str>,
    /// Nanoseconds.
    pub begin: u64,
    /// Nanoseconds.
    pub end: u64,
    /// Of times by a device's own clock: when it was submitted, by this process's.
    pub submitted: Option<u64>,
}

/// The laps of one run of a plan, as far as they are known: those of a device come when it has done its work.
#[derive(Debug, Default)]
pub struct Laps {
    laps: Mutex<Vec<Lap>>,
}

impl Laps {
    /// Adds one.
    pub fn push(&self, lap: Lap) {
        self.laps.lock().push(lap);
    }

    /// Adds one of no length, of a launch that had nothing to do.
    pub fn skip(&self, launch: u32) {
        let now = now();
        self.push(Lap { launch, dispatch: None, begin: now, end: now, submitted: None });
    }

    /// Those known by now.
    pub fn known(&self) -> Vec<Lap> {
        self.laps.lock().clone()
    }
}
