//! Joining, splitting, repeating, rolling and padding: shape rules; all but concat are made of views, concat and gather.
use super::create::{full, listed};
use super::index::take;
use super::rule::{Ctx, Grads, Rule, make, only};
use super::transfer::one_device;
use super::unary::cast;
use super::view::{broadcast_to, expand, narrow, reshape_to, slice_assign};
use crate::backend::op::{Op, Range};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Saved, Spec, Tensor};
use crate::shape::{self, Shape, check_size};
use smallvec::{SmallVec, smallvec};

/// Inputs of one concat node: their masks are 32 bits wide.
const MOST_INPUTS: usize = 32;

/// The dtype that all of them promote to.
fn promoted(op: &'static str, list: &[Tensor]) -> Result<DType> {
    one_device(op, &list.iter().collect::<Vec<_>>())?;
    let dtypes = list.iter().map(Tensor::dtype);
    dtypes.reduce(DType::promote).ok_or_else(|| Error::value(op, "got an empty list; expected at least one tensor"))
}

/// One after the other along the axis; dtypes promote, the other axes must agree.
pub fn concat(list: &[Tensor], axis: i64) -> Result<Tensor> {
    let dtype = promoted("concat", list)?;
    let first = list[0].shape();
    if first.is_empty() {
        return Err(Error::value("concat", "got tensors without axes; expected at least one axis (use stack)"));
    }
    let axis = shape::axis("concat", axis, first.len())?;
    for (i, t) in list.iter().enumerate() {
        let same = t.rank() == first.len() && (0..first.len()).all(|a| a == axis || t.shape()[a] == first[a]);
        if !same {
            let message =
                format!("tensor {i} has shape {:?}, the first {first:?}: all axes but axis {axis} must agree", t.shape());
            return Err(Error::value("concat", message));
        }
    }
    let list: Vec<Tensor> = list.iter().map(|t| cast(t, dtype)).collect();
    joined(list, axis, dtype)
}

/// `concat` of checked tensors; long lists are joined in groups.
fn joined(list: Vec<Tensor>, axis: usize, dtype: DType) -> Result<Tensor> {
    if list.len() > MOST_INPUTS {
        let groups = list.chunks(MOST_INPUTS).map(|part| joined(part.to_vec(), axis, dtype)).collect::<Result<Vec<_>>>()?;
        return joined(groups, axis, dtype);
    }
    if let [one] = &list[..] {
        return Ok(one.clone());
    }
    let mut shape = Shape::from_slice(list[0].shape());
    shape[axis] = list.iter().fold(0, |n: usize, t| n.saturating_add(t.shape()[axis]));
    check_size("concat", &shape)?;
    Ok(make(Op::Concat(axis), smallvec![], list.into(), Spec { shape, dtype }))
}

/// The rule of `concat`; nothing is saved.
pub struct Concat;

impl Rule for Concat {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        Some(Saved::default())
    }

    /// Each input's part of g.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let Op::Concat(axis) = ctx.op() else { return Err(Error::Internal("concat rule")) };
        let mut start = 0;
        let parts = (0..ctx.inputs.len()).map(|i| {
            let from = start;
            start += ctx.spec(i).shape[*axis];
            if ctx.needs(i) { narrow(g, *axis, from, start).map(Some) } else { Ok(None) }
        });
        parts.collect()
    }
}

/// Tensors of one shape along a new axis.
pub fn stack(list: &[Tensor], axis: i64) -> Result<Tensor> {
    promoted("stack", list)?;
    let first = list[0].shape();
    let axis = shape::axis("stack", axis, first.len() + 1)?;
    if let Some((i, t)) = list.iter().enumerate().find(|(_, t)| t.shape() != first) {
        return Err(Error::value("stack", format!("tensor {i} has shape {:?}, the first {first:?}: all must agree", t.shape())));
    }
    let mut shape = Shape::from_slice(first);
    shape.insert(axis, 1);
    let list: Vec<Tensor> = list.iter().map(|t| reshape_to(t, &shape)).collect();
    concat(&list, axis as i64)
}

/// Where `split` cuts.
#[derive(Clone, Debug)]
pub enum Cuts {
    /// So many parts of equal size.
    Sections(usize),
    /// Before these positions; as in a slice, negative ones count from the end and those outside are clipped.
    Indices(Vec<i64>),
}

/// Parts along the axis.
pub fn split(x: &Tensor, cuts: &Cuts, axis: i64) -> Result<Vec<Tensor>> {
    let axis = shape::axis("split", axis, x.rank())?;
    let size = x.shape()[axis];
    let mut bounds = vec![0];
    match cuts {
        Cuts::Sections(n) => {
            if *n == 0 || !size.is_multiple_of(*n) {
                return Err(Error::value("split", format!("axis {axis} of size {size} does not divide into {n} equal parts")));
            }
            // An empty axis has any number of parts.
            if bounds.try_reserve_exact(*n).is_err() {
                return Err(Error::Memory { op: "split", message: format!("no memory for {n} parts") });
            }
            bounds.extend((1..=*n).map(|i| i * (size / n)));
        }
        Cuts::Indices(list) => {
            let n = size as i64;
            bounds.extend(list.iter().map(|&i| if i < 0 { (i + n).max(0) } else { i.min(n) } as usize));
            bounds.push(size);
        }
    }
    bounds.windows(2).map(|w| narrow(x, axis, w[0].min(size), w[1].max(w[0]))).collect()
}

/// Elements moved along the axes, those that leave at the end coming back at the start (`None`: in row-major order).
pub fn roll(x: &Tensor, shifts: &[i64], axes: Option<&[i64]>) -> Result<Tensor> {
    let Some(axes) = axes else {
        let n = (x.elems() as i64).max(1);
        let total = shifts.iter().fold(0, |sum, s| (sum + s.rem_euclid(n)) % n);
        let flat = roll(&reshape_to(x, &[x.elems()]), &[total], Some(&[0]))?;
        return Ok(reshape_to(&flat, x.shape()));
    };
    if shifts.len() != axes.len() && shifts.len() != 1 {
        return Err(Error::value(
            "roll",
            format!("got {} shifts for {} axes; expected as many, or one", shifts.len(), axes.len()),
        ));
    }
    let mut y = x.clone();
    for (i, &a) in axes.iter().enumerate() {
        let axis = shape::axis("roll", a, x.rank())?;
        let n = x.shape()[axis];
        let shift = shifts[if shifts.len() == 1 { 0 } else { i }];
        let by = if n == 0 { 0 } else { shift.rem_euclid(n as i64) as usize };
        if by != 0 {
            y = concat(&[narrow(&y, axis, n - by, n)?, narrow(&y, axis, 0, n - by)?], axis as i64)?;
        }
    }
    Ok(y)
}

/// The whole repeated so many times along each axis; missing axes count from the right.
pub fn tile(x: &Tensor, reps: &[usize]) -> Result<Tensor> {
    let rank = x.rank().max(reps.len());
    let size = |i: usize| (i + x.rank()).checked_sub(rank).map_or(1, |a| x.shape()[a]);
    let rep = |i: usize| (i + reps.len()).checked_sub(rank).map_or(1, |r| reps[r]);
    let (mut before, mut wide, mut shape) = (Shape::new(), Shape::new(), Shape::new());
    for i in 0..rank {
        if rep(i) != 1 {
            before.push(1);
            wide.push(rep(i));
        }
        before.push(size(i));
        wide.push(size(i));
        shape.push(size(i).saturating_mul(rep(i)));
    }
    check_size("tile", &shape)?;
    check_size("tile", &wide)?;
    Ok(reshape_to(&expand(&reshape_to(x, &before), &wide), &shape))
}

/// How often `repeat` repeats.
#[derive(Clone, Debug)]
pub enum Repeats {
    /// Every element so often.
    Each(usize),
    /// Every position along the axis as often as the list says.
    List(Vec<usize>),
}

/// Each element repeated along the axis (`None`: of all elements in row-major order).
pub fn repeat(x: &Tensor, repeats: &Repeats, axis: Option<i64>) -> Result<Tensor> {
    let Some(axis) = axis else { return repeat(&reshape_to(x, &[x.elems()]), repeats, Some(0)) };
    let axis = shape::axis("repeat", axis, x.rank())?;
    let size = x.shape()[axis];
    match repeats {
        Repeats::Each(n) => repeat_each(x, *n, axis),
        Repeats::List(list) if list.len() == 1 => repeat_each(x, list[0], axis),
        Repeats::List(list) if list.len() == size => {
            let total = list.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)).unwrap_or(usize::MAX);
            check_size("repeat", &[total])?;
            let index = list.iter().enumerate().flat_map(|(i, &n)| std::iter::repeat_n(i as i64, n));
            take(x, &listed("repeat", total, index)?, Some(axis as i64))
        }
        Repeats::List(list) => Err(Error::value(
            "repeat",
            format!("got {} counts for axis {axis} of size {size}; expected as many, or one", list.len()),
        )),
    }
}

fn repeat_each(x: &Tensor, n: usize, axis: usize) -> Result<Tensor> {
    let mut wide = Shape::from_slice(x.shape());
    wide[axis] = wide[axis].saturating_mul(n);
    let shape = wide.clone();
    check_size("repeat", &shape)?;
    wide[axis] = x.shape()[axis];
    wide.insert(axis + 1, n);
    let mut before = wide.clone();
    before[axis + 1] = 1;
    Ok(reshape_to(&expand(&reshape_to(x, &before), &wide), &shape))
}

/// What `pad` fills with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum PadMode {
    /// One number.
    Constant(Scalar),
    /// The element at the edge.
    Edge,
    /// Mirrored at the edge element, which is not repeated.
    Reflect,
    /// Mirrored at the edge, which is repeated.
    Symmetric,
    /// The other end.
    Wrap,
}

/// So many more elements before and after along each axis, one pair an axis.
pub fn pad(x: &Tensor, pairs: &[(usize, usize)], mode: PadMode) -> Result<Tensor> {
    if pairs.len() != x.rank() {
        return Err(Error::value("pad", format!("got {} pairs for shape {:?}; expected {}", pairs.len(), x.shape(), x.rank())));
    }
    if pairs.iter().all(|&p| p == (0, 0)) {
        return Ok(x.clone());
    }
    let sizes = x.shape().iter().zip(pairs);
    let shape: Shape = sizes.clone().map(|(&n, p)| n.saturating_add(p.0).saturating_add(p.1)).collect();
    check_size("pad", &shape)?;
    if let PadMode::Constant(value) = mode {
        let inner: SmallVec<[Range; 4]> = sizes.map(|(&n, p)| (p.0 as isize, 1, n)).collect();
        return slice_assign(&full("pad", &shape, value, x.dtype())?, &inner, x);
    }
    let mut y = x.clone();
    for (axis, &(before, after)) in pairs.iter().enumerate() {
        let n = x.shape()[axis];
        if (before, after) == (0, 0) {
            continue;
        }
        if n == 0 {
            return Err(Error::value(
                "pad",
                format!("axis {axis} of shape {:?} is empty; only a constant can extend it", x.shape()),
            ));
        }
        let index = (0..shape[axis]).map(|i| source(i as i64 - before as i64, n as i64, mode));
        y = take(&y, &listed("pad", shape[axis], index)?, Some(axis as i64))?;
    }
    Ok(y)
}

/// Which of n elements stands at position i of the padded axis, counted from the first original one.
fn source(i: i64, n: i64, mode: PadMode) -> i64 {
    match mode {
        PadMode::Constant(_) | PadMode::Edge => i.clamp(0, n - 1),
        PadMode::Wrap => i.rem_euclid(n),
        PadMode::Symmetric => {
            let at = i.rem_euclid(2 * n);
            if at < n { at } else { 2 * n - 1 - at }
        }
        PadMode::Reflect => {
            let period = (2 * (n - 1)).max(1);
            let at = i.rem_euclid(period);
            if at < n { at } else { period - at }
        }
    }
}

/// All of them stretched to the shape they broadcast to.
pub fn broadcast_all(list: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut shape = Shape::new();
    for t in list {
        shape = shape::broadcast("broadcast", &shape, t.shape())?;
    }
    list.iter().map(|t| broadcast_to(t, &shape)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(n: i64, before: i64, after: i64, mode: PadMode) -> Vec<i64> {
        (-before..n + after).map(|i| source(i, n, mode)).collect()
    }

    #[test]
    fn padding_follows_numpy() {
        assert_eq!(padded(3, 2, 2, PadMode::Edge), [0, 0, 0, 1, 2, 2, 2]);
        assert_eq!(padded(3, 4, 4, PadMode::Reflect), [0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2]);
        assert_eq!(padded(3, 4, 4, PadMode::Symmetric), [2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0]);
        assert_eq!(padded(3, 2, 2, PadMode::Wrap), [1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(padded(1, 2, 1, PadMode::Reflect), [0, 0, 0, 0]);
    }
}
