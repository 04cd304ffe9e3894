//! Sorting along an axis: shape rule, saved positions and gradient.
use super::index::scatter_along;
use super::rule::{Ctx, Grads, Rule, grads, make_many, only};
use super::unary::zeros_like;
use super::view::{move_axis, narrow, reshape_to};
use crate::backend::kind::Caller;
use crate::backend::op::Op;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Saved, Spec, Tensor};
use crate::shape;
use smallvec::smallvec;

/// Values and positions, sorted along the last axis, with the axis moved there.
fn sorted_rows(op: &'static str, x: &Tensor, axis: i64, descending: bool) -> Result<(Tensor, Tensor, usize)> {
    let axis = shape::axis(op, axis, x.rank())?;
    let rows = move_axis(x, axis, x.rank() - 1);
    let specs = smallvec![rows.spec().clone(), Spec { shape: rows.spec().shape.clone(), dtype: DType::I64 }];
    let mut outs = make_many(Op::Sort { descending }, smallvec![], smallvec![rows], specs).into_iter();
    match (outs.next(), outs.next()) {
        (Some(values), Some(positions)) => Ok((values, positions, axis)),
        _ => Err(Error::Internal("sort: outputs")),
    }
}

/// Sorted values and the int64 positions they came from, along the axis (`None`: all elements in row-major order). Stable; NaN is
/// larger than every number.
pub fn sort(x: &Tensor, axis: Option<i64>, descending: bool) -> Result<(Tensor, Tensor)> {
    let Some(axis) = axis else { return sort(&reshape_to(x, &[x.elems()]), Some(0), descending) };
    let (values, positions, axis) = sorted_rows("sort", x, axis, descending)?;
    let last = x.rank() - 1;
    Ok((move_axis(&values, last, axis), move_axis(&positions, last, axis)))
}

/// The positions that sort x along the axis.
pub fn argsort(x: &Tensor, axis: Option<i64>, descending: bool) -> Result<Tensor> {
    Ok(sort(x, axis, descending).map_err(|e| e.named("argsort"))?.1)
}

/// The k largest (or smallest) along the axis with their positions, best first (so `sorted` or not is the same); NaN is larger
/// than every number.
pub fn topk(x: &Tensor, k: usize, axis: i64, largest: bool, _sorted: bool) -> Result<(Tensor, Tensor)> {
    let (values, positions, axis) = sorted_rows("topk", x, axis, largest)?;
    let size = x.shape()[axis];
    if k > size {
        return Err(Error::value("topk", format!("k is {k}; axis {axis} of shape {:?} has only {size} element(s)", x.shape())));
    }
    let last = x.rank() - 1;
    let best = |t: &Tensor| narrow(t, last, 0, k).map(|t| move_axis(&t, last, axis));
    Ok((best(&values)?, best(&positions)?))
}

/// The rule of sorting.
pub struct Sort;

impl Rule for Sort {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        Some(Saved { inputs: 0, outputs: 2 })
    }

    /// g goes back to the positions that the values came from (ties: to the one that was taken).
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let axis = g.rank() as i64 - 1;
        grads(scatter_along(Caller::Own, &zeros_like(g), &ctx.output(1)?, g, axis)?)
    }
}
