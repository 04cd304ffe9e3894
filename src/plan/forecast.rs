//! Forecasts: what a plan would take, told without running it.
use super::evaluate::{by_device, carry_out_ready};
use super::make::make;
use super::program::Program;
use super::{Loc, Place, lock_engine, options};
use crate::error::Result;
use crate::graph::{Tensor, pending_roots};

/// What computing the pending tensors would take; bytes on top of what is held now.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PlanForecast {
    /// Launches.
    pub kernels: usize,
    /// Units of work.
    pub work: u64,
    /// The highest number of bytes while it runs.
    pub peak_bytes: usize,
    /// Bytes that stay when it has run.
    pub kept_bytes: usize,
}

/// Plans what this thread's Python tensors need of the nodes made since `first`, and runs nothing.
pub fn forecast(first: u64) -> Result<PlanForecast> {
    let roots: Vec<_> = pending_roots().into_iter().filter(|t| t.node.id >= first).collect();
    let _nothing_runs = lock_engine();
    carry_out_ready(&roots)?;
    let mut all = PlanForecast::default();
    by_device(&roots, &mut |these| {
        let one = of_one_device(these)?;
        all.kernels += one.kernels;
        all.work += one.work;
        all.peak_bytes += one.peak_bytes;
        all.kept_bytes += one.kept_bytes;
        Ok(())
    })?;
    Ok(all)
}

fn of_one_device(roots: &[Tensor]) -> Result<PlanForecast> {
    let program = Program::new(roots, options())?;
    let plan = make(&program, options())?;
    let mut kept: Vec<u32> = Vec::new();
    for k in &plan.kept {
        if let Loc::Temp(t) = k.loc
            && let Place::Buffer(b) = plan.places[t as usize]
        {
            kept.push(b);
        }
    }
    kept.sort_unstable();
    kept.dedup();
    Ok(PlanForecast {
        kernels: plan.launches.len(),
        work: plan.work,
        peak_bytes: plan.peak,
        kept_bytes: kept.iter().map(|&b| plan.buffers[b as usize]).sum(),
    })
}
