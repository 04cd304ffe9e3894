//! Ctrl-C: long evaluations ask now and then whether to stop.
use crate::error::{Error, Result};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

static HOOK: OnceLock<fn() -> bool> = OnceLock::new();

thread_local! {
    static NEXT: Cell<Option<Instant>> = const { Cell::new(None) };
    static BLOCKED: Cell<bool> = const { Cell::new(false) };
}

/// How often the user's interrupt is looked for.
const PERIOD: Duration = Duration::from_millis(50);

/// Sets what answers whether the user asked to stop; the binding gives it once.
pub fn set_interrupt_hook(hook: fn() -> bool) {
    let _ = HOOK.set(hook);
}

/// `Err(Interrupted)` if the user asked to stop; cheap enough to call between launches and blocks of long kernels.
pub fn poll() -> Result<()> {
    let Some(hook) = HOOK.get() else { return Ok(()) };
    if BLOCKED.get() {
        return Ok(());
    }
    let now = Instant::now();
    match NEXT.get() {
        Some(next) if now < next => Ok(()),
        None => {
            NEXT.set(Some(now + PERIOD));
            Ok(())
        }
        Some(_) => {
            NEXT.set(Some(now + PERIOD));
            if hook() { Err(Error::Interrupted) } else { Ok(()) }
        }
    }
}

/// Runs to the end if `is_update`, whatever the user asks: parameters are those before the step or after it, never a mixture.
pub fn uninterrupted<R>(is_update: bool, f: impl FnOnce() -> R) -> R {
    let before = BLOCKED.replace(BLOCKED.get() || is_update);
    let out = f();
    BLOCKED.set(before);
    out
}
