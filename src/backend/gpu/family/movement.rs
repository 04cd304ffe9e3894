//! `Copy`, `Concat` and `SliceAssign`: elements moved unchanged.
use super::super::catalog;
use super::super::codegen;
use super::super::launch::{Dispatch, Flat, Slot, Steps, Word, cast_expr, spread};
use super::fixed;
use crate::backend::cpu::collapse;
use crate::backend::op::Range;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::shape::{elems, strides};
use smallvec::SmallVec;

/// Elements that a thread of `place` moves.
const ITEMS: usize = 4;

/// A row-major copy.
pub fn copy(steps: &mut Steps) -> Result<()> {
    let ([x, ..], [out, ..]) = (steps.ins, steps.outs) else { return Err(Error::Internal("gpu copy: operands")) };
    let dispatch = codegen::fused(&cast_expr(x.dtype, out.dtype), x.shape, &[*x], &[*out], steps.caps)?;
    steps.push(dispatch);
    Ok(())
}

/// Inputs one after the other along an axis.
pub fn concat(axis: usize, steps: &mut Steps) -> Result<()> {
    let to = strides(steps.outs[0].shape);
    let out = steps.out_moved(0, elems(steps.outs[0].shape));
    let mut done = 0;
    for k in 0..steps.ins.len() {
        place("concat", k, out, done * to[axis], &to, steps)?;
        done += steps.ins[k].shape[axis] as isize;
    }
    Ok(())
}

/// Input 0 with a slice replaced by input 1.
pub fn assign(ranges: &[Range], steps: &mut Steps) -> Result<()> {
    let window = Layout::contiguous(steps.outs[0].shape).slice(ranges);
    let out = steps.out_moved_from(0, 0, elems(steps.ins[1].shape))?;
    place("slice_assign", 1, out, window.offset as isize, &window.strides, steps)
}

/// Writes input `k` to the elements of `out` from `first` on that lie `to` apart along the input's axes.
fn place(op: &'static str, k: usize, out: Flat, first: isize, to: &[isize], steps: &mut Steps) -> Result<()> {
    let x = steps.ins[k];
    let count = elems(x.shape);
    if count == 0 {
        return Ok(());
    }
    let from = steps.held(k);
    let axes = collapse(x.shape, [x.strides, to]);
    // Steps backwards wrap around in the shader's numbers.
    let mut table = Vec::with_capacity(3 * axes.shape.len());
    for (i, &size) in axes.shape.iter().enumerate().rev() {
        table.extend([super::count(op, size)?, axes.strides[0][i] as u32, axes.strides[1][i] as u32]);
    }
    super::count(op, elems(steps.outs[0].shape))?;
    steps.push(Dispatch {
        source: catalog::movement::place(from.elem, out.elem),
        unaligned: None,
        slots: SmallVec::from_slice(&[from.slot, Slot::Table, out.slot]),
        words: vec![
            fixed(op, count)?,
            Word::Fixed(axes.shape.len() as u32),
            Word::Fixed(first as u32),
            from.offset(),
            out.offset(),
        ],
        table,
        groups: spread(count, 256 * ITEMS, steps.caps)?,
        unless_in_place: None,
    });
    Ok(())
}
