//! Reductions over axes: shape rule, saved set and gradient; variance, logsumexp and the sum that undoes broadcasting.
use super::binary::{add, binary, div, mul, scalar, select, sub};
use super::cumulative::exclusive_products;
use super::rule::{Ctx, Grads, Rule, grads, make, only};
use super::unary::{cast, unary};
use super::view::{alias, expand, inverse, permute_axes, reshape_to};
use crate::backend::kind::BinaryKind::{Eq, Ne};
use crate::backend::kind::ReduceKind::{self, *};
use crate::backend::kind::UnaryKind as U;
use crate::backend::op::{Op, dropped};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Saved, Scope, Spec, Tensor};
use crate::shape::{self, Axes, Shape};
use smallvec::smallvec;

/// The bit mask of the axes, all of them if none are given.
fn mask_of(op: &'static str, rank: usize, axes: Option<&[i64]>) -> Result<u32> {
    if rank > 32 {
        return Err(Error::value(op, format!("got {rank} axes; expected at most 32")));
    }
    match axes {
        None => Ok((1u64 << rank).wrapping_sub(1) as u32),
        // As in NumPy and PyTorch: a number is its own sum along axis 0.
        Some([0 | -1]) if rank == 0 => Ok(0),
        Some(list) => Ok(shape::axes(op, list, rank)?.iter().fold(0, |m, &a| m | 1 << a)),
    }
}

const fn has(mask: u32, axis: usize) -> bool {
    mask >> axis & 1 == 1
}

/// The shape with the axes in the mask at size 1.
fn kept(shape: &[usize], mask: u32) -> Shape {
    shape.iter().enumerate().map(|(i, &d)| if has(mask, i) { 1 } else { d }).collect()
}

/// The number of elements that one result is made of.
fn count(shape: &[usize], mask: u32) -> usize {
    shape.iter().enumerate().filter(|&(i, _)| has(mask, i)).map(|(_, &d)| d).product()
}

/// A largest or smallest of nothing is an error that names the empty axis.
fn refuse_empty(op: &'static str, shape: &[usize], mask: u32) -> Result<()> {
    match (0..shape.len()).find(|&i| has(mask, i) && shape[i] == 0) {
        None => Ok(()),
        Some(axis) => {
            Err(Error::value(op, format!("axis {axis} of shape {shape:?} has size 0; expected at least one element to compare")))
        }
    }
}

/// Reduces over the axes (`None`: all). Sums and products of integers and bools are int64, means of them float32; `any` and `all` ask
/// for `!= 0`.
pub fn reduce(kind: ReduceKind, x: &Tensor, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
    let op = kind.name();
    let mask = mask_of(op, x.rank(), axes)?;
    let mut kind = kind;
    let x = match kind {
        Sum | Prod if !x.dtype().is_float() => cast(x, DType::I64),
        Mean => cast(x, x.dtype().to_float()),
        Any | All if x.dtype() != DType::Bool => binary(Ne, x, &super::binary::host_scalar(Scalar::Int(0), x.dtype()))?,
        Max | Min => {
            refuse_empty(op, x.shape(), mask)?;
            if x.dtype() == DType::Bool {
                kind = if kind == Max { Any } else { All };
            }
            x.clone()
        }
        _ => x.clone(),
    };
    let y = over(kind, &x, mask);
    Ok(if keepdims { reshape_to(&y, &kept(x.shape(), mask)) } else { y })
}

/// The reduction itself; one element is its own sum, mean, product and extreme.
fn over(kind: ReduceKind, x: &Tensor, mask: u32) -> Tensor {
    let shape = dropped(x.shape(), mask);
    if count(x.shape(), mask) == 1 {
        return reshape_to(x, &shape);
    }
    make(Op::Reduce(kind, mask), smallvec![], smallvec![x.clone()], Spec { shape, dtype: x.dtype() })
}

/// Undoes broadcasting: sums what was stretched, down to the shape.
pub fn sum_to(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    let lead = x.rank().checked_sub(shape.len());
    let fits = |lead: usize| shape.iter().zip(&x.shape()[lead..]).all(|(&to, &from)| to == from || to == 1);
    let Some(lead) = lead.filter(|&l| fits(l) && x.rank() <= 32) else {
        return Err(Error::value("sum_to", format!("shape {:?} is not one that {shape:?} broadcasts to", x.shape())));
    };
    let stretched = |&i: &usize| i < lead || shape[i - lead] != x.shape()[i];
    let mask = (0..x.rank()).filter(stretched).fold(0, |m, i| m | 1 << i);
    Ok(reshape_to(&over(Sum, x, mask), shape))
}

/// The rule of reductions.
pub struct Reduce;

fn parts(op: &Op) -> Result<(ReduceKind, u32)> {
    match op {
        Op::Reduce(kind, mask) => Ok((*kind, *mask)),
        _ => Err(Error::Internal("reduce rule")),
    }
}

impl Rule for Reduce {
    fn saves(&self, op: &Op, _needs: u32) -> Option<Saved> {
        match parts(op).ok()?.0 {
            Sum | Mean => Some(Saved { inputs: 0, outputs: 0 }),
            Prod => Some(Saved { inputs: 1, outputs: 0 }),
            Max | Min => Some(Saved { inputs: 1, outputs: 1 }),
            Any | All => None,
        }
    }

    /// With incoming g, input x and output y. Integer counts are divided by in f32 for the 16-bit floats.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let (kind, mask) = parts(ctx.op())?;
        let shape = &ctx.spec(0).shape;
        let keep = kept(shape, mask);
        let back = |t: &Tensor| expand(&reshape_to(t, &keep), shape);
        let wide = g.dtype().compute();
        grads(match kind {
            // g
            Sum => back(g),
            // g / n
            Mean => back(&cast(&div(&cast(g, wide), &scalar(count(shape, mask) as f64, wide))?, g.dtype())),
            // Ties are split evenly: g [x = y] / (number of x equal to y). NaN where y is NaN.
            Max | Min => {
                let y = reshape_to(&ctx.output(0)?, &keep);
                let hit = select(&binary(Eq, ctx.input(0)?, &y)?, &scalar(1.0, wide), &scalar(0.0, wide))?;
                let share = div(&cast(g, wide), &over(Sum, &hit, mask))?;
                cast(&mul(&back(&share), &hit)?, g.dtype())
            }
            Prod => prod_gradient(ctx.input(0)?, &back(g), mask)?,
            Any | All => return Err(Error::state(kind.name(), "this op has no gradient")),
        })
    }
}

/// g times the product of the others, as (product of those before) (product of those after): right with any number of zeros, and
/// differentiable again.
fn prod_gradient(x: &Tensor, g: &Tensor, mask: u32) -> Result<Tensor> {
    // The reduced axes become one last axis.
    let rank = x.rank();
    let order: Axes = (0..rank).filter(|&i| !has(mask, i)).chain((0..rank).filter(|&i| has(mask, i))).collect();
    let moved = permute_axes(x, &order);
    let mut flat = dropped(x.shape(), mask);
    flat.push(count(x.shape(), mask));
    let others = exclusive_products(&reshape_to(&moved, &flat))?;
    mul(g, &permute_axes(&reshape_to(&others, moved.shape()), &inverse(&order)))
}

/// Runs `f` without recording: no gradient flows through what it makes.
pub fn constant<R>(f: impl FnOnce() -> R) -> R {
    let _paused = Scope::enter(|s| s.paused = true);
    f()
}

/// The same value with no gradient path to it.
pub fn detach_like(x: &Tensor) -> Tensor {
    constant(|| alias(x))
}

/// Variance over the axes with `n - correction` in the denominator (0 at least, as in NumPy); 16-bit floats are squared in f32.
pub fn var(x: &Tensor, axes: Option<&[i64]>, keepdims: bool, correction: f64) -> Result<Tensor> {
    let dtype = x.dtype().to_float();
    let wide = dtype.compute();
    let x = cast(x, wide);
    let mask = mask_of("var", x.rank(), axes)?;
    let n = count(x.shape(), mask) as f64;
    let mean = reshape_to(&over(Mean, &x, mask), &kept(x.shape(), mask));
    let sum = over(Sum, &unary(U::Square, &sub(&x, &mean)?)?, mask);
    let y = div(&sum, &scalar((n - correction).max(0.0), wide))?;
    let y = if keepdims { reshape_to(&y, &kept(x.shape(), mask)) } else { y };
    Ok(cast(&y, dtype))
}

/// Standard deviation; its gradient is 0 where all values are equal.
pub fn std(x: &Tensor, axes: Option<&[i64]>, keepdims: bool, correction: f64) -> Result<Tensor> {
    let dtype = x.dtype().to_float();
    let v = var(&cast(x, dtype.compute()), axes, keepdims, correction).map_err(|e| e.named("std"))?;
    let c = |value: f64| scalar(value, v.dtype());
    let is_flat = binary(Eq, &v, &c(0.0))?;
    let root = unary(U::Sqrt, &select(&is_flat, &c(1.0), &v)?)?;
    Ok(cast(&select(&is_flat, &c(0.0), &root)?, dtype))
}

/// log(sum(e^x)) over the axes, shifted by the largest so that nothing overflows. The shift is a constant: the result does not depend
/// on it, so its derivatives of every order are right without it. Rows of -inf (and empty ones) give -inf, with gradient 0.
pub fn logsumexp(x: &Tensor, axes: Option<&[i64]>, keepdims: bool) -> Result<Tensor> {
    let dtype = x.dtype().to_float();
    let wide = dtype.compute();
    let x = cast(x, wide);
    let mask = mask_of("logsumexp", x.rank(), axes)?;
    let keep = kept(x.shape(), mask);
    let c = |value: f64| scalar(value, wide);
    let shift = constant(|| -> Result<Tensor> {
        if count(x.shape(), mask) == 0 {
            return Ok(c(0.0));
        }
        let top = reshape_to(&over(Max, &x, mask), &keep);
        select(&unary(U::IsFinite, &top)?, &top, &c(0.0))
    })?;
    let sum = reshape_to(&over(Sum, &unary(U::Exp, &sub(&x, &shift)?)?, mask), &keep);
    let is_zero = binary(Eq, &sum, &c(0.0))?;
    let log = add(&unary(U::Log, &select(&is_zero, &c(1.0), &sum)?)?, &shift)?;
    let y = select(&is_zero, &c(f64::NEG_INFINITY), &log)?;
    let y = if keepdims { y } else { reshape_to(&y, &dropped(x.shape(), mask)) };
    Ok(cast(&y, dtype))
}

/// Position of the largest or smallest along the axis (`None`: of all elements in row-major order), int64, the first on ties.
pub fn arg_extreme(x: &Tensor, is_max: bool, axis: Option<i64>, keepdims: bool) -> Result<Tensor> {
    let op = if is_max { "argmax" } else { "argmin" };
    let axis = axis.filter(|a| x.rank() > 0 || !matches!(a, 0 | -1));
    let (flat, axis) = match axis {
        None => (reshape_to(x, &[x.elems()]), 0),
        Some(a) => (x.clone(), shape::axis(op, a, x.rank())?),
    };
    // One axis of too many cannot be named in a mask.
    let mask = mask_of(op, flat.rank(), Some(&[axis as i64]))?;
    refuse_empty(op, flat.shape(), mask)?;
    let spec = Spec { shape: dropped(flat.shape(), mask), dtype: DType::I64 };
    let y = make(Op::ArgExtreme(is_max, axis), smallvec![], smallvec![flat.clone()], spec);
    if !keepdims {
        return Ok(y);
    }
    let keep = if flat.rank() == x.rank() { kept(flat.shape(), mask) } else { Shape::from_elem(1, x.rank()) };
    Ok(reshape_to(&y, &keep))
}
