//! The gradients that backward walks start with.
use crate::error::{Error, Result};
use crate::graph::{Tensor, placed};
use crate::ops::{self, binary::scalar, transfer::one_device, unary::cast};

/// A tensor whose device is open, on another's.
pub(super) fn beside(g: &Tensor, t: &Tensor) -> Tensor {
    match t.device() {
        Some(device) if g.device().is_none() => placed(g, device),
        _ => g.clone(),
    }
}

/// The gradient that a walk starts with: the one given, else one for an output of one element.
pub(super) fn seed(op: &'static str, t: &Tensor, gradient: Option<&Tensor>) -> Result<Tensor> {
    if !t.dtype().is_float() {
        return Err(Error::dtype(op, format!("the output is {}; only floating-point outputs have gradients", t.dtype())));
    }
    match gradient {
        None if t.elems() == 1 => {
            let one = beside(&scalar(1.0, t.dtype()), t);
            if t.rank() == 0 { Ok(one) } else { ops::view::broadcast_to(&one, t.shape()) }
        }
        None => Err(Error::value(
            op,
            format!("the output has shape {:?}; pass gradient= of that shape, or reduce it to one element", t.shape()),
        )),
        Some(g) if g.shape() != t.shape() => {
            Err(Error::value(op, format!("gradient has shape {:?}, expected {:?}", g.shape(), t.shape())))
        }
        Some(g) => {
            one_device(op, &[t, g])?;
            Ok(cast(&beside(g, t), t.dtype()))
        }
    }
}
