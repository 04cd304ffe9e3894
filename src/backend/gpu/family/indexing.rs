//! `Gather` and `TakeAlong`: index tensors become offsets, which rows or elements are then read at.
use super::super::catalog::indexing;
use super::super::launch::{Flat, Slot, Steps, Word, spread};
use super::{count, fixed};
use crate::backend::cpu::collapse;
use crate::backend::kind::Caller;
use crate::backend::op;
use crate::error::{Error, Result};
use crate::shape::elems;

/// Elements that a thread of `gather` reads.
const ITEMS: usize = 4;

/// An indexed axis.
#[derive(Clone, Copy)]
pub(super) struct Indexed {
    /// Its size.
    pub size: usize,
    /// What a step along it adds to an offset.
    pub step: usize,
}

/// The other axes that a position of an index tensor along an axis stands for: those before the axis and those behind it.
#[derive(Clone, Copy)]
pub(super) struct Around {
    /// Positions for each of the axes before.
    pub block: usize,
    /// What one of those adds to an offset.
    pub block_step: usize,
    /// Positions of the axes behind.
    pub inner: usize,
}

/// Adds the passes that turn the index tensors among the inputs from `first` on into offsets, one a position.
pub(super) fn offsets(
    (op, by): (&'static str, Caller),
    first: usize,
    axes: &[Indexed],
    around: Around,
    places: usize,
    steps: &mut Steps,
) -> Result<Slot> {
    let slot = steps.scratch(places * 4);
    let groups = spread(places, 256, steps.caps)?;
    if axes.is_empty() {
        super::generate::fill(op, slot, places, Word::Fixed(0), Word::Fixed(0), steps)?;
    }
    for (k, axis) in axes.iter().enumerate() {
        if axis.size > i32::MAX as usize {
            return Err(Error::value(
                op,
                format!("an indexed axis of {} elements is longer than 2^31 - 1: split the tensor", axis.size),
            ));
        }
        let idx = steps.flat(first + k, false)?;
        let words = vec![
            fixed(op, places)?,
            idx.offset(),
            Word::Offset(slot, 4),
            fixed(op, axis.size)?,
            fixed(op, if by.counts_from_end() { axis.size } else { 0 })?,
            fixed(op, axis.step)?,
            Word::Fixed(u32::from(k == 0)),
            fixed(op, around.block.max(1))?,
            fixed(op, around.block_step)?,
            fixed(op, around.inner.max(1))?,
            Word::Ticket,
        ];
        steps.dispatch(indexing::offsets(idx.elem), &[idx.slot, slot, Slot::Flag], words, groups);
    }
    Ok(slot)
}

/// Positions that stand for no other axes.
pub(super) fn alone(places: usize) -> Around {
    Around { block: places, block_step: 0, inner: 1 }
}

/// out[I.., rest..] = x[idx1[I], .., idxk[I], rest..].
pub fn gather(at: op::Indexed, steps: &mut Steps) -> Result<()> {
    let k = at.n;
    let x = steps.ins[0];
    let (rest, places) = (&x.shape[k..], steps.ins.get(1).map_or(1, |idx| elems(idx.shape)));
    let merged = collapse(rest, [&x.strides[k..]]);
    // Steps backwards could reach the offset that marks a missing row.
    let is_simple = merged.shape.len() == 1 && x.strides.iter().all(|&s| s >= 0);
    let (from, steps_of, step) = if is_simple {
        (steps.held(0), x.strides.to_vec(), merged.strides[0][0])
    } else {
        (steps.flat_moved(0)?, crate::shape::strides(x.shape).to_vec(), 1)
    };
    let reach: usize = x.shape.iter().zip(&steps_of).map(|(&d, &s)| d.saturating_sub(1) * s as usize).sum();
    count("gather", reach)?;
    let axes: Vec<Indexed> =
        x.shape[..k].iter().zip(&steps_of).map(|(&size, &step)| Indexed { size, step: step as usize }).collect();
    let offsets = offsets(("gather", at.by), 1, &axes, alone(places), places, steps)?;
    rows("gather", from, offsets, elems(rest), step as usize, steps)
}

/// NumPy's `take_along_axis`.
pub fn take_along(at: op::Indexed, steps: &mut Steps) -> Result<()> {
    let axis = at.n;
    let (x, idx) = (steps.ins[0], steps.ins[1]);
    let from = steps.flat_moved(0)?;
    let (size, inner) = (x.shape[axis], elems(&x.shape[axis + 1..]));
    let around = Around { block: idx.shape[axis] * inner, block_step: size * inner, inner };
    count("take_along_axis", elems(x.shape))?;
    let axes = [Indexed { size, step: inner }];
    let offsets = offsets(("take_along_axis", at.by), 1, &axes, around, elems(idx.shape), steps)?;
    rows("take_along_axis", from, offsets, 1, 1, steps)
}

/// Adds the pass that reads rows of `width` elements, `step` apart, at offsets.
fn rows(op: &'static str, x: Flat, offsets: Slot, width: usize, step: usize, steps: &mut Steps) -> Result<()> {
    let total = elems(steps.outs[0].shape);
    let out = steps.out_moved(0, total);
    let groups = spread(total, 256 * ITEMS, steps.caps)?;
    let words = vec![fixed(op, total)?, fixed(op, width)?, fixed(op, step)?, x.offset(), Word::Offset(offsets, 4), out.offset()];
    steps.dispatch(indexing::gather(x.elem, out.elem), &[x.slot, offsets, out.slot], words, groups);
    Ok(())
}
