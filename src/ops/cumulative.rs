//! Running sums and products along an axis: shape rule, saved set and gradient.
use super::binary::{add, mul};
use super::create::full;
use super::movement::concat;
use super::rule::{Ctx, Grads, Rule, grads, make, only};
use super::unary::cast;
use super::view::{flip, narrow, reshape_to};
use crate::backend::op::Op;
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Saved, Tensor};
use crate::shape::{self, Shape};
use smallvec::smallvec;

/// Integers and bools widen to int64; without an axis, all elements in row-major order.
fn prepare(op: &'static str, x: &Tensor, axis: Option<i64>) -> Result<(Tensor, usize)> {
    let x = if x.dtype().is_float() { x.clone() } else { cast(x, DType::I64) };
    Ok(match axis {
        None => (reshape_to(&x, &[x.elems()]), 0),
        Some(a) => {
            let a = shape::axis(op, a, x.rank())?;
            (x, a)
        }
    })
}

/// Running sum along the axis (`None`: over all elements), from the end if `reverse`.
pub fn cumsum(x: &Tensor, axis: Option<i64>, reverse: bool) -> Result<Tensor> {
    let (x, axis) = prepare("cumsum", x, axis)?;
    let spec = x.spec().clone();
    Ok(make(Op::Cumsum { axis, reverse }, smallvec![], smallvec![x], spec))
}

/// Running product along the axis (`None`: over all elements).
pub fn cumprod(x: &Tensor, axis: Option<i64>) -> Result<Tensor> {
    let (x, axis) = prepare("cumprod", x, axis)?;
    let spec = x.spec().clone();
    Ok(make(Op::Cumprod(axis), smallvec![], smallvec![x], spec))
}

/// The running product before each element: 1, x0, x0 x1, .. from the running product itself.
fn shifted(products: &Tensor, axis: usize) -> Result<Tensor> {
    let mut one = Shape::from_slice(products.shape());
    let n = one[axis];
    if n == 0 {
        return Ok(products.clone());
    }
    one[axis] = 1;
    let one = full("cumprod", &one, Scalar::Int(1), products.dtype())?;
    concat(&[one, narrow(products, axis, 0, n - 1)?], axis as i64)
}

/// The product of all others along the last axis, for each element.
pub(super) fn exclusive_products(x: &Tensor) -> Result<Tensor> {
    let axis = x.rank() - 1;
    let last = [axis as i64];
    let before = shifted(&cumprod(x, Some(-1))?, axis)?;
    let mirrored = flip(x, Some(&last))?;
    let after = flip(&shifted(&cumprod(&mirrored, Some(-1))?, axis)?, Some(&last))?;
    mul(&before, &after)
}

/// s_i = g_i + x_(i+1) s_(i+1) along the axis, by doubling: after step d every s_i covers d terms, and a_i is the product of the d
/// factors that follow i. Sums and products only: right with zeros and differentiable to every order.
fn backward_recurrence(g: &Tensor, x: &Tensor, axis: usize) -> Result<Tensor> {
    let n = x.shape()[axis];
    let mut s = g.clone();
    if n < 2 {
        return Ok(s);
    }
    let mut a = narrow(x, axis, 1, n)?;
    let mut d = 1;
    while d < n {
        let head = add(&narrow(&s, axis, 0, n - d)?, &mul(&a, &narrow(&s, axis, d, n)?)?)?;
        s = concat(&[head, narrow(&s, axis, n - d, n)?], axis as i64)?;
        if 2 * d < n {
            a = mul(&narrow(&a, axis, 0, n - 2 * d)?, &narrow(&a, axis, d, n - d)?)?;
        }
        d *= 2;
    }
    Ok(s)
}

/// The rule of running sums.
pub struct Cumsum;

impl Rule for Cumsum {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        Some(Saved::default())
    }

    /// The running sum of g from the other end.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let Op::Cumsum { axis, reverse } = ctx.op() else { return Err(Error::Internal("cumsum rule")) };
        grads(cumsum(only(grad_outs)?, Some(*axis as i64), !reverse)?)
    }
}

/// The rule of running products.
pub struct Cumprod;

impl Rule for Cumprod {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        Some(Saved { inputs: 1, outputs: 1 })
    }

    /// (product before i) s_i with s_i = g_i + x_(i+1) s_(i+1): no division, so zeros are as good as any other number.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let Op::Cumprod(axis) = ctx.op() else { return Err(Error::Internal("cumprod rule")) };
        let sums = backward_recurrence(only(grad_outs)?, ctx.input(0)?, *axis)?;
        grads(mul(&shifted(&ctx.output(0)?, *axis)?, &sums)?)
    }
}
