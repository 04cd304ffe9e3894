//! How row kernels see their operands: rows that lie whole in memory, vectors with a step, and how many threads share a row.
use super::super::catalog::rows::{LANES, Threads};
use super::super::launch::{Flat, Slot, Steps, View, Word, elem, grid};
use super::super::text::Elem;
use crate::error::{Error, Result};
use crate::shape::elems;

/// Elements of a launch below which there are more threads than work for four elements each.
const MANY: usize = 1 << 18;

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

fn in_place(x: &View, step: isize) -> Rows {
    Rows { slot: x.slot, elem: elem(x.dtype, false), bytes: x.dtype.size_bytes(), step }
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
        return Ok(in_place(&x, step));
    }
    Ok(copied(steps.flat(k, false)?, n))
}

/// The elements of input `k`, copied only where they do not lie evenly.
pub fn elements(steps: &mut Steps, k: usize) -> Result<Rows> {
    let x = steps.ins[k];
    match single_step(x.shape, x.strides) {
        Some(step) => Ok(in_place(&x, step)),
        None => Ok(copied(steps.flat(k, false)?, 1)),
    }
}

/// How many threads share a row of `n` elements of `count`: four elements each at least, where there is enough work.
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
mod tests {
    use super::*;

    #[test]
    fn test_one_step_is_found_through_axes_of_one_and_broadcasts() {
        assert_eq!(single_step(&[], &[]), Some(0));
        assert_eq!(single_step(&[3, 1, 4], &[8, 99, 2]), Some(2));
        assert_eq!(single_step(&[3, 4], &[0, 0]), Some(0));
        assert_eq!(single_step(&[3, 4], &[4, -1]), None);
        assert_eq!(single_step(&[3, 4], &[-4, -1]), Some(-1));
    }
}
