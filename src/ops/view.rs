//! Views and slice assignment: reshape, permute, broadcast, slice and their gradients. What changes nothing gives the tensor itself.
use super::rule::{Ctx, Grads, Rule, grads, make, only};
use super::transfer::one_device;
use super::unary::{cast, zeros_like};
use crate::backend::op::{Op, Range, ViewOp};
use crate::error::{Error, Result};
use crate::graph::{Saved, Spec, Stage, Tensor, Value, log_leaf, scope};
use crate::shape::{self, Axes, Shape, check_size, elems};
use smallvec::{SmallVec, smallvec};

fn view(x: &Tensor, op: ViewOp, shape: Shape) -> Tensor {
    make(Op::View(op), smallvec![], smallvec![x.clone()], Spec { shape, dtype: x.dtype() })
}

/// The same value under another identity.
pub fn alias(x: &Tensor) -> Tensor {
    view(x, ViewOp::Alias, x.spec().shape.clone())
}

/// A row-major copy.
pub fn copy(x: &Tensor) -> Tensor {
    make(Op::Copy, smallvec![], smallvec![x.clone()], x.spec().clone())
}

/// The same elements in row-major order under another shape; at most one size may be -1.
pub fn reshape(x: &Tensor, to: &[i64]) -> Result<Tensor> {
    Ok(reshape_to(x, &shape::reshape("reshape", x.shape(), to)?))
}

/// `reshape` to a shape that is known to have as many elements.
pub fn reshape_to(x: &Tensor, to: &[usize]) -> Tensor {
    if x.shape() == to { x.clone() } else { view(x, ViewOp::Reshape, Shape::from_slice(to)) }
}

/// The axes in another order (`None`: reversed).
pub fn permute(x: &Tensor, order: Option<&[i64]>) -> Result<Tensor> {
    let order = match order {
        None => (0..x.rank()).rev().collect(),
        Some(given) => {
            let order = shape::axes("permute", given, x.rank())?;
            if order.len() != x.rank() {
                let message = format!("axes {given:?} for shape {:?}: expected each of its {} axes once", x.shape(), x.rank());
                return Err(Error::value("permute", message));
            }
            order
        }
    };
    Ok(permute_axes(x, &order))
}

/// `permute` by an order that is known to be a permutation.
pub fn permute_axes(x: &Tensor, order: &[usize]) -> Tensor {
    if order.iter().enumerate().all(|(i, &a)| i == a) {
        return x.clone();
    }
    let shape = order.iter().map(|&a| x.shape()[a]).collect();
    view(x, ViewOp::Permute(Axes::from_slice(order)), shape)
}

/// The order that undoes a permutation.
pub fn inverse(order: &[usize]) -> Axes {
    let mut out = Axes::from_elem(0, order.len());
    for (to, &from) in order.iter().enumerate() {
        out[from] = to;
    }
    out
}

/// Two axes swapped; `op` is the name that errors give.
pub fn transpose(op: &'static str, x: &Tensor, i: i64, j: i64) -> Result<Tensor> {
    let mut order: Axes = (0..x.rank()).collect();
    order.swap(shape::axis(op, i, x.rank())?, shape::axis(op, j, x.rank())?);
    Ok(permute_axes(x, &order))
}

/// One axis moved to another place, the others in order.
pub fn move_axis(x: &Tensor, from: usize, to: usize) -> Tensor {
    let mut order: Axes = (0..x.rank()).filter(|&a| a != from).collect();
    order.insert(to, from);
    permute_axes(x, &order)
}

/// New axes of size 1 at these places of the result.
pub fn expand_dims(x: &Tensor, places: &[i64]) -> Result<Tensor> {
    let rank = x.rank() + places.len();
    let places = shape::axes("expand_dims", places, rank)?;
    let mut old = x.shape().iter();
    let shape: Shape = (0..rank).map(|i| if places.contains(&i) { 1 } else { old.next().copied().unwrap_or(1) }).collect();
    Ok(reshape_to(x, &shape))
}

/// Without these axes of size 1 (`None`: without any).
pub fn squeeze(x: &Tensor, axes: Option<&[i64]>) -> Result<Tensor> {
    let drop: Axes = match axes {
        None => (0..x.rank()).filter(|&i| x.shape()[i] == 1).collect(),
        Some(given) => shape::axes("squeeze", given, x.rank())?,
    };
    if let Some(&axis) = drop.iter().find(|&&a| x.shape()[a] != 1) {
        return Err(Error::value(
            "squeeze",
            format!("axis {axis} of shape {:?} has size {}; expected 1", x.shape(), x.shape()[axis]),
        ));
    }
    let shape: Shape = (0..x.rank()).filter(|i| !drop.contains(i)).map(|i| x.shape()[i]).collect();
    Ok(reshape_to(x, &shape))
}

/// Stretched to a larger shape by NumPy's rules.
pub fn broadcast_to(x: &Tensor, to: &[usize]) -> Result<Tensor> {
    check_size("broadcast_to", to)?;
    let fits = |lead: usize| x.shape().iter().zip(&to[lead..]).all(|(&from, &to)| from == to || from == 1);
    if !to.len().checked_sub(x.rank()).is_some_and(fits) {
        let message =
            format!("shape {:?} does not broadcast to {to:?}: axes must be equal or 1, counted from the right", x.shape());
        return Err(Error::value("broadcast_to", message));
    }
    Ok(expand(x, to))
}

/// `broadcast_to` a shape that is known to fit.
pub fn expand(x: &Tensor, to: &[usize]) -> Tensor {
    if x.shape() == to { x.clone() } else { view(x, ViewOp::Expand, Shape::from_slice(to)) }
}

/// The axis as a whole.
pub const fn whole(size: usize) -> Range {
    (0, 1, size)
}

/// Every axis as a whole.
pub fn whole_ranges(shape: &[usize]) -> SmallVec<[Range; 4]> {
    shape.iter().map(|&d| whole(d)).collect()
}

/// Whether the ranges take everything, in order.
fn is_whole(ranges: &[Range], shape: &[usize]) -> bool {
    ranges.iter().zip(shape).all(|(&r, &d)| r == whole(d) || d == 1 && r.2 == 1)
}

/// Refuses ranges that leave the shape.
fn check_ranges(op: &'static str, ranges: &[Range], shape: &[usize]) -> Result<()> {
    if ranges.len() != shape.len() {
        return Err(Error::value(op, format!("got {} ranges for shape {shape:?}; expected {}", ranges.len(), shape.len())));
    }
    for (axis, (&(start, step, len), &size)) in ranges.iter().zip(shape).enumerate() {
        let last = (len as isize - 1).checked_mul(step).and_then(|d| d.checked_add(start));
        let inside = |i: isize| i >= 0 && (i as usize) < size;
        if step == 0 || len > 0 && !(inside(start) && last.is_some_and(inside)) {
            let message = format!("start {start}, step {step}, length {len} leaves axis {axis} of size {size}");
            return Err(Error::index(op, message));
        }
    }
    Ok(())
}

/// Every axis restricted to (start, step, length); steps may be negative.
pub fn slice(x: &Tensor, ranges: &[Range]) -> Result<Tensor> {
    check_ranges("slice", ranges, x.shape())?;
    if is_whole(ranges, x.shape()) {
        return Ok(x.clone());
    }
    if let Some(leaf) = slice_of_leaf(x, ranges) {
        return Ok(leaf);
    }
    let shape = ranges.iter().map(|r| r.2).collect();
    Ok(view(x, ViewOp::Slice(ranges.into()), shape))
}

/// A slice of a leaf that nobody may differentiate is a strided leaf at once: its offset then is no part of a plan's key.
fn slice_of_leaf(x: &Tensor, ranges: &[Range]) -> Option<Tensor> {
    if x.node.op != Op::Leaf || x.requires_grad() && scope(|s| !s.paused && !s.tapes.is_empty()) {
        return None;
    }
    let value = {
        let state = x.node.state.lock();
        if state.stage != Stage::Computed {
            return None;
        }
        state.values.get(x.index())?.clone()?
    };
    let layout = value.layout.slice(ranges);
    let leaf = Tensor::leaf(Value::new(value.storage, layout), x.dtype(), None);
    log_leaf(&leaf, std::slice::from_ref(x), || format!("{ranges:?}").into_bytes());
    Some(leaf)
}

/// One axis restricted to `start..end`.
pub fn narrow(x: &Tensor, axis: usize, start: usize, end: usize) -> Result<Tensor> {
    let mut ranges = whole_ranges(x.shape());
    ranges[axis] = (start as isize, 1, end.saturating_sub(start));
    slice(x, &ranges)
}

/// The axes in reverse (`None`: all).
pub fn flip(x: &Tensor, axes: Option<&[i64]>) -> Result<Tensor> {
    let all: Axes = (0..x.rank()).collect();
    let axes = axes.map_or(Ok(all), |given| shape::axes("flip", given, x.rank()))?;
    let mut ranges = whole_ranges(x.shape());
    for &a in axes.iter().filter(|&&a| x.shape()[a] > 1) {
        ranges[a] = (x.shape()[a] as isize - 1, -1, x.shape()[a]);
    }
    slice(x, &ranges)
}

/// x with the slice replaced by v, which broadcasts to it and takes x's dtype.
pub fn slice_assign(x: &Tensor, ranges: &[Range], v: &Tensor) -> Result<Tensor> {
    one_device("slice_assign", &[x, v])?;
    check_ranges("slice_assign", ranges, x.shape())?;
    let shape: Shape = ranges.iter().map(|r| r.2).collect();
    let v = broadcast_to(&cast(v, x.dtype()), &shape)?;
    if elems(&shape) == 0 {
        return Ok(x.clone());
    }
    if is_whole(ranges, x.shape()) {
        return Ok(v);
    }
    Ok(make(Op::SliceAssign(ranges.into()), smallvec![], smallvec![x.clone(), v], x.spec().clone()))
}

/// The rule of views and copies; nothing is saved.
pub struct View;

impl Rule for View {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        Some(Saved::default())
    }

    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let from = ctx.spec(0);
        grads(match ctx.op() {
            // Expand: the walk sums g down to the input's shape.
            Op::Copy | Op::View(ViewOp::Alias | ViewOp::Expand) => g.clone(),
            Op::View(ViewOp::Reshape) => reshape_to(g, &from.shape),
            Op::View(ViewOp::Permute(order)) => permute_axes(g, &inverse(order)),
            // A flip undoes itself; any other slice puts g into zeros.
            Op::View(ViewOp::Slice(ranges)) => {
                if ranges.iter().zip(&from.shape).all(|(r, &d)| r.2 == d) {
                    slice(g, ranges)?
                } else {
                    slice_assign(&super::create::zeros(&from.shape, g.dtype())?, ranges, g)?
                }
            }
            _ => return Err(Error::Internal("view rule")),
        })
    }
}

/// The rule of slice assignment; nothing is saved.
pub struct SliceAssign;

impl Rule for SliceAssign {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        Some(Saved::default())
    }

    /// For x: g with zeros in the slice. For v: the slice of g.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let Op::SliceAssign(ranges) = ctx.op() else { return Err(Error::Internal("slice_assign rule")) };
        let v = slice(g, ranges)?;
        let x = if ctx.needs(0) { Some(slice_assign(g, ranges, &zeros_like(&v))?) } else { None };
        Ok(smallvec![x, Some(v)])
    }
}
