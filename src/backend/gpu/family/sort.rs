//! `Sort`: blocks sorted in workgroup memory, then merged in passes; also what orders the positions of a scatter.
use super::super::bits::moved;
use super::super::catalog::sort::{self, Order};
use super::super::launch::{Flat, Slot, Steps, Word, spread, wide};
use super::fixed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::elems;

/// Elements that a workgroup sorts, as in the shader.
const BLOCK: usize = 1024;
/// Longest row: positions of pairs of runs fit into 32 bits.
const LONGEST: usize = 1 << 30;

/// Keys in order along every row, and the positions in the row that they came from.
pub(super) struct Sorted {
    /// Words, or pairs of them for 64-bit keys.
    pub keys: Slot,
    /// Words.
    pub places: Slot,
}

/// Outputs the values in order along the last axis and their int64 positions.
pub fn prepare(descending: bool, steps: &mut Steps) -> Result<()> {
    let x = steps.ins[0];
    let length = x.shape.last().copied().unwrap_or(1);
    let total = elems(x.shape);
    let from = steps.flat_wide(0, false)?;
    let order = match wide(x.dtype) {
        DType::F32 => Order::Float,
        DType::I32 => Order::Int,
        _ => Order::Long,
    };
    let sorted = rows("sort", order, from, descending, total / length, length, steps)?;
    // Keys are numbers, values bits: where both are words, the same ones.
    let held = if wide(x.dtype) == x.dtype { Flat { elem: moved(x.dtype, steps.caps), ..from } } else { steps.flat_moved(0)? };
    let (values, positions) = (steps.out_moved(0, total), steps.out(1, false));
    let words = vec![
        fixed("sort", total)?,
        fixed("sort", length)?,
        held.offset(),
        Word::Offset(sorted.places, 4),
        values.offset(),
        positions.offset(),
    ];
    let groups = spread(total, 256, steps.caps)?;
    let slots = [held.slot, sorted.places, values.slot, positions.slot];
    steps.dispatch(sort::values(held.elem, values.elem), &slots, words, groups);
    Ok(())
}

/// Adds the passes that sort every row of `length` elements of `x` by its key, stably.
pub(super) fn rows(
    op: &'static str,
    order: Order,
    x: Flat,
    descending: bool,
    rows: usize,
    length: usize,
    steps: &mut Steps,
) -> Result<Sorted> {
    if length > LONGEST {
        return Err(Error::value(
            op,
            format!("{length} elements to be sorted on a GPU are more than 2^30: split the tensor, or use the CPU"),
        ));
    }
    let (total, key) = (rows * length, order.key());
    let bytes = if order == Order::Long { 8 } else { 4 };
    let [mut keys, mut other] = [0, 1].map(|i| (i == 0 || length > BLOCK).then(|| steps.scratch(total * bytes)));
    let [mut places, mut others] = [0, 1].map(|i| (i == 0 || length > BLOCK).then(|| steps.scratch(total * 4)));
    let missing = Error::Internal("gpu sort: scratch");
    let (Some(first_keys), Some(first_places)) = (keys, places) else { return Err(missing) };
    // Several short rows share a block.
    let packed = (BLOCK / length).max(1).min(rows);
    let blocks = length.div_ceil(BLOCK);
    let words = vec![
        fixed(op, rows)?,
        fixed(op, length)?,
        fixed(op, packed)?,
        fixed(op, blocks)?,
        fixed(op, (packed * length).min(BLOCK).next_power_of_two())?,
        Word::Fixed(u32::from(descending)),
        x.offset(),
        Word::Offset(first_keys, bytes),
        Word::Offset(first_places, 4),
    ];
    let groups = super::super::launch::grid(rows.div_ceil(packed) * blocks, steps.caps)?;
    steps.dispatch(sort::blocks(order), &[x.slot, first_keys, first_places], words, groups);
    let mut width = BLOCK;
    while width < length {
        let (Some(a), Some(b), Some(c), Some(d)) = (keys, places, other, others) else { return Err(missing) };
        let words = vec![
            fixed(op, total)?,
            fixed(op, length)?,
            fixed(op, width)?,
            Word::Offset(a, bytes),
            Word::Offset(b, 4),
            Word::Offset(c, bytes),
            Word::Offset(d, 4),
        ];
        let groups = spread(total, 256, steps.caps)?;
        steps.dispatch(sort::merge(key), &[a, b, c, d], words, groups);
        std::mem::swap(&mut keys, &mut other);
        std::mem::swap(&mut places, &mut others);
        width *= 2;
    }
    let (Some(keys), Some(places)) = (keys, places) else { return Err(missing) };
    Ok(Sorted { keys, places })
}
