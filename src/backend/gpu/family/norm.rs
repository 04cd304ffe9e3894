//! Normalizations and their gradients: rows, and the sums over all rows for weight and bias.
use super::super::catalog::norm;
use super::super::launch::{Steps, Word, grid};
use super::rows::{KEPT_OF_ONE, KEPT_OF_TWO, Rows, are_wide, beside, dispatch, elements, groups, rows, sizes, threads};
use crate::backend::op::NormForm;
use crate::error::{Error, Result};

/// Columns that a workgroup sums, and the threads for each of them.
const COLUMNS: usize = 32;
const COLUMN_THREADS: usize = 8;
/// Workgroups that keep a large adapter busy.
const BUSY: usize = 1024;

/// Outputs y, rstd and unless `rms` the mean.
pub fn prepare(form: NormForm, steps: &mut Steps) -> Result<()> {
    let (n, count) = sizes(steps.ins[0].shape)?;
    let x = rows(steps, 0)?;
    let weight = if form.weight { Some(elements(steps, 1)?) } else { None };
    let bias = if form.bias { Some(elements(steps, 1 + usize::from(form.weight))?) } else { None };
    let (y, rstd) = (steps.out_rounded(0, false), steps.out(1, false));
    let threads = threads(n, count, KEPT_OF_ONE, steps.caps);
    let [x_at, x_step] = x.words();
    let (rows, length) = (Word::Fixed(count as u32), Word::Fixed(n as u32));
    let mut words = vec![x_at, x_step, y.offset(), rstd.offset(), rows, length, Word::Float(0)];
    let mut slots = vec![x.slot, y.slot, rstd.slot];
    if !form.rms {
        let mean = steps.out(2, false);
        words.push(mean.offset());
        slots.push(mean.slot);
    }
    for v in [weight, bias].into_iter().flatten() {
        words.extend(v.words());
        slots.push(v.slot);
    }
    let make = |is_wide| {
        let [weight, bias] = [weight, bias].map(|v| v.map(|v| v.columns(is_wide)));
        norm::forward(!form.rms, [x.laid(is_wide), beside(&y, is_wide)], weight, bias, threads)
    };
    let groups = groups(steps, count, threads)?;
    dispatch(steps, are_wide(n, &[x]), make, &slots, words, groups);
    Ok(())
}

/// What both parts of the gradient read.
struct Operands {
    g: Rows,
    x: Rows,
    rstd: Rows,
    mean: Option<Rows>,
    n: usize,
    count: usize,
}

/// Outputs the gradients of those of x, weight and bias that bits 0 to 2 of `wanted` name.
pub fn prepare_gradient(rms: bool, weight: bool, wanted: u8, steps: &mut Steps) -> Result<()> {
    let (n, count) = sizes(steps.ins[1].shape)?;
    let statistics = 2 + usize::from(weight);
    if steps.ins.len() != statistics + 1 + usize::from(!rms) || steps.outs.len() != wanted.count_ones() as usize {
        return Err(Error::Internal("gpu: operands of a norm's gradient"));
    }
    let (g, x, rstd) = (rows(steps, 0)?, rows(steps, 1)?, elements(steps, statistics)?);
    let mean = if rms { None } else { Some(elements(steps, statistics + 1)?) };
    let operands = Operands { g, x, rstd, mean, n, count };
    if wanted & 1 == 1 {
        let weight = if weight { Some(elements(steps, 2)?) } else { None };
        input(steps, &operands, weight)?;
    }
    if wanted & 6 != 0 { columns(steps, &operands, wanted) } else { Ok(()) }
}

/// The gradient of x.
fn input(steps: &mut Steps, o: &Operands, weight: Option<Rows>) -> Result<()> {
    let dx = steps.out_rounded(0, false);
    let threads = threads(o.n, o.count, KEPT_OF_TWO, steps.caps);
    let mut words = [o.g, o.x, o.rstd].iter().flat_map(Rows::words).collect::<Vec<_>>();
    words.extend([dx.offset(), Word::Fixed(o.count as u32), Word::Fixed(o.n as u32)]);
    let mut slots = vec![o.g.slot, o.x.slot, o.rstd.slot, dx.slot];
    for v in [o.mean, weight].into_iter().flatten() {
        words.extend(v.words());
        slots.push(v.slot);
    }
    let make = |is_wide| {
        let weight = weight.map(|w| w.columns(is_wide));
        let elems = [o.g.laid(is_wide), o.x.laid(is_wide), beside(&dx, is_wide)];
        norm::input(elems, o.mean.is_some(), weight, threads)
    };
    let groups = groups(steps, o.count, threads)?;
    dispatch(steps, are_wide(o.n, &[o.g, o.x]), make, &slots, words, groups);
    Ok(())
}

/// The gradients of weight and bias: sums of chunks of rows, then the sums of those. Sizes alone decide the chunks.
fn columns(steps: &mut Steps, o: &Operands, wanted: u8) -> Result<()> {
    let blocks = o.n.div_ceil(COLUMNS);
    let most = o.count.div_ceil(4 * COLUMN_THREADS).max(1);
    let chunks = steps.caps.parts(BUSY.div_ceil(blocks).min(most), 2 * o.n * 4);
    let span = o.count.div_ceil(chunks).max(1);
    let chunks = o.count.div_ceil(span);
    let sums = steps.scratch(2 * chunks * o.n * 4);
    let mut words = [o.g, o.x, o.rstd].iter().flat_map(Rows::words).collect::<Vec<_>>();
    words.push(Word::Offset(sums, 4));
    words.extend([o.count, o.n, span, chunks, blocks].map(|size| Word::Fixed(size as u32)));
    let mut slots = vec![o.g.slot, o.x.slot, o.rstd.slot, sums];
    if let Some(mean) = o.mean {
        words.extend(mean.words());
        slots.push(mean.slot);
    }
    let at = grid(blocks * chunks, steps.caps)?;
    steps.dispatch(norm::columns(o.g.elem, o.x.elem, o.mean.is_some()), &slots, words, at);
    let mut output = usize::from(wanted & 1);
    for which in 0..2u32 {
        if wanted >> (1 + which) & 1 == 0 {
            continue;
        }
        let total = steps.out(output, false);
        output += 1;
        let sizes = [o.n as u32, chunks as u32, which].map(Word::Fixed);
        let words = vec![Word::Offset(sums, 4), total.offset(), sizes[0], sizes[1], sizes[2]];
        let at = grid(blocks, steps.caps)?;
        steps.dispatch(norm::total(), &[sums, total.slot], words, at);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
