//! Softmax: which shader, with how many threads a row.
use super::super::catalog::softmax::softmax;
use super::super::launch::{Steps, Word};
use super::rows::{KEPT_OF_ONE, are_wide, beside, dispatch, groups, rows, sizes, threads};
use crate::error::Result;

/// Softmax of every row (`log`: its logarithm), of all its elements or of those that a `causal` one sees.
pub fn prepare(log: bool, causal: bool, steps: &mut Steps) -> Result<()> {
    let shape = steps.ins[0].shape;
    let (n, count) = sizes(shape)?;
    let matrix = if shape.len() > 1 { shape[shape.len() - 2] } else { 1 };
    let x = rows(steps, 0)?;
    let y = steps.out_rounded(0, false);
    let threads = threads(n, count, KEPT_OF_ONE, steps.caps);
    let [x_at, x_step] = x.words();
    let sizes = [count, n, matrix].map(|size| Word::Fixed(size as u32));
    let words = vec![x_at, x_step, y.offset(), sizes[0], sizes[1], sizes[2], Word::FloatOr(0, 1f32.to_bits())];
    let groups = groups(steps, count, threads)?;
    let make = |is_wide| softmax(log, causal, [x.laid(is_wide), beside(&y, is_wide)], threads);
    dispatch(steps, are_wide(n, &[x]), make, &[x.slot, y.slot], words, groups);
    Ok(())
}

#[cfg(test)]
mod tests;
