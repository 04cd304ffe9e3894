//! Copies between devices, and their gradient, which goes the other way.
use super::rule::{Ctx, Grads, Rule, grads, make, only};
use crate::backend::op::Op;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Saved, Tensor, settle};
use smallvec::smallvec;

/// The tensor on a device: itself if it is there already.
pub fn to_device(x: &Tensor, device: Device) -> Result<Tensor> {
    if x.device().is_none() {
        settle(&x.node, device);
    }
    if x.device() == Some(device) {
        return Ok(x.clone());
    }
    check_dtype(device, x.dtype())?;
    Ok(make(Op::Transfer(device), smallvec![], smallvec![x.clone()], x.spec().clone()))
}

/// Refuses an element type that a device cannot hold: that is said at the call.
pub fn check_dtype(device: Device, dtype: DType) -> Result<()> {
    if dtype == DType::F64 && !device.is_cpu() {
        let message = format!("float64 runs on the CPU only; got float64 for {device}: use dtype=\"float32\", or device=\"cpu\"");
        return Err(Error::dtype("device", message));
    }
    Ok(())
}

/// Refuses operands of one op that lie on different devices.
pub fn one_device(op: &'static str, inputs: &[&Tensor]) -> Result<()> {
    let mut known = inputs.iter().filter_map(|t| t.device());
    let Some(first) = known.next() else { return Ok(()) };
    match known.find(|&d| d != first) {
        // An array or a list that follows its reader may be of a type that the device lacks.
        None => inputs.iter().try_for_each(|t| check_dtype(first, t.dtype())),
        Some(other) => Err(Error::value(
            op,
            format!(
                "got tensors on {first} and on {other}; expected one device: move one with .to(\"{first}\") or .to(\"{other}\")"
            ),
        )),
    }
}

/// The rule of copies between devices.
pub struct Transfer;

impl Rule for Transfer {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        Some(Saved { inputs: 0, outputs: 0 })
    }

    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let from = ctx.inputs.first().and_then(Tensor::device).unwrap_or(Device::CPU);
        grads(to_device(only(grad_outs)?, from)?)
    }
}
