//! Reading and writing at index tensors: shape rules, saved sets and gradients. Repeated indices add their gradients up.
use super::binary::{binary, host_scalar, select};
use super::create::{full, ones, positions, zeros};
use super::rule::{Ctx, Grads, Rule, make, only};
use super::transfer::one_device;
use super::unary::cast;
use super::view::{broadcast_to, move_axis, permute_axes, reshape_to};
use crate::backend::kind::{BinaryKind::Eq, Caller};
use crate::backend::op::{Indexed, Op};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Saved, Spec, Tensor};
use crate::shape::{self, Axes, Shape, broadcast, check_size, elems};
use smallvec::{SmallVec, smallvec};

type Inputs = SmallVec<[Tensor; 2]>;

fn check_integer(op: &'static str, index: &Tensor) -> Result<()> {
    if index.dtype().is_int() {
        return Ok(());
    }
    Err(Error::index(op, format!("indices are {}; expected integers", index.dtype())))
}

/// Most index tensors of one op: masks over its inputs have 32 bits, and x and the values are inputs too.
const MOST_INDICES: usize = 30;

/// Index tensors broadcast to one shape, for at most as many axes as x has.
fn common(op: &'static str, x: &Tensor, indices: &[Tensor]) -> Result<(Vec<Tensor>, Shape)> {
    one_device(op, &std::iter::once(x).chain(indices).collect::<Vec<_>>())?;
    let most = x.rank().min(MOST_INDICES);
    if indices.is_empty() || indices.len() > most {
        let message = format!("got {} index tensors for shape {:?}; expected 1 to {most}", indices.len(), x.shape());
        return Err(Error::index(op, message));
    }
    let mut shape = Shape::new();
    for index in indices {
        check_integer(op, index)?;
        shape = broadcast(op, &shape, index.shape())?;
    }
    let same = indices.iter().map(|i| broadcast_to(i, &shape)).collect::<Result<Vec<Tensor>>>()?;
    Ok((same, shape))
}

fn joined(x: &Tensor, indices: Vec<Tensor>, v: Option<Tensor>) -> Inputs {
    std::iter::once(x.clone()).chain(indices).chain(v).collect()
}

/// x at the index tensors, which count along its leading axes and broadcast to a shape I: the result is I followed by the other axes.
pub fn gather(x: &Tensor, indices: &[Tensor]) -> Result<Tensor> {
    gather_by(Caller::Own, x, indices)
}

/// `gather` of the indices of a public function.
pub fn gather_by(by: Caller, x: &Tensor, indices: &[Tensor]) -> Result<Tensor> {
    let op = by.name_or("gather");
    let (indices, mut shape) = common(op, x, indices)?;
    let n = indices.len();
    shape.extend_from_slice(&x.shape()[n..]);
    check_size(op, &shape)?;
    Ok(make(Op::Gather(Indexed { n, by }), smallvec![], joined(x, indices, None), Spec { shape, dtype: x.dtype() }))
}

fn write(op: &'static str, make_op: fn(Indexed) -> Op, by: Caller, x: &Tensor, indices: &[Tensor], v: &Tensor) -> Result<Tensor> {
    let op = by.name_or(op);
    one_device(op, &[x, v])?;
    let (indices, mut shape) = common(op, x, indices)?;
    let n = indices.len();
    shape.extend_from_slice(&x.shape()[n..]);
    let v = broadcast_to(&cast(v, x.dtype()), &shape)?;
    Ok(make(make_op(Indexed { n, by }), smallvec![], joined(x, indices, Some(v)), x.spec().clone()))
}

/// x with v added at the indices; repeated ones add. v broadcasts to what `gather` would give and takes x's dtype.
pub fn scatter_add(x: &Tensor, indices: &[Tensor], v: &Tensor) -> Result<Tensor> {
    scatter_add_by(Caller::Own, x, indices, v)
}

/// `scatter_add` at the indices of a public function.
pub fn scatter_add_by(by: Caller, x: &Tensor, indices: &[Tensor], v: &Tensor) -> Result<Tensor> {
    write("scatter_add", Op::ScatterAdd, by, x, indices, v)
}

/// x with v put at the indices; the last of repeated ones wins. v broadcasts to what `gather` would give and takes x's dtype.
pub fn index_put(x: &Tensor, indices: &[Tensor], v: &Tensor) -> Result<Tensor> {
    index_put_by(Caller::Own, x, indices, v)
}

/// `index_put` at the indices of a public function.
pub fn index_put_by(by: Caller, x: &Tensor, indices: &[Tensor], v: &Tensor) -> Result<Tensor> {
    write("index_put", Op::IndexPut, by, x, indices, v)
}

/// The index broadcast against x on all axes but one, and x likewise.
fn along(op: &'static str, x: &Tensor, index: &Tensor, axis: i64) -> Result<(Tensor, Tensor, usize)> {
    one_device(op, &[x, index])?;
    check_integer(op, index)?;
    let axis = shape::axis(op, axis, x.rank())?;
    if index.rank() != x.rank() {
        let message = format!("indices of shape {:?} for shape {:?}; expected the same number of axes", index.shape(), x.shape());
        return Err(Error::value(op, message));
    }
    let without = |t: &Tensor| -> Shape { t.shape().iter().enumerate().map(|(i, &d)| if i == axis { 1 } else { d }).collect() };
    let common = broadcast(op, &without(x), &without(index))?;
    let stretch = |t: &Tensor| {
        let mut to = common.clone();
        to[axis] = t.shape()[axis];
        broadcast_to(t, &to)
    };
    Ok((stretch(x)?, stretch(index)?, axis))
}

/// x at positions along the axis, for each place of the other axes (which broadcast).
pub fn take_along_axis(by: Caller, x: &Tensor, index: &Tensor, axis: i64) -> Result<Tensor> {
    let (x, index, n) = along(by.name_or("take_along_axis"), x, index, axis)?;
    let spec = Spec { shape: index.spec().shape.clone(), dtype: x.dtype() };
    Ok(make(Op::TakeAlong(Indexed { n, by }), smallvec![], smallvec![x, index], spec))
}

/// x with v added at positions along the axis; repeated ones add. v broadcasts to the index's shape and takes x's dtype.
pub fn scatter_along(by: Caller, x: &Tensor, index: &Tensor, v: &Tensor, axis: i64) -> Result<Tensor> {
    let op = by.name_or("scatter_along_axis");
    one_device(op, &[x, v])?;
    let (wide, index, n) = along(op, x, index, axis)?;
    if wide.shape() != x.shape() {
        let message = format!("indices of shape {:?} do not broadcast to the other axes of {:?}", index.shape(), x.shape());
        return Err(Error::value(op, message));
    }
    let v = broadcast_to(&cast(v, x.dtype()), index.shape())?;
    Ok(make(Op::ScatterAlong(Indexed { n, by }), smallvec![], smallvec![x.clone(), index, v], x.spec().clone()))
}

/// Slices of x at an index along an axis (`None`: elements in row-major order); the index's axes stand where the axis was.
pub fn take(x: &Tensor, index: &Tensor, axis: Option<i64>) -> Result<Tensor> {
    let gather = |x: &Tensor, indices: &[Tensor]| gather_by(Caller::Take, x, indices);
    let Some(axis) = axis else { return gather(&reshape_to(x, &[x.elems()]), std::slice::from_ref(index)) };
    let axis = shape::axis("take", axis, x.rank())?;
    let front = gather(&move_axis(x, axis, 0), std::slice::from_ref(index))?;
    let k = index.rank();
    // From I, before, after to before, I, after.
    let order: Axes = (k..k + axis).chain(0..k).chain(k + axis..front.rank()).collect();
    Ok(permute_axes(&front, &order))
}

/// A new last axis with 1 at the index and 0 elsewhere; an index outside is an error when it is computed.
pub fn one_hot(index: &Tensor, classes: usize, dtype: DType) -> Result<Tensor> {
    check_integer("one_hot", index)?;
    let n = index.elems();
    check_size("one_hot", &[n, classes])?;
    let mut shape = Shape::from_slice(index.shape());
    shape.push(classes);
    let places = [positions(n), reshape_to(index, &[n])];
    let rows = index_put_by(Caller::OneHot, &zeros(&[n, classes], dtype)?, &places, &ones(&[], dtype)?)?;
    Ok(reshape_to(&rows, &shape))
}

/// Saves inputs 1 to k, the index tensors.
const fn indices_only(k: usize) -> Option<Saved> {
    Some(Saved { inputs: ((1u32 << k) - 1) << 1, outputs: 0 })
}

fn saved_indices(ctx: &Ctx, k: usize) -> Result<Vec<Tensor>> {
    (1..=k).map(|i| ctx.input(i).cloned()).collect()
}

/// The gradients of x and v (the last input), with none for the indices between them.
fn around(k: usize, x: Option<Tensor>, v: Option<Tensor>) -> Grads {
    std::iter::once(x).chain((0..k).map(|_| None)).chain([v]).collect()
}

/// The rule of `gather`.
pub struct Gather;

impl Rule for Gather {
    fn saves(&self, op: &Op, _needs: u32) -> Option<Saved> {
        if let Op::Gather(at) = op { indices_only(at.n) } else { None }
    }

    /// g added into zeros at the indices.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let Op::Gather(Indexed { n, by }) = ctx.op() else { return Err(Error::Internal("gather rule")) };
        let x = scatter_add_by(*by, &zeros(&ctx.spec(0).shape, g.dtype())?, &saved_indices(ctx, *n)?, g)?;
        Ok(std::iter::once(Some(x)).chain((0..*n).map(|_| None)).collect())
    }
}

/// The rule of `scatter_add`.
pub struct ScatterAdd;

impl Rule for ScatterAdd {
    fn saves(&self, op: &Op, needs: u32) -> Option<Saved> {
        let Op::ScatterAdd(Indexed { n, .. }) = op else { return None };
        if needs >> (n + 1) & 1 == 1 { indices_only(*n) } else { Some(Saved::default()) }
    }

    /// g for x; g at the indices for v.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let Op::ScatterAdd(Indexed { n, by }) = ctx.op() else { return Err(Error::Internal("scatter_add rule")) };
        let v = if ctx.needs(n + 1) { Some(gather_by(*by, g, &saved_indices(ctx, *n)?)?) } else { None };
        Ok(around(*n, Some(g.clone()), v))
    }
}

/// The rule of `index_put`.
pub struct IndexPut;

impl Rule for IndexPut {
    fn saves(&self, op: &Op, _needs: u32) -> Option<Saved> {
        if let Op::IndexPut(at) = op { indices_only(at.n) } else { None }
    }

    /// g with zeros at the indices for x; g at the indices for v, but zero for values that a later one with the same index replaced.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let Op::IndexPut(Indexed { n, by }) = ctx.op() else { return Err(Error::Internal("index_put rule")) };
        let (k, by) = (*n, *by);
        let indices = saved_indices(ctx, k)?;
        let x = if ctx.needs(0) { Some(index_put_by(by, g, &indices, &host_scalar(Scalar::Int(0), g.dtype()))?) } else { None };
        let v = if ctx.needs(k + 1) { Some(winners(by, g, &indices)?) } else { None };
        Ok(around(k, x, v))
    }
}

/// g at the indices where a value was the last one put there, else 0. Each position puts its own number into a board; those that read
/// theirs back are the last.
fn winners(by: Caller, g: &Tensor, indices: &[Tensor]) -> Result<Tensor> {
    let taken = gather_by(by, g, indices)?;
    let (k, shape) = (indices.len(), indices[0].shape());
    if elems(shape) < 2 {
        return Ok(taken);
    }
    let own = reshape_to(&positions(elems(shape)), shape);
    let board = index_put_by(by, &full("index_put", &g.shape()[..k], Scalar::Int(-1), DType::I64)?, indices, &own)?;
    let is_last = binary(Eq, &gather_by(by, &board, indices)?, &own)?;
    let mut rows = Shape::from_slice(shape);
    rows.resize(taken.rank(), 1);
    select(&reshape_to(&is_last, &rows), &taken, &host_scalar(Scalar::Int(0), g.dtype()))
}

/// The rule of `take_along_axis`.
pub struct TakeAlong;

impl Rule for TakeAlong {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        indices_only(1)
    }

    /// g added into zeros at the positions.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let Op::TakeAlong(Indexed { n, by }) = ctx.op() else { return Err(Error::Internal("take_along rule")) };
        let zero = zeros(&ctx.spec(0).shape, g.dtype())?;
        Ok(smallvec![Some(scatter_along(*by, &zero, ctx.input(1)?, g, *n as i64)?), None])
    }
}

/// The rule of `scatter_along`.
pub struct ScatterAlong;

impl Rule for ScatterAlong {
    fn saves(&self, _op: &Op, needs: u32) -> Option<Saved> {
        if needs >> 2 & 1 == 1 { indices_only(1) } else { Some(Saved::default()) }
    }

    /// g for x; g at the positions for v.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let Op::ScatterAlong(Indexed { n, by }) = ctx.op() else { return Err(Error::Internal("scatter_along rule")) };
        let v = if ctx.needs(2) { Some(take_along_axis(*by, g, ctx.input(1)?, *n as i64)?) } else { None };
        Ok(smallvec![Some(g.clone()), None, v])
    }
}
