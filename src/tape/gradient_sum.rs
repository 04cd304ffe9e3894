//! The gradient of one tensor while a walk is under way: a sum, and gradients of its slices that wait for each other.
use crate::backend::op::{Op, Range};
use crate::error::Result;
use crate::graph::{Spec, Tensor};
use crate::ops::binary::add;
use crate::ops::create::zeros;
use crate::ops::movement::concat;
use crate::ops::view::{slice, slice_assign};
use smallvec::SmallVec;

/// Slices that wait at most: they hold memory of their own.
const MAX_PIECES: usize = 32;

/// A slice's gradient: where it belongs, and its values.
type Piece = (Box<[Range]>, Tensor);

/// What has arrived so far. It is held like what Python holds: a user's rule may evaluate while it waits.
#[derive(Default)]
pub(super) struct GradientSum {
    sum: Option<Tensor>,
    pieces: Vec<Piece>,
    whole: Option<Spec>,
}

impl Drop for GradientSum {
    fn drop(&mut self) {
        self.tensors().for_each(Tensor::unhold);
    }
}

impl GradientSum {
    /// Adds a gradient of the tensor's shape and dtype.
    pub fn add(&mut self, g: Tensor) -> Result<()> {
        let Some(piece) = piece_of(&g) else { return self.put(g) };
        piece.1.hold();
        self.pieces.push(piece);
        self.whole.get_or_insert_with(|| g.spec().clone());
        if self.pieces.len() > MAX_PIECES { self.settle() } else { Ok(()) }
    }

    /// The sum of everything, which the caller unholds; `None` if nothing arrived.
    pub fn total(mut self) -> Result<Option<Tensor>> {
        self.settle()?;
        Ok(self.sum.take())
    }

    /// What is held.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.sum.iter().chain(self.pieces.iter().map(|(_, values)| values))
    }

    fn put(&mut self, g: Tensor) -> Result<()> {
        let new = match &self.sum {
            Some(old) => add(old, &g)?,
            None => g,
        };
        self.replace(new);
        Ok(())
    }

    fn replace(&mut self, new: Tensor) {
        new.hold();
        if let Some(old) = self.sum.replace(new) {
            old.unhold();
        }
    }

    /// Puts the waiting slices into the sum: side by side where together they are the whole tensor, else one after the other, each touching
    /// its slice only.
    fn settle(&mut self) -> Result<()> {
        let pieces = std::mem::take(&mut self.pieces);
        let done = self.join(&pieces);
        pieces.iter().for_each(|(_, values)| values.unhold());
        done
    }

    fn join(&mut self, pieces: &[Piece]) -> Result<()> {
        let Some(whole) = self.whole.clone().filter(|_| !pieces.is_empty()) else { return Ok(()) };
        if let Some((axis, order)) = tiles(pieces, &whole.shape) {
            let parts: SmallVec<[Tensor; 4]> = order.iter().map(|&i| pieces[i].1.clone()).collect();
            return self.put(concat(&parts, axis as i64)?);
        }
        for (ranges, values) in pieces {
            let new = match &self.sum {
                None => slice_assign(&zeros(&whole.shape, whole.dtype)?, ranges, values)?,
                Some(sum) => slice_assign(sum, ranges, &add(&slice(sum, ranges)?, values)?)?,
            };
            self.replace(new);
        }
        Ok(())
    }
}

/// Whether `g` is a slice's gradient, as its rule makes it: values put into zeros.
fn piece_of(g: &Tensor) -> Option<Piece> {
    let Op::SliceAssign(ranges) = &g.node.op else { return None };
    let state = g.node.state.lock();
    let [base, values] = &state.inputs[..] else { return None };
    (base.node.op == Op::Const && base.node.args[..] == [0]).then(|| (ranges.clone(), values.clone()))
}

/// The axis along which the pieces lie side by side and fill the shape, and their order.
fn tiles(pieces: &[Piece], shape: &[usize]) -> Option<(usize, SmallVec<[usize; 8]>)> {
    let cut = |ranges: &[Range]| (0..shape.len()).find(|&a| ranges[a] != (0, 1, shape[a]));
    let axis = cut(&pieces[0].0)?;
    let is_cut_there =
        |ranges: &[Range]| (0..shape.len()).all(|a| if a == axis { ranges[a].1 == 1 } else { ranges[a] == (0, 1, shape[a]) });
    if !pieces.iter().all(|(ranges, _)| is_cut_there(ranges)) {
        return None;
    }
    let mut order: SmallVec<[usize; 8]> = (0..pieces.len()).collect();
    order.sort_by_key(|&i| pieces[i].0[axis].0);
    let mut end = 0;
    for &i in &order {
        let (start, _, len) = pieces[i].0[axis];
        if start != end as isize {
            return None;
        }
        end += len;
    }
    (end == shape[axis]).then_some((axis, order))
}
