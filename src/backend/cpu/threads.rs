//! The threads that kernels run on: rayon's own, and after a fork, in whose child those are gone, a pool of the child's.
use crate::error::{Error, Result};
use parking_lot::Mutex;
use rayon::{Scope, ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Set in a process that was forked from one that may have had threads.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// The child's pool, once it has evaluated something.
static POOL: Mutex<Option<Arc<ThreadPool>>> = Mutex::new(None);

/// Says that this process is a fresh child; only the thread that forked is alive, and no evaluation was under way.
pub fn begin_child() {
    IS_CHILD.store(true, Relaxed);
    // The pool of a parent that is a child itself: its threads are gone, so ending them would wait for ever.
    std::mem::forget(POOL.lock().take());
}

/// Whether this process was forked: kernels must be started on a pool of its own.
pub fn is_child() -> bool {
    IS_CHILD.load(Relaxed)
}

/// Calls `body` on this thread; what it spawns runs on living threads, and has ended when this returns.
pub(super) fn in_place_scope<'s, R>(body: impl FnOnce(&Scope<'s>) -> R) -> Result<R> {
    if !is_child() {
        return Ok(rayon::in_place_scope(body));
    }
    let pool = {
        let mut pool = POOL.lock();
        match &*pool {
            Some(pool) => pool.clone(),
            None => {
                let failed = |e: rayon::ThreadPoolBuildError| Error::state("fork", format!("no threads for this process: {e}"));
                pool.insert(Arc::new(ThreadPoolBuilder::new().build().map_err(failed)?)).clone()
            }
        }
    };
    Ok(pool.in_place_scope(body))
}
