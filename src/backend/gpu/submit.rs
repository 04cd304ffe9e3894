//! Handing work to a device, and waiting until it is done.
use super::device::Gpu;
use super::trouble::{Fault, strikes};
use crate::backend::clock::{Duty, OnDuty};
use crate::backend::cpu;
use crate::error::{Error, Result};
use std::time::{Duration, Instant};
use wgpu::{PollType, SubmissionIndex};

/// How long a wait asks again and again before it blocks.
const SPIN: Duration = Duration::from_micros(300);
/// How long a device may take before memory that it uses is given up on.
const PATIENCE: Duration = Duration::from_secs(10);
/// What failed, in messages.
const SUBMISSION: &str = "a submission failed";
/// Plans that may be under way at once.
const MAX_FLIGHTS: usize = 2;

impl Gpu {
    /// Hands finished work to the device, waiting for the plan before the last one.
    pub(super) fn submit(&self, commands: wgpu::CommandBuffer) -> Result<SubmissionIndex> {
        self.check_submission()?;
        let index = self.hand_over(commands)?;
        self.flights.lock().push_back(index.clone());
        self.land(MAX_FLIGHTS)?;
        self.check()?;
        Ok(index)
    }

    /// Hands over work that must not be done twice, such as an update of parameters: if this fails, none of it was done. What earlier work
    /// has to report is raised before.
    pub(super) fn submit_once(&self, commands: wgpu::CommandBuffer) -> Result<()> {
        self.land(MAX_FLIGHTS - 1)?;
        self.check_submission()?;
        let index = self.hand_over(commands);
        if self.is_lost() {
            return self.check();
        }
        self.flights.lock().push_back(index?);
        Ok(())
    }

    fn hand_over(&self, commands: wgpu::CommandBuffer) -> Result<SubmissionIndex> {
        let _submitting = OnDuty::begin(Duty::Submit);
        self.work.note_submission();
        self.made(SUBMISSION, || self.queue.submit([commands]))
    }

    /// Hands over what was written, without waiting.
    pub(super) fn flush(&self) -> Result<SubmissionIndex> {
        self.check_submission()?;
        self.made(SUBMISSION, || self.queue.submit([]))
    }

    /// Whether work may be handed over now.
    fn check_submission(&self) -> Result<()> {
        if strikes(Fault::Lose) {
            self.lose();
        }
        self.check()?;
        if strikes(Fault::Submit) {
            return Err(Error::device(format!("{}: {SUBMISSION}", self.name)));
        }
        Ok(())
    }

    /// Waits for the oldest submissions until no more than so many are under way.
    fn land(&self, most: usize) -> Result<()> {
        loop {
            let oldest = {
                let mut flights = self.flights.lock();
                if flights.len() > most { flights.pop_front() } else { None }
            };
            let Some(oldest) = oldest else { return Ok(()) };
            if strikes(Fault::Land) {
                return Err(Error::device(format!("{}: earlier work failed", self.name)));
            }
            self.wait(Some(oldest))?;
        }
    }

    /// Waits for a submission, or for all; the user's interrupt is looked for meanwhile.
    pub(super) fn wait(&self, index: Option<SubmissionIndex>) -> Result<()> {
        let _waiting = OnDuty::begin(Duty::Wait);
        if strikes(Fault::Wait) {
            return Err(Error::device(format!("{}: waiting failed: a test", self.name)));
        }
        // Short work ends sooner than a blocked thread wakes up; a processor that plays the GPU needs the core itself.
        let spins_until = (!self.info.is_software).then(|| Instant::now() + SPIN);
        loop {
            let spins = spins_until.is_some_and(|end| Instant::now() < end);
            let timeout = Some(if spins { Duration::ZERO } else { Duration::from_millis(50) });
            match self.device.poll(PollType::Wait { submission_index: index.clone(), timeout }) {
                Ok(_) => return self.check(),
                Err(wgpu::PollError::Timeout) if spins => std::hint::spin_loop(),
                Err(wgpu::PollError::Timeout) => cpu::poll()?,
                Err(error) => {
                    self.check()?;
                    return Err(Error::device(format!("{}: waiting failed: {error}", self.name)));
                }
            }
        }
    }

    /// Waits until the device has done all it was given, and reports what its kernels refused.
    pub fn synchronize(&self) -> Result<()> {
        self.check()?;
        self.wait(None)?;
        self.flights.lock().clear();
        self.check_tickets()
    }

    /// Waits until buffers that were dropped have gone back to the driver. Whoever asks has the pools' lock, so the user's interrupt, for
    /// which the interpreter is needed, is not looked for.
    pub fn reclaim(&self) {
        if self.is_lost() {
            return;
        }
        // What was written to them and not handed over holds them too.
        match self.made(SUBMISSION, || self.queue.submit([])) {
            Ok(index) => {
                let _ = self.device.poll(PollType::Wait { submission_index: Some(index), timeout: Some(PATIENCE) });
            }
            Err(error) => self.trouble.note(error),
        }
    }
}
