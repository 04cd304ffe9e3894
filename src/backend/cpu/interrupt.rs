//! Ctrl-C: short evaluations ask between launches whether to stop; long ones run under a thread that asks meanwhile.
use super::threads;
use crate::error::{Error, Result};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

static HOOK: OnceLock<fn() -> bool> = OnceLock::new();
/// Set while a supervised evaluation is to stop; one evaluation runs at a time.
static STOP: AtomicBool = AtomicBool::new(false);

thread_local! {
    static NEXT: Cell<Option<Instant>> = const { Cell::new(None) };
    static IS_BLOCKED: Cell<bool> = const { Cell::new(false) };
    static IS_SUPERVISED: Cell<bool> = const { Cell::new(false) };
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

/// How often the user's interrupt is looked for.
const PERIOD: Duration = Duration::from_millis(50);

/// Sets what answers whether the user asked to stop; the binding gives it once.
pub fn set_interrupt_hook(hook: fn() -> bool) {
    let _ = HOOK.set(hook);
}

/// Whether kernels should leave the rest of their work: what they give is thrown away.
pub fn is_stopped() -> bool {
    STOP.load(Relaxed)
}

/// `Err(Interrupted)` if the user asked to stop; cheap enough to call between launches and blocks of long kernels.
pub fn poll() -> Result<()> {
    if is_stopped() {
        return Err(Error::Interrupted);
    }
    let Some(hook) = HOOK.get() else { return Ok(()) };
    if IS_BLOCKED.get() || IS_SUPERVISED.get() {
        return Ok(());
    }
    let now = Instant::now();
    let is_due = NEXT.get().is_some_and(|next| now >= next);
    if is_due || NEXT.get().is_none() {
        NEXT.set(Some(now + PERIOD));
    }
    if is_due && ask(*hook) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Asks the hook, which may run the user's signal handlers.
fn ask(hook: fn() -> bool) -> bool {
    IS_ASKING.set(true);
    let wants_stop = hook();
    IS_ASKING.set(false);
    wants_stop
}

/// Whether a signal handler of the user runs on this thread in the middle of an evaluation.
pub fn is_asking() -> bool {
    IS_ASKING.get()
}

/// Runs to the end if `is_update`, whatever the user asks: parameters are those before the step or after it, never a mixture. What is
/// long and no update runs beside a thread that listens, and stops soon after the user asked.
pub fn interruptible(is_update: bool, is_long: bool, run: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    if IS_SUPERVISED.get() || !(threads::is_child() || is_long && !is_update && !IS_BLOCKED.get() && HOOK.get().is_some()) {
        let before = IS_BLOCKED.replace(IS_BLOCKED.get() || is_update);
        let out = run();
        IS_BLOCKED.set(before);
        return out;
    }
    let listens = HOOK.get().filter(|_| !is_update && !IS_BLOCKED.get());
    let mut out = Err(Error::Internal("an evaluation whose thread ended early"));
    let (send, receive) = channel();
    // On a thread of the pool that kernels use, so that no more threads run than it has; this one sleeps and listens.
    threads::in_place_scope(|scope| {
        let out = &mut out;
        scope.spawn(move |_| {
            IS_SUPERVISED.set(true);
            *out = run();
            IS_SUPERVISED.set(false);
            let _ = send.send(());
        });
        while receive.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            if listens.is_some_and(|hook| ask(*hook)) {
                STOP.store(true, Relaxed);
            }
        }
    })?;
    if STOP.swap(false, Relaxed) { Err(Error::Interrupted) } else { out }
}
