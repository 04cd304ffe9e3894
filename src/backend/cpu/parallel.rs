//! Independent tasks shared out between the calling thread and the pool.
use super::interrupt::is_stopped;
use super::team;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of threads that `for_each` uses at most.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Calls `task` once for every index below `count`. The tasks run in any order on any thread, so each must write memory of its own.
pub fn for_each(count: usize, task: impl Fn(usize) + Sync) {
    let threads = threads().min(count);
    if threads <= 1 {
        return (0..count).take_while(|_| !is_stopped()).for_each(task);
    }
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count || is_stopped() {
                break;
            }
            task(i);
        }
    };
    if team::share(&work) {
        return;
    }
    // In place: the caller works too, instead of sleeping until the pool has woken up and finished.
    rayon::in_place_scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| work());
        }
        work();
    });
}

/// The chunks of `elems` elements that tasks of about `grain` elements make: their number and their size.
pub fn chunks(elems: usize, grain: usize) -> (usize, usize) {
    // Whole cache lines of every element size, so that no two threads write one line.
    let size = grain.max(1).next_multiple_of(64);
    (elems.div_ceil(size), size)
}

/// Calls `task` with ranges that cover `0..elems`, in parallel if there is more than one of about `grain` elements.
pub fn ranges(elems: usize, grain: usize, task: impl Fn(std::ops::Range<usize>) + Sync) {
    let (count, size) = chunks(elems, grain);
    for_each(count, |i| task(i * size..((i + 1) * size).min(elems)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_everything_once() {
        for elems in [0, 1, 63, 64, 65, 1000, 100_003] {
            let seen: Vec<AtomicUsize> = (0..elems).map(|_| AtomicUsize::new(0)).collect();
            ranges(elems, 100, |r| r.for_each(|i| assert_eq!(seen[i].fetch_add(1, Ordering::Relaxed), 0)));
            assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1));
        }
    }
}
