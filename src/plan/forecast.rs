//! Forecasts: what a plan would take, told without running it.
use super::evaluate::{by_device, carry_out_ready};
use super::make::make;
use super::program::Program;
use super::transfer::pending_transfers;
use super::{Loc, Place, lock_engine, options};
use crate::device::Device;
use crate::error::Result;
use crate::graph::{Node, Tensor, pending_roots};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What computing the pending tensors would take on all devices; bytes of one device, on top of what is held there now.
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

/// Plans what this thread's Python tensors need of the nodes made since `first`, and runs nothing. What copies between devices are made of
/// is computed before all else, so what the rest reads of it is there all along, as are the copies. Bytes are those of `device`.
pub fn forecast(first: u64, device: Device) -> Result<PlanForecast> {
    let mut roots: Vec<_> = pending_roots().into_iter().filter(|t| t.node.id >= first).collect();
    let _nothing_runs = lock_engine();
    if !carry_out_ready(&roots)? {
        roots.extend(early(&roots));
    }
    let mut all = PlanForecast::default();
    by_device(&roots, &mut |these| {
        let one = of_one_device(these)?;
        all.kernels += one.kernels;
        all.work += one.work;
        if these.iter().all(|t| t.device() == Some(device)) {
            (all.peak_bytes, all.kept_bytes) = (one.peak_bytes, one.kept_bytes);
        }
        Ok(())
    })?;
    Ok(all)
}

/// Pending copies between devices that the roots need, what they are copies of, and what else is read of what those are made of.
fn early(roots: &[Tensor]) -> Vec<Tensor> {
    let copies = pending_transfers(roots);
    let mut found: Vec<Tensor> = copies.iter().cloned().map(Tensor::first).collect();
    found.extend(copies.iter().filter_map(|node| node.state.lock().inputs.first().cloned()));
    let before = beneath(&found);
    let is_before = |t: &Tensor| before.contains_key(&Arc::as_ptr(&t.node));
    for node in beneath(roots).values().filter(|node| !before.contains_key(&Arc::as_ptr(node))) {
        found.extend(node.state.lock().inputs.iter().filter(|t| is_before(t)).cloned());
    }
    found
}

/// The pending nodes that tensors need.
fn beneath(roots: &[Tensor]) -> FxHashMap<*const Node, Arc<Node>> {
    let mut found: FxHashMap<*const Node, Arc<Node>> = FxHashMap::default();
    let mut stack = roots.to_vec();
    while let Some(t) = stack.pop() {
        if t.value().is_none() && found.insert(Arc::as_ptr(&t.node), t.node.clone()).is_none() {
            stack.extend(t.node.state.lock().inputs.iter().cloned());
        }
    }
    found
}

fn of_one_device(roots: &[Tensor]) -> Result<PlanForecast> {
    let program = Program::new(roots, options())?;
    let plan = make(&program, options())?;
    let mut kept: Vec<(u32, usize, usize)> = Vec::new();
    for k in &plan.kept {
        let Loc::Temp(t) = k.loc else { continue };
        match plan.places[t as usize] {
            Place::Buffer(b) => kept.push((b, 0, plan.buffers[b as usize])),
            Place::Part { buffer, offset, bytes } => kept.push((buffer, offset, bytes)),
            Place::Arena(_) | Place::Lent { .. } | Place::Leaf(_) => {}
        }
    }
    kept.sort_unstable();
    kept.dedup();
    Ok(PlanForecast {
        kernels: plan.launches.len(),
        work: plan.work,
        peak_bytes: plan.peak,
        kept_bytes: kept.iter().map(|&(.., bytes)| bytes).sum(),
    })
}
