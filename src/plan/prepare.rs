//! Kernels made ready for a device, with the memory that they need beside their outputs.
use super::lower::{Lowered, Temp};
use super::program::Program;
use super::run::note_failure;
use super::{Launch, Loc, Operand};
use crate::backend::op::Op;
use crate::backend::{Kernel, Prepared, cpu, gpu};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Node;
use crate::layout::Layout;
use std::sync::Arc;

/// Prepares every launch of a lowered program; scratch memory becomes temporaries of it.
pub(super) fn prepare(program: &Program, lowered: &mut Lowered) -> Result<Vec<Arc<Prepared>>> {
    let Some(index) = program.device.gpu_index() else {
        return lowered.launches.iter().map(|l| Ok(Arc::new(Prepared::Cpu(cpu::prepare(&l.kernel)?)))).collect();
    };
    let gpu = gpu::gpu(index)?;
    gpu.check()?;
    let mut prepared = Vec::with_capacity(lowered.launches.len());
    for (s, launch) in lowered.launches.iter_mut().enumerate() {
        // A copy from another device is there when a plan runs; what only forecasts have of it is its memory.
        let is_awaited = matches!(launch.kernel, Kernel::Op(Op::Transfer(_)));
        let ready = match is_awaited || launch.outs.iter().all(|o| o.layout.shape.contains(&0)) {
            // Nothing of it runs.
            true => gpu.ready(gpu::Prepared::default())?,
            false => {
                let dispatches = as_dispatches(&gpu, launch);
                gpu.ready(dispatches.map_err(|error| refused(&program.nodes[launch.node as usize], error))?)?
            }
        };
        for &bytes in &ready.scratch {
            // What no kernel could bind whole would be cut silently.
            gpu.check_bytes(bytes).map_err(|error| refused(&program.nodes[launch.node as usize], error))?;
            let layout = Layout::contiguous(&[bytes]);
            launch.outs.push(Operand { loc: Loc::Temp(lowered.temps.len() as u32), layout, dtype: DType::U8 });
            launch.scratch += 1;
            lowered.temps.push(Temp { bytes, made: s as u32 });
        }
        prepared.push(Arc::new(Prepared::Gpu(ready)));
    }
    Ok(prepared)
}

/// Why the device refuses a node, by its op and the line that called it: it stays pending and raises when it is asked for by name.
fn refused(node: &Arc<Node>, error: Error) -> Error {
    note_failure(node);
    let error = error.of(node.op.name());
    match &node.place {
        Some(place) => error.at(place),
        None => error,
    }
}

fn as_dispatches(gpu: &gpu::Gpu, launch: &Launch) -> Result<gpu::Prepared> {
    let mut ins = Vec::with_capacity(launch.ins.len());
    for (i, o) in launch.ins.iter().enumerate() {
        ins.push(view(gpu, gpu::Slot::In(i), o)?);
    }
    let mut outs = Vec::with_capacity(launch.outs.len());
    for (i, o) in launch.outs.iter().enumerate() {
        outs.push(view(gpu, gpu::Slot::Out(i), o)?);
    }
    gpu::prepare(&launch.kernel, &launch.shape, &ins, &outs, gpu.caps)
}

fn view<'a>(gpu: &gpu::Gpu, slot: gpu::Slot, o: &'a Operand) -> Result<gpu::View<'a>> {
    gpu.check_dtype(o.dtype)?;
    // What a broadcast repeats is there once.
    let spans = o.layout.shape.iter().zip(&o.layout.strides).map(|(&d, &s)| d.saturating_sub(1) * s.unsigned_abs());
    gpu.check_bytes((spans.sum::<usize>() + 1) * o.dtype.size_bytes())?;
    Ok(gpu::View { slot, dtype: o.dtype, shape: &o.layout.shape, strides: &o.layout.strides })
}
