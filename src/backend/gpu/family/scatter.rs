//! `ScatterAdd`, `ScatterAlong` and `IndexPut`: the same bits on every run, whatever order threads run in.
use super::super::catalog::scatter::{self, Join};
use super::super::catalog::sort::Order;
use super::super::launch::{Flat, Slot, Steps, Word, spread};
use super::indexing::{Around, Indexed, alone, offsets};
use super::{count, fixed, generate, sort};
use crate::backend::op;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::elems;

/// Fewest sorted positions that a thread adds up.
const CHUNK: usize = 32;
/// Threads that keep a large GPU busy.
const THREADS: usize = 1 << 18;
/// Lines of at most so many elements are added one after the other.
const SHORT_LINE: usize = 256;
/// From so many lines on a thread for each is enough.
const MANY_LINES: usize = 1 << 14;

/// The targets that k index tensors name, as rows of the output.
fn targets(op: &'static str, at: op::Indexed, steps: &mut Steps) -> Result<(Slot, usize, usize)> {
    let k = at.n;
    let shape = steps.outs[0].shape;
    let places = if k == 0 { 1 } else { elems(steps.ins[1].shape) };
    let axes: Vec<Indexed> = (0..k).map(|a| Indexed { size: shape[a], step: elems(&shape[a + 1..k]) }).collect();
    count(op, elems(shape))?;
    Ok((offsets((op, at.by), 1, &axes, alone(places), places, steps)?, places, elems(&shape[k..])))
}

/// How elements of a type are added.
const fn join_of(dtype: DType) -> Join {
    match dtype {
        DType::Bool => Join::Truth,
        DType::U8 | DType::I32 => Join::Int,
        DType::I64 => Join::Long,
        _ => Join::Float,
    }
}

/// Input 0 with the last input written at the indices; the last of repeated ones wins.
pub fn put(at: op::Indexed, steps: &mut Steps) -> Result<()> {
    let k = at.n;
    let op = "index_put";
    let out = steps.out_moved_from(0, 0, elems(steps.ins[k + 1].shape))?;
    if elems(steps.ins[k + 1].shape) == 0 {
        return Ok(());
    }
    let (targets, places, width) = targets(op, at, steps)?;
    let v = steps.flat_moved(k + 1)?;
    let rows = elems(&steps.outs[0].shape[..k]);
    let last = steps.scratch(rows * 4);
    generate::fill(op, last, rows, Word::Fixed(0), Word::Fixed(0), steps)?;
    let groups = spread(places, 256, steps.caps)?;
    let words = vec![fixed(op, places)?, Word::Offset(targets, 4), Word::Offset(last, 4)];
    steps.dispatch(scatter::claim(), &[targets, last], words, groups);
    let total = fixed(op, places * width)?;
    let words = vec![total, fixed(op, width)?, Word::Offset(targets, 4), Word::Offset(last, 4), v.offset(), out.offset()];
    let groups = spread(places * width, 256, steps.caps)?;
    steps.dispatch(scatter::put(v.elem, out.elem), &[targets, last, v.slot, out.slot], words, groups);
    Ok(())
}

/// Input 0 with the last input added at the indices, repeated ones in index order.
pub fn add(at: op::Indexed, steps: &mut Steps) -> Result<()> {
    let k = at.n;
    let op = "scatter_add";
    let out = steps.out_added(0, 0)?;
    if elems(steps.ins[k + 1].shape) == 0 {
        return Ok(());
    }
    let (targets, places, width) = targets(op, at, steps)?;
    let v = steps.flat_wide(k + 1, false)?;
    add_sorted(op, targets, places, width, v, out, steps)
}

/// Input 0 with input 2 added at input 1 along an axis.
pub fn add_along(at: op::Indexed, steps: &mut Steps) -> Result<()> {
    let axis = at.n;
    let op = "scatter_along_axis";
    let (shape, of) = (steps.outs[0].shape, steps.ins[1].shape);
    let out = steps.out_added(0, 0)?;
    let (size, length, inner) = (shape[axis], of[axis], elems(&of[axis + 1..]));
    let places = elems(of);
    if places == 0 {
        return Ok(());
    }
    count(op, elems(shape))?;
    let around = Around { block: length * inner, block_step: size * inner, inner };
    let targets = offsets((op, at.by), 1, &[Indexed { size, step: inner }], around, places, steps)?;
    let v = steps.flat_wide(2, false)?;
    let lines = places / length;
    if length > SHORT_LINE && lines < MANY_LINES {
        return add_sorted(op, targets, places, 1, v, out, steps);
    }
    let words =
        vec![fixed(op, lines)?, fixed(op, inner)?, fixed(op, length)?, Word::Offset(targets, 4), v.offset(), out.offset()];
    let groups = spread(lines, 256, steps.caps)?;
    steps.dispatch(scatter::lines(join_of(steps.outs[0].dtype)), &[targets, v.slot, out.slot], words, groups);
    Ok(())
}

/// Sorted positions that one thread adds up: enough threads for the GPU, and neither part of the sum of one target much longer than
/// the other (the positions of a chunk, the chunks).
fn chunk_of(places: usize, width: usize) -> usize {
    let even = places.isqrt() / 2;
    CHUNK.max(even).max(places.saturating_mul(width) / THREADS / 4).next_power_of_two()
}

/// Adds rows of `width` elements at their targets: positions are sorted by target, then every run is summed in order.
fn add_sorted(op: &'static str, targets: Slot, places: usize, width: usize, v: Flat, out: Flat, steps: &mut Steps) -> Result<()> {
    let keys = Flat { slot: targets, elem: super::super::text::Elem::Word, bytes: 4 };
    let sorted = sort::rows(op, Order::Word, keys, false, 1, places, steps)?;
    let join = join_of(steps.outs[0].dtype);
    let length = chunk_of(places, width);
    let threads = places.div_ceil(length) * width;
    let [heads, tails] = [0, 1].map(|_| steps.scratch(threads * out.bytes));
    let sizes = [fixed(op, places)?, fixed(op, width)?, fixed(op, length)?];
    let ends = [Word::Offset(heads, out.bytes), Word::Offset(tails, out.bytes)];
    let groups = spread(threads, 256, steps.caps)?;
    let mut words = sizes.to_vec();
    words.extend([Word::Offset(sorted.keys, 4), Word::Offset(sorted.places, 4), v.offset(), out.offset()]);
    words.extend(ends);
    steps.dispatch(scatter::runs(join), &[sorted.keys, sorted.places, v.slot, out.slot, heads, tails], words, groups);
    if places > length {
        let mut words = vec![fixed(op, threads)?];
        words.extend(sizes);
        words.push(Word::Offset(sorted.keys, 4));
        words.extend(ends);
        words.push(out.offset());
        steps.dispatch(scatter::crossing(join), &[sorted.keys, heads, tails, out.slot], words, groups);
    }
    Ok(())
}
