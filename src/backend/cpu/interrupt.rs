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

/// `Err(Interrupted)` if the user asked to stop what this thread does; cheap enough to call between launches and blocks of long kernels.
pub fn poll() -> Result<()> {
    if IS_SUPERVISED.get() {
        // Another thread, which waits for a device meanwhile, is not meant.
        return if is_stopped() { Err(Error::Interrupted) } else { Ok(()) };
    }
    let Some(hook) = HOOK.get() else { return Ok(()) };
    if IS_BLOCKED.get() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    thread_local! {
        static WANTS_STOP: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn test_u04_only_the_evaluation_that_was_interrupted_ends() {
        set_interrupt_hook(|| WANTS_STOP.get());
        // 0: not stopped yet; 1: stopped, and still there; 2: the other thread has looked.
        static STATE: AtomicUsize = AtomicUsize::new(0);
        let reach = |state: usize| {
            let end = Instant::now() + Duration::from_secs(60);
            while STATE.load(Relaxed) < state && Instant::now() < end {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                reach(1);
                let seen = (is_stopped(), poll());
                STATE.store(2, Relaxed);
                seen
            });
            let ended = scope.spawn(|| {
                WANTS_STOP.set(true);
                interruptible(false, true, || {
                    let end = Instant::now() + Duration::from_secs(60);
                    let stopped = loop {
                        match poll() {
                            Ok(()) if Instant::now() < end => std::thread::yield_now(),
                            out => break out,
                        }
                    };
                    STATE.store(1, Relaxed);
                    reach(2);
                    stopped
                })
            });
            assert_eq!(ended.join().ok(), Some(Err(Error::Interrupted)));
            assert_eq!(other.join().ok(), Some((true, Ok(()))));
        });
        assert!(!is_stopped());
    }
}
