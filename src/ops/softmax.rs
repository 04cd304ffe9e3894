//! Softmax along an axis, its logarithm, and the softmax of causal attention: shape rule, saved output and gradient.
use super::binary::{mul, scalar, sub};
use super::reduce::reduce;
use super::rule::{Ctx, Grads, Rule, grads, make, only};
use super::unary::{cast, unary};
use super::view::{move_axis, reshape_to};
use crate::backend::kind::ReduceKind::Sum;
use crate::backend::kind::UnaryKind::Exp;
use crate::backend::op::Op;
use crate::error::{Error, Result};
use crate::graph::{Saved, Tensor};
use crate::shape;
use smallvec::smallvec;

fn row_kernel(op: &'static str, log: bool, x: &Tensor, axis: i64) -> Result<Tensor> {
    if x.rank() == 0 {
        return Ok(reshape_to(&row_kernel(op, log, &reshape_to(x, &[1]), axis)?, &[]));
    }
    let axis = shape::axis(op, axis, x.rank())?;
    let last = x.rank() - 1;
    let rows = move_axis(&cast(x, x.dtype().to_float()), axis, last);
    let spec = rows.spec().clone();
    let y = make(Op::Softmax { log, causal: false }, smallvec![], smallvec![rows], spec);
    Ok(move_axis(&y, last, axis))
}

/// e^x / sum(e^x) along the axis; integers become float32.
pub fn softmax(x: &Tensor, axis: i64) -> Result<Tensor> {
    row_kernel("softmax", false, x, axis)
}

/// x - log(sum(e^x)) along the axis; integers become float32.
pub fn log_softmax(x: &Tensor, axis: i64) -> Result<Tensor> {
    row_kernel("log_softmax", true, x, axis)
}

/// Softmax of `scale` x along the last axis. If `causal`, row i of each matrix sees columns 0 to i only; the others become 0.
pub fn attention_softmax(x: &Tensor, scale: f64, causal: bool) -> Result<Tensor> {
    let least = 1 + usize::from(causal);
    if x.rank() < least {
        let message = format!("got shape {:?}; expected at least {least} axes", x.shape());
        return Err(Error::value("attention_softmax", message));
    }
    let x = cast(x, x.dtype().to_float());
    let spec = x.spec().clone();
    Ok(make(Op::Softmax { log: false, causal }, smallvec![scale.to_bits()], smallvec![x], spec))
}

/// The rule of all of them.
pub struct Softmax;

impl Rule for Softmax {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        Some(Saved { inputs: 0, outputs: 1 })
    }

    /// With output y, sums along the last axis: y (g - sum(g y)), which is 0 for what was not seen; for the logarithm g - e^y sum(g). Both
    /// times the scale, if there is one.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let y = ctx.output(0)?;
        let row_sum = |t: &Tensor| reduce(Sum, t, Some(&[-1]), true);
        let slope = match ctx.op() {
            Op::Softmax { log: false, .. } => mul(&y, &sub(g, &row_sum(&mul(g, &y)?)?)?)?,
            Op::Softmax { log: true, .. } => sub(g, &mul(&unary(Exp, &y)?, &row_sum(g)?)?)?,
            _ => return Err(Error::Internal("softmax rule")),
        };
        let Some(&scale) = ctx.node.args.first() else { return grads(slope) };
        let wide = y.dtype().compute();
        grads(cast(&mul(&cast(&slope, wide), &scalar(f64::from_bits(scale), wide))?, y.dtype()))
    }
}
