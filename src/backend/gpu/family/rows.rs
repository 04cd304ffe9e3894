//! How row kernels see their operands: rows that lie whole in memory, vectors with a step, and how many threads share a row.
use super::super::catalog::rows::{KEPT, LANES, SUBGROUPS, THREADS, Threads, WIDTHS};
use super::super::launch::{Caps, Dispatch, Flat, Slot, Steps, View, Word, elem, grid};
use super::super::text::{Elem, Source};
use crate::error::{Error, Result};
use crate::shape::elems;

/// Elements of a launch below which there are more threads than work for four elements each.
const MANY: usize = 1 << 18;
/// Threads that keep a large adapter busy.
const BUSY: usize = 1 << 17;
/// The same of a processor that plays one, and what its threads keep at most: what is unrolled further takes it long to compile.
const BUSY_SOFTWARE: usize = 1 << 9;
const KEPT_SOFTWARE: u32 = 2;
/// Neighbouring threads whose elements, four of each, fill a line of memory.
const LINE: u32 = 8;
/// How many times four elements a thread keeps at most, of one tensor. More registers would leave fewer threads.
pub const KEPT_OF_ONE: u32 = 8;
/// The same of each of two tensors.
pub const KEPT_OF_TWO: u32 = 4;

/// A tensor as a list of rows, or of single elements, one every `step` elements.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Its bytes.
    pub slot: Slot,
    /// How its elements lie.
    pub elem: Elem,
    bytes: usize,
    step: isize,
}

impl Rows {
    /// The position of the first, and the step to the next.
    pub fn words(&self) -> [Word; 2] {
        [Word::Offset(self.slot, self.bytes), Word::Fixed(self.step as u32)]
    }

    /// How single elements that stand for columns lie, beside rows that move four at a time or not.
    pub fn columns(&self, is_wide: bool) -> Elem {
        if is_wide && self.elem == Elem::F32 && self.step == 1 { Elem::F32x4 } else { self.elem }
    }

    /// How these rows lie, moving four elements at a time or not.
    pub fn laid(&self, is_wide: bool) -> Elem {
        if is_wide { Elem::F32x4 } else { self.elem }
    }
}

/// How rows lie that are written beside such, moving four elements at a time or not: a 16-bit float is written by itself.
pub fn beside(y: &Flat, is_wide: bool) -> Elem {
    if is_wide && y.elem == Elem::F32 { Elem::F32x4 } else { y.elem }
}

/// The last axis' length and the product of the others.
pub fn sizes(shape: &[usize]) -> Result<(usize, usize)> {
    let (&n, lead) = shape.split_last().ok_or(Error::Internal("gpu: rows of a tensor without axes"))?;
    Ok((n, elems(lead)))
}

/// The one step with which all elements are reached in row-major order.
fn single_step(shape: &[usize], strides: &[isize]) -> Option<isize> {
    let (mut step, mut inner) = (None, 1);
    for (&d, &s) in shape.iter().zip(strides).rev().filter(|&(&d, _)| d != 1) {
        match step {
            None => step = Some(s),
            Some(first) if s == first * inner => {}
            Some(_) => return None,
        }
        inner *= d as isize;
    }
    Some(step.unwrap_or(0))
}

fn in_place(x: &View, step: isize, caps: Caps) -> Rows {
    Rows { slot: x.slot, elem: elem(x.dtype, false, caps), bytes: x.dtype.size_bytes(), step }
}

fn copied(x: Flat, step: usize) -> Rows {
    Rows { slot: x.slot, elem: x.elem, bytes: x.bytes, step: step as isize }
}

/// The rows of input `k` along its last axis, copied only where they do not lie whole or evenly.
pub fn rows(steps: &mut Steps, k: usize) -> Result<Rows> {
    let x = steps.ins[k];
    let (n, _) = sizes(x.shape)?;
    let lead = x.shape.len() - 1;
    if (n == 1 || x.strides[lead] == 1)
        && let Some(step) = single_step(&x.shape[..lead], &x.strides[..lead])
    {
        return Ok(in_place(&x, step, steps.caps));
    }
    Ok(copied(steps.flat(k, false)?, n))
}

/// The elements of input `k`, copied only where they do not lie evenly.
pub fn elements(steps: &mut Steps, k: usize) -> Result<Rows> {
    let x = steps.ins[k];
    match single_step(x.shape, x.strides) {
        Some(step) => Ok(in_place(&x, step, steps.caps)),
        None => Ok(copied(steps.flat(k, false)?, 1)),
    }
}

/// Whether all these rows of `n` elements can move four elements at a time, if their first ones lie at multiples of 16 bytes.
pub fn are_wide(n: usize, all: &[Rows]) -> bool {
    n > 0 && n.is_multiple_of(4) && all.iter().all(|x| x.elem == Elem::F32 && x.step % 4 == 0)
}

/// The neighbours among threads that may exchange values without workgroup memory.
pub fn subgroup(caps: Caps) -> u32 {
    // Of subgroups whose size may vary each is made of whole ones of the smallest size.
    SUBGROUPS.into_iter().filter(|&size| size <= caps.subgroup.0).max().unwrap_or(0)
}

/// The threads for rows of `n` elements, `count` of them. Each keeps up to `most` times four elements where that leaves threads enough to
/// keep the adapter busy: the fewer share a row, the less they wait for each other.
pub fn threads(n: usize, count: usize, most: u32, caps: Caps) -> Threads {
    let subgroup = subgroup(caps);
    let limit = if subgroup == 0 { THREADS } else { caps.max_threads };
    let widest = WIDTHS.into_iter().filter(|&w| w <= limit).max().unwrap_or(1);
    let fours = n.div_ceil(4);
    let lanes = |kept: u32| WIDTHS.into_iter().find(|&w| w == widest || (w * kept) as usize >= fours).unwrap_or(widest);
    let (busy, most) = if caps.is_software { (BUSY_SOFTWARE, most.min(KEPT_SOFTWARE)) } else { (BUSY, most) };
    let is_enough = |kept: u32| {
        let lanes = lanes(kept);
        lanes == widest || lanes >= LINE && lanes as usize * count >= busy
    };
    let kept = KEPT.into_iter().rev().find(|&kept| kept <= most && is_enough(kept)).unwrap_or(1);
    Threads { kept, subgroup, ..Threads::along(lanes(kept)) }
}

/// Adds the dispatch of a row kernel, which `make` gives for rows that move four elements at a time, if they may, and for others.
pub fn dispatch(
    steps: &mut Steps,
    is_wide: bool,
    make: impl Fn(bool) -> Source,
    slots: &[Slot],
    words: Vec<Word>,
    groups: [u32; 3],
) {
    steps.push(Dispatch {
        source: make(is_wide),
        unaligned: is_wide.then(|| Box::new(make(false))),
        slots: slots.into(),
        words,
        table: Vec::new(),
        groups,
        unless_in_place: None,
    });
}

/// How many threads share a row of `n` elements of `count` that is read one element at a time: four elements each at least, where there
/// is enough work.
pub fn lanes(n: usize, count: usize) -> u32 {
    let each = if n.saturating_mul(count) < MANY { 1 } else { 4 };
    LANES.into_iter().find(|&l| l as usize * each >= n).unwrap_or(LANES[LANES.len() - 1])
}

/// Workgroups for `count` rows.
pub fn groups(steps: &Steps, count: usize, threads: Threads) -> Result<[u32; 3]> {
    grid(count.div_ceil(threads.rows() as usize), steps.caps)
}

#[cfg(test)]
pub mod sample;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
