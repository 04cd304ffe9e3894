//! A team: threads of the pool that stay awake between the kernels of one plan, since waking one takes longer than a small kernel.
use parking_lot::Mutex;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::thread::Thread;

/// Looks at the team before an idle helper lets other threads run: some 50 microseconds.
const SPINS: usize = 1000;
/// Times that it lets them run before it sleeps.
const YIELDS: usize = 100;
/// Looks between two at the pool's own tasks, which helpers of an idle team take as well.
const POOL_STRIDE: usize = 16;

/// What is shared out at the moment.
struct Job<'a> {
    work: &'a (dyn Fn() + Sync),
}

/// What leader and helpers share.
struct Team {
    /// The open job; null between jobs. Only who is counted in `inside` may look at it.
    job: AtomicPtr<Job<'static>>,
    /// Jobs opened so far.
    opened: AtomicUsize,
    /// Helpers that may hold the job's address.
    inside: AtomicUsize,
    asleep: AtomicUsize,
    has_ended: AtomicBool,
    helpers: Mutex<Vec<Thread>>,
}

thread_local! {
    /// The team that this thread leads; null while it works on a task.
    static LED: Cell<*const Team> = const { Cell::new(std::ptr::null()) };
}

/// Ends a team however its leader leaves.
struct Ending<'a>(&'a Team, *const Team);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        LED.set(self.1);
        self.0.has_ended.store(true, SeqCst);
        self.0.wake();
    }
}

/// Leaves a job however its work ends.
struct Inside<'a>(&'a Team);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, SeqCst);
    }
}

/// Closes the open job and waits for its helpers, however the leader's own part ends.
struct Open<'a>(&'a Team);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        LED.set(self.0);
        self.0.job.store(null_mut(), SeqCst);
        let mut looks = 0;
        while self.0.inside.load(SeqCst) > 0 {
            looks += 1;
            if looks < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

/// Calls `body` with a team for the tasks of this thread, if `is_worth_it`.
pub fn with_team<R>(is_worth_it: bool, body: impl FnOnce() -> R) -> R {
    let threads = rayon::current_num_threads();
    if !is_worth_it || threads < 2 || !LED.get().is_null() {
        return body();
    }
    let team = Team {
        job: AtomicPtr::new(null_mut()),
        opened: AtomicUsize::new(0),
        inside: AtomicUsize::new(0),
        asleep: AtomicUsize::new(0),
        has_ended: AtomicBool::new(false),
        helpers: Mutex::new(Vec::new()),
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| team.help());
        }
        let _ending = Ending(&team, LED.replace(&team));
        body()
    })
}

/// Runs `work` on this thread and on the helpers of its team, each once at least unless it comes too late; `false` without a team.
pub fn share(work: &(dyn Fn() + Sync)) -> bool {
    // SAFETY: a team outlives the body that its leader runs, and only in there this thread finds it.
    let Some(team) = (unsafe { LED.get().as_ref() }) else { return false };
    let job = Job { work };
    team.job.store((&raw const job).cast_mut().cast(), SeqCst);
    team.opened.fetch_add(1, SeqCst);
    let _open = Open(team);
    LED.set(std::ptr::null());
    if team.asleep.load(SeqCst) > 0 {
        team.wake();
    }
    work();
    true
}

/// Wakes the helpers of this thread's team, for tasks that are given to the pool itself.
pub fn rouse() {
    // SAFETY: as in `share`.
    if let Some(team) = unsafe { LED.get().as_ref() } {
        team.wake();
    }
}

impl Team {
    fn wake(&self) {
        self.helpers.lock().iter().for_each(Thread::unpark);
    }

    /// What a helper does until the team ends.
    fn help(&self) {
        self.helpers.lock().push(std::thread::current());
        let (mut seen, mut idle) = (0, 0);
        while !self.has_ended.load(SeqCst) {
            let opened = self.opened.load(SeqCst);
            if opened != seen {
                (seen, idle) = (opened, 0);
                self.take_part();
                continue;
            }
            idle += 1;
            if idle % POOL_STRIDE == 0 && rayon::yield_now() == Some(rayon::Yield::Executed) {
                idle = 0;
            } else if idle < SPINS {
                std::hint::spin_loop();
            } else if idle < SPINS + YIELDS {
                std::thread::yield_now();
            } else {
                self.sleep(seen);
                idle = 0;
            }
        }
    }

    /// Sleeps until the leader wakes it, unless a job was opened meanwhile.
    fn sleep(&self, seen: usize) {
        self.asleep.fetch_add(1, SeqCst);
        if self.opened.load(SeqCst) == seen && !self.has_ended.load(SeqCst) {
            std::thread::park();
        }
        self.asleep.fetch_sub(1, SeqCst);
    }

    fn take_part(&self) {
        self.inside.fetch_add(1, SeqCst);
        let _inside = Inside(self);
        // SAFETY: the leader waits for who is inside before the job goes; one that is closed already is null.
        if let Some(job) = unsafe { self.job.load(SeqCst).as_ref() } {
            (job.work)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parallel::for_each;
    use super::*;
    use std::time::Duration;

    fn in_pools(check: impl Fn() + Sync) {
        for threads in [1, 2, 3, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(&check);
            check();
        }
    }

    #[test]
    fn test_t16_every_task_of_every_job_runs_once() {
        in_pools(|| {
            with_team(true, || {
                for round in 0..300 {
                    let count = round % 17;
                    let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                    for_each(count, |i| {
                        seen[i].fetch_add(1, SeqCst);
                    });
                    assert!(seen.iter().all(|s| s.load(SeqCst) == 1));
                    if round % 100 == 50 {
                        // Longer than helpers stay awake.
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        });
    }

    #[test]
    fn tasks_inside_tasks_and_tasks_of_the_pool_run_too() {
        use rayon::prelude::*;
        in_pools(|| {
            let sum = AtomicUsize::new(0);
            with_team(true, || {
                for_each(7, |_| {
                    for_each(5, |i| {
                        sum.fetch_add(i, SeqCst);
                    });
                });
                rouse();
                (0..100usize).into_par_iter().for_each(|i| {
                    sum.fetch_add(i, SeqCst);
                });
                with_team(true, || {
                    for_each(3, |i| {
                        sum.fetch_add(i, SeqCst);
                    });
                });
            });
            assert_eq!(sum.load(SeqCst), 7 * 10 + 4950 + 3);
        });
    }

    #[test]
    fn a_panic_on_any_thread_ends_the_team_and_arrives() {
        in_pools(|| {
            let arrived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                with_team(true, || for_each(64, |i| assert!(i != 40, "task 40")));
            }));
            assert!(arrived.is_err());
            assert!(LED.get().is_null());
            // The pool works on.
            let done = AtomicUsize::new(0);
            with_team(true, || {
                for_each(9, |_| {
                    done.fetch_add(1, SeqCst);
                });
            });
            assert_eq!(done.load(SeqCst), 9);
        });
    }
}
