//! Positions of the largest or smallest elements: lines along any axis, long ones in parts.
use super::super::catalog::arg_extreme::{Stage, arg_extreme};
use super::super::catalog::rows::{LANES, Threads};
use super::super::launch::{Caps, Slot, Steps, Word};
use super::super::text::Elem;
use super::rows::{groups, lanes, rows};
use crate::error::{Error, Result};
use crate::shape::elems;

/// Workgroups below which long lines are cut into parts.
const FEW: usize = 64;
/// Most parts of a line.
const MOST_PARTS: usize = 256;
/// Bytes of the best element of a part.
const BEST_BYTES: usize = 12;
/// Elements that a thread looks at before a line is worth cutting.
const OWN: usize = 64;

/// Lines of a tensor as a dispatch sees them.
struct Lines {
    slot: Slot,
    elem: Elem,
    at: Word,
    count: usize,
    n: usize,
    step: Word,
    inner: usize,
    parts: usize,
}

/// Writes the int64 positions along `axis`, which is dropped from the output.
pub fn prepare(largest: bool, axis: usize, steps: &mut Steps) -> Result<()> {
    let x = steps.ins[0];
    let n = x.shape[axis];
    if n == 0 {
        let op = if largest { "argmax" } else { "argmin" };
        return Err(Error::value(op, format!("axis {axis} of shape {:?} is empty", x.shape)));
    }
    let (count, inner) = (elems(x.shape) / n, elems(&x.shape[axis + 1..]));
    let (slot, elem, at, step) = if axis + 1 == x.shape.len() {
        let rows = rows(steps, 0)?;
        let [at, step] = rows.words();
        (rows.slot, rows.elem, at, step)
    } else {
        let flat = steps.flat(0, false)?;
        (flat.slot, flat.elem, flat.offset(), Word::Fixed((n * inner) as u32))
    };
    let threads = if inner == 1 { Threads::along(lanes(n, count)) } else { across(n, count) };
    let whole = Lines { slot, elem, at, count, n, step, inner, parts: parts(n, count, threads, steps.caps) };
    let y = steps.out(0, false);
    if whole.parts == 1 {
        return search(steps, largest, Stage::Whole, threads, &whole, y.slot, y.offset());
    }
    let best = steps.scratch(count * whole.parts * BEST_BYTES);
    search(steps, largest, Stage::Parts, threads, &whole, best, Word::Offset(best, 4))?;
    // The best of the parts lie part by part.
    let last = Lines {
        slot: best,
        elem: Elem::Word,
        at: Word::Offset(best, 4),
        count,
        n: whole.parts,
        step: Word::Fixed(0),
        inner: count,
        parts: 1,
    };
    let threads = if count == 1 { Threads::along(lanes(last.n, 1)) } else { across(last.n, count) };
    search(steps, largest, Stage::Last, threads, &last, y.slot, y.offset())
}

/// Threads for lines that lie beside each other.
fn across(n: usize, count: usize) -> Threads {
    let most = if count >= 1 << 16 { 1 } else { 16 };
    let lanes = LANES.into_iter().find(|&l| l == most || l as usize * 4 >= n).unwrap_or(most);
    Threads::across(lanes)
}

/// Into how many parts lines are cut, so that there are workgroups enough.
fn parts(n: usize, count: usize, threads: Threads, caps: Caps) -> usize {
    let groups = count.div_ceil(threads.rows() as usize);
    let worth = n / (threads.lanes as usize * OWN);
    if groups >= FEW || worth < 2 {
        return 1;
    }
    let parts = caps.parts(worth.min(4 * FEW / groups).min(MOST_PARTS), count * BEST_BYTES);
    // None of them is empty.
    n.div_ceil(n.div_ceil(parts))
}

fn search(steps: &mut Steps, largest: bool, stage: Stage, threads: Threads, l: &Lines, y: Slot, y_at: Word) -> Result<()> {
    let fixed = |size: usize| Word::Fixed(size as u32);
    let span = l.n.div_ceil(l.parts);
    let words = vec![l.at, y_at, fixed(l.count), fixed(l.n), l.step, fixed(l.inner), fixed(l.parts), fixed(span)];
    let groups = groups(steps, l.count * l.parts, threads)?;
    steps.dispatch(arg_extreme(largest, l.elem, stage, threads), &[l.slot, y], words, groups);
    Ok(())
}

#[cfg(test)]
mod tests;
