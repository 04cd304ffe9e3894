//! NumPy's indexing, basic and advanced, as data: lowered to slices, reshapes, permutes, gathers and assignments.
use super::create::from_i64;
use super::index::{gather_by, index_put_by};
use super::unary::cast;
use super::view::{alias, broadcast_to, inverse, narrow, permute_axes, reshape_to, slice, slice_assign, whole};
use crate::backend::kind::Caller;
use crate::backend::op::Range;
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::shape::{Axes, Shape, broadcast};
use smallvec::SmallVec;

/// One item of an index expression.
#[derive(Clone, Debug)]
pub enum Index {
    /// start:stop:step
    Slice {
        /// First position.
        start: Option<i64>,
        /// Position after the last.
        stop: Option<i64>,
        /// Distance, 1 if absent.
        step: Option<i64>,
    },
    /// One position; the axis is dropped.
    Int(i64),
    /// A new axis of size 1.
    NewAxis,
    /// As many whole axes as are left.
    Ellipsis,
    /// An integer tensor, checked when it is computed.
    Array(Tensor),
    /// Integers from the host and their shape, checked at the call.
    Host(Vec<i64>, Shape),
    /// A boolean mask over as many axes as it has, evaluated to the positions where it is true, one int64 vector an axis.
    Mask {
        /// The mask's shape.
        shape: Shape,
        /// Positions, one tensor an axis of the mask.
        indices: Vec<Tensor>,
    },
    /// A boolean without axes: a mask over none, which is true at one point or at none.
    Truth(bool),
}

impl Index {
    /// How many axes it uses; an ellipsis takes what is left.
    fn axes(&self) -> usize {
        match self {
            Index::NewAxis | Index::Ellipsis | Index::Truth(_) => 0,
            Index::Mask { shape, .. } => shape.len(),
            _ => 1,
        }
    }

    fn is_array(&self) -> bool {
        matches!(self, Index::Array(_) | Index::Host(..) | Index::Mask { .. } | Index::Truth(_))
    }
}

/// An index expression for a shape: slice by `ranges`, reshape to `middle` (integer axes dropped, new ones added), then gather.
#[derive(Default)]
struct Lowered {
    ranges: SmallVec<[Range; 4]>,
    middle: Shape,
    /// Axes of `middle` that index tensors count along.
    axes: Axes,
    indices: Vec<Tensor>,
    /// Where the index tensors' shape stands in the result, among the axes of `middle` that are left.
    place: usize,
    /// Whether all booleans without axes are true, if there are any.
    truth: Option<bool>,
    /// The shape that the index tensors and those booleans broadcast to.
    points: Shape,
}

/// A slice as start, step and length, clipped as Python does.
fn range(op: &'static str, start: Option<i64>, stop: Option<i64>, step: Option<i64>, size: usize) -> Result<Range> {
    let (n, step) = (size as i128, i128::from(step.unwrap_or(1)));
    if step == 0 {
        return Err(Error::value(op, "the step of a slice is 0; expected another number"));
    }
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let clip = |at: i64| {
        let at = i128::from(at);
        (if at < 0 { at + n } else { at }).clamp(low, high)
    };
    let first = start.map_or(if step > 0 { low } else { high }, clip);
    let last = stop.map_or(if step > 0 { high } else { low }, clip);
    let span = if step > 0 { last - first } else { first - last };
    let len = if span > 0 { (span - 1) / step.abs() + 1 } else { 0 };
    Ok(match len {
        0 => (0, 1, 0),
        1 => (first as isize, 1, 1),
        _ => (first as isize, step as isize, len as usize),
    })
}

/// A position counted from the front, or an `IndexError`.
fn position(op: &'static str, at: i64, axis: usize, size: usize) -> Result<usize> {
    let n = size as i64;
    if (-n..n).contains(&at) {
        return Ok(if at < 0 { at + n } else { at } as usize);
    }
    Err(Error::index(op, format!("index {at} is out of range for axis {axis} of size {size}")))
}

impl Lowered {
    fn new(op: &'static str, shape: &[usize], items: &[Index]) -> Result<Lowered> {
        let used: usize = items.iter().map(Index::axes).sum();
        if used > shape.len() {
            let message = format!("too many indices: shape {shape:?} has {} axes, but {used} were indexed", shape.len());
            return Err(Error::index(op, message));
        }
        if items.iter().filter(|i| matches!(i, Index::Ellipsis)).count() > 1 {
            return Err(Error::index(op, "an index can have only one ellipsis"));
        }
        let has_arrays = items.iter().any(Index::is_array);
        let mut low = Lowered::default();
        // Advanced items (integers too, next to arrays) are adjacent until something else stands between two of them.
        let (mut first, mut is_split, mut is_apart) = (None, false, false);
        for item in items {
            if item.is_array() || has_arrays && matches!(item, Index::Int(_)) {
                is_split |= is_apart;
                first.get_or_insert(low.middle.len() - low.axes.len());
            } else {
                is_apart = first.is_some();
            }
            low.add(op, shape, item, shape.len() - used)?;
        }
        while low.ranges.len() < shape.len() {
            low.keep(whole(shape[low.ranges.len()]));
        }
        low.place = first.filter(|_| !is_split).unwrap_or(0);
        for index in &low.indices {
            low.points = broadcast(op, &low.points, index.shape())?;
        }
        if let Some(truth) = low.truth {
            low.points = broadcast(op, &low.points, &[usize::from(truth)])?;
            if let Some(index) = low.indices.first_mut() {
                *index = broadcast_to(index, &low.points)?;
            }
        }
        Ok(low)
    }

    fn keep(&mut self, range: Range) {
        self.ranges.push(range);
        self.middle.push(range.2);
    }

    fn add(&mut self, op: &'static str, shape: &[usize], item: &Index, left: usize) -> Result<()> {
        let axis = self.ranges.len();
        let size = shape.get(axis).copied().unwrap_or(0);
        match item {
            Index::Slice { start, stop, step } => self.keep(range(op, *start, *stop, *step, size)?),
            Index::Int(at) => self.ranges.push((position(op, *at, axis, size)? as isize, 1, 1)),
            Index::NewAxis => self.middle.push(1),
            Index::Ellipsis => shape[axis..axis + left].iter().for_each(|&d| self.keep(whole(d))),
            Index::Array(index) => {
                if !index.dtype().is_int() {
                    return Err(Error::index(op, format!("an index array is {}; expected integers or bool", index.dtype())));
                }
                self.advanced(size, index.clone());
            }
            Index::Host(values, of) => {
                let checked =
                    values.iter().map(|&v| position(op, v, axis, size).map(|p| p as i64)).collect::<Result<Vec<_>>>()?;
                self.advanced(size, from_i64(&checked, of)?);
            }
            Index::Mask { shape: mask, indices } => {
                if let Some(i) = (0..mask.len()).find(|&i| mask[i] != shape[axis + i]) {
                    let at = axis + i;
                    let message =
                        format!("boolean mask of shape {mask:?} has size {} where axis {at} has size {}", mask[i], shape[at]);
                    return Err(Error::index(op, message));
                }
                if indices.len() != mask.len() || indices.is_empty() {
                    return Err(Error::Internal("indexing: positions of a mask"));
                }
                for (i, index) in indices.iter().enumerate() {
                    self.advanced(mask[i], index.clone());
                }
            }
            Index::Truth(truth) => self.truth = Some(self.truth.unwrap_or(true) && *truth),
        }
        Ok(())
    }

    fn advanced(&mut self, size: usize, index: Tensor) {
        self.axes.push(self.middle.len());
        self.indices.push(index);
        self.keep(whole(size));
    }

    /// The indexed axes of `middle` first, then the others.
    fn order(&self) -> Axes {
        let rest = (0..self.middle.len()).filter(|a| !self.axes.contains(a));
        self.axes.iter().copied().chain(rest).collect()
    }

    /// From (points, rest) to the result's order: rest up to the place, points, rest.
    fn placed(&self) -> Axes {
        let p = self.points.len();
        let rank = p + self.middle.len() - self.axes.len();
        (p..p + self.place).chain(0..p).chain(p + self.place..rank).collect()
    }

    /// The shape of (points, rest).
    fn gathered(&self) -> Shape {
        let rest = self.order().into_iter().skip(self.axes.len()).map(|a| self.middle[a]);
        self.points.iter().copied().chain(rest).collect()
    }
}

/// `x[items]` by NumPy's rules.
pub fn getitem(x: &Tensor, items: &[Index]) -> Result<Tensor> {
    let low = Lowered::new("getitem", x.shape(), items)?;
    let y = reshape_to(&slice(x, &low.ranges)?, &low.middle);
    let points = match low.truth {
        None if low.indices.is_empty() => return Ok(y),
        Some(truth) if low.indices.is_empty() => {
            narrow(&reshape_to(&y, &[&[1], &low.middle[..]].concat()), 0, 0, usize::from(truth))?
        }
        _ => gather_by(Caller::Getitem, &permute_axes(&y, &low.order()), &low.indices)?,
    };
    Ok(permute_axes(&points, &low.placed()))
}

/// The value in the shape that is assigned to: it broadcasts, and may have more leading axes of size 1.
fn fitted(value: &Tensor, to: &[usize]) -> Result<Tensor> {
    let extra = value.rank().saturating_sub(to.len());
    let given = value.shape();
    let trimmed = if given[..extra].iter().all(|&d| d == 1) { reshape_to(value, &given[extra..]) } else { value.clone() };
    broadcast_to(&trimmed, to).map_err(|_| {
        Error::value("setitem", format!("a value of shape {given:?} does not broadcast to {to:?}, what is assigned to"))
    })
}

/// x after `x[items] = value`: the new version; x itself is unchanged. The value takes x's dtype.
pub fn setitem(x: &Tensor, items: &[Index], value: &Tensor) -> Result<Tensor> {
    let value = cast(value, x.dtype());
    let new = assigned(x, &Lowered::new("setitem", x.shape(), items)?, &value)?;
    // The new version is another tensor than the value it was given.
    Ok(if std::sync::Arc::ptr_eq(&new.node, &value.node) { alias(&new) } else { new })
}

fn assigned(x: &Tensor, low: &Lowered, value: &Tensor) -> Result<Tensor> {
    let window: Shape = low.ranges.iter().map(|r| r.2).collect();
    let (gathered, placed, order) = (low.gathered(), low.placed(), low.order());
    let result: Shape = placed.iter().map(|&a| gathered[a]).collect();
    let value = permute_axes(&fitted(value, &result)?, &inverse(&placed));
    if low.truth == Some(false) {
        return Ok(x.clone());
    }
    if low.indices.is_empty() {
        return slice_assign(x, &low.ranges, &reshape_to(&value, &window));
    }
    let y = reshape_to(&slice(x, &low.ranges)?, &low.middle);
    let put = index_put_by(Caller::Setitem, &permute_axes(&y, &order), &low.indices, &value)?;
    let back = reshape_to(&permute_axes(&put, &inverse(&order)), &window);
    slice_assign(x, &low.ranges, &back)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Index = Index::Slice { start: None, stop: None, step: None };

    fn result(shape: &[usize], items: &[Index]) -> Result<Vec<usize>> {
        let low = Lowered::new("getitem", shape, items)?;
        let gathered = low.gathered();
        Ok(low.placed().iter().map(|&a| gathered[a]).collect())
    }

    fn two() -> Index {
        Index::Host(vec![0, -1], Shape::from_slice(&[2]))
    }

    #[test]
    fn slices_are_clipped_as_in_python() {
        let r = |start, stop, step| range("getitem", start, stop, step, 5).unwrap();
        assert_eq!(r(None, None, None), (0, 1, 5));
        assert_eq!(r(None, None, Some(-2)), (4, -2, 3));
        assert_eq!(r(Some(-3), Some(99), Some(2)), (2, 2, 2));
        assert_eq!(r(Some(9), None, None), (0, 1, 0));
        assert_eq!(r(Some(9), Some(-9), Some(-1)), (4, -1, 5));
        assert_eq!(r(Some(1), None, Some(i64::MAX)), (1, 1, 1));
        assert!(range("getitem", None, None, Some(0), 5).is_err());
    }

    #[test]
    fn index_arrays_stand_where_numpy_puts_them() {
        let s = [5, 3, 4, 6];
        assert_eq!(result(&s, &[ALL, two(), two()]).unwrap(), [5, 2, 6]);
        assert_eq!(result(&s, &[ALL, two(), ALL, two()]).unwrap(), [2, 5, 4]);
        assert_eq!(result(&s, &[ALL, Index::Int(0), ALL, two()]).unwrap(), [2, 5, 4]);
        assert_eq!(result(&s, &[ALL, Index::Int(0), two()]).unwrap(), [5, 2, 6]);
        assert_eq!(result(&s, &[Index::Int(0), Index::Ellipsis, Index::NewAxis]).unwrap(), [3, 4, 6, 1]);
        assert_eq!(result(&s, &[Index::NewAxis, Index::Ellipsis, two()]).unwrap(), [1, 5, 3, 4, 2]);
        // An ellipsis of no axes separates as well.
        assert_eq!(result(&s, &[ALL, two(), Index::Ellipsis, two(), ALL]).unwrap(), [2, 5, 6]);
        assert_eq!(result(&s, &[ALL, Index::Truth(true), two()]).unwrap(), [5, 2, 4, 6]);
        assert_eq!(result(&s, &[Index::NewAxis, Index::Truth(false), Index::Int(0)]).unwrap(), [1, 0, 3, 4, 6]);
    }

    #[test]
    fn bad_indices_name_the_axis() {
        let text = |items: &[Index]| result(&[3, 4], items).unwrap_err().to_string();
        assert_eq!(text(&[Index::Int(5)]), "getitem: index 5 is out of range for axis 0 of size 3");
        let far = Index::Host(vec![0, -5], Shape::from_slice(&[2]));
        assert_eq!(text(&[ALL, far]), "getitem: index -5 is out of range for axis 1 of size 4");
        assert_eq!(text(&[ALL, ALL, ALL]), "getitem: too many indices: shape [3, 4] has 2 axes, but 3 were indexed");
    }
}
