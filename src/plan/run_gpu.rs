//! Running a plan's launches on an adapter: they are recorded and submitted; nothing waits for them.
use super::memory::{Live, Memory};
use super::program::Program;
use super::run::check_finite;
use super::timing::Timing;
use super::{Launch, Plan};
use crate::backend::{Prepared, cpu, gpu};
use crate::error::{Error, Result};
use smallvec::SmallVec;

/// Launches between two looks for the user's interrupt.
const POLL_STRIDE: usize = 32;

/// Records and submits every launch of a plan. `seen` is told of each with the bytes that live then.
pub(super) fn launches(
    plan: &Plan,
    program: &Program,
    memory: &Memory,
    live: &mut Live,
    anomaly: bool,
    seen: &(dyn Fn(usize, usize) + Sync),
    timing: Option<&Timing>,
) -> Result<()> {
    let index = program.device.gpu_index().ok_or(Error::Internal("plan: not an adapter"))?;
    let gpu = gpu::gpu(index)?;
    // An update is submitted whole: parameters are those before the step or after it.
    let mut recording = gpu.record(plan.is_update, Timing::laps(timing).cloned())?;
    for (i, (launch, prepared)) in plan.launches.iter().zip(&plan.prepared).enumerate() {
        if i % POLL_STRIDE == 0 {
            cpu::poll()?;
        }
        seen(i, live.begin(plan.steps[i])?);
        recording.begin(i as u32);
        record(&mut recording, plan, program, memory, launch, prepared)?;
        if anomaly {
            recording.submit()?;
            check_finite(plan, program, memory, launch, &gpu)?;
        }
        live.end(plan.steps[i]);
    }
    recording.submit()
}

fn record(
    recording: &mut gpu::Recording,
    plan: &Plan,
    program: &Program,
    memory: &Memory,
    launch: &Launch,
    prepared: &Prepared,
) -> Result<()> {
    let Prepared::Gpu(ready) = prepared else { return Err(Error::Internal("plan: a kernel of another device")) };
    if ready.is_empty() {
        return Ok(());
    }
    let mut places: SmallVec<[gpu::Place; 12]> = SmallVec::new();
    for operand in launch.ins.iter().chain(&launch.outs) {
        places.push(memory.place(plan, operand)?);
    }
    let (ins, outs) = places.split_at(launch.ins.len());
    let (outs, scratch) = outs.split_at(launch.outs.len() - launch.scratch);
    let args: SmallVec<[u64; 8]> = launch.args.iter().map(|&a| program.args[a as usize]).collect();
    let node = &program.nodes[launch.node as usize];
    let operands = gpu::Operands { ins, outs, scratch, args: &args, op: node.op.called(), at: node.place.as_deref() };
    recording.launch(ready, &operands)
}
