//! `Update`: optimizer steps, in place where the plan put the outputs where the inputs are.
use super::super::catalog::update;
use super::super::codegen::Axes;
use super::super::launch::{Derived, Flat, Slot, Steps, Word, elem, spread, wide};
use super::fixed;
use crate::backend::op::UpdateKind;
use crate::error::Result;
use crate::shape::elems;

/// Inputs p, g and the buffers; outputs p and the buffers.
pub fn prepare(kind: UpdateKind, steps: &mut Steps) -> Result<()> {
    let (source, numbers) = match kind {
        UpdateKind::Sgd => (update::sgd(), 2),
        UpdateKind::SgdMomentum => (update::momentum(), 6),
        UpdateKind::Adam => (update::adam(), 8),
    };
    let (g, [columns, row_step, step]) = gradient(steps)?;
    let mut states: Vec<Flat> = Vec::new();
    for k in 0..steps.outs.len() {
        let input = if k == 0 { 0 } else { k + 1 };
        states.push(steps.out_from(k, input, false)?);
    }
    let total = elems(steps.outs[0].shape);
    let operands = || std::iter::once(&g).chain(&states);
    let slots: Vec<Slot> = operands().map(|x| x.slot).collect();
    let mut words = vec![fixed("update", total)?, fixed("update", columns as usize)?];
    // Positions are computed modulo 2^32, so that steps backwards need no care.
    words.extend([row_step, step].map(|step| Word::Fixed(step as u32)));
    words.extend(operands().map(Flat::offset));
    words.extend((0..numbers).map(|k| Word::Derived(Derived::Update(kind, k))));
    let groups = spread(total, 256, steps.caps)?;
    steps.dispatch(source, &slots, words, groups);
    Ok(())
}

/// The gradient where it lies, as rows of so many columns with the steps between rows and between columns; in order if it takes more to say.
fn gradient(steps: &mut Steps) -> Result<(Flat, [isize; 3])> {
    let g = steps.ins[1];
    let axes = Axes::merged(g.shape, &[g.strides], 0..g.shape.len());
    let reach: usize = axes.sizes.iter().zip(&axes.steps[0]).map(|(size, step)| size * step.unsigned_abs()).sum();
    let seen = Flat { slot: g.slot, elem: elem(g.dtype, false, steps.caps), bytes: g.dtype.size_bytes() };
    let all = elems(g.shape).max(1) as isize;
    let form = match (&axes.sizes[..], &axes.steps[0][..]) {
        ([_, columns], &[row_step, step]) => Some([*columns as isize, row_step, step]),
        ([_], &[step]) => Some([all, 0, step]),
        _ => None,
    };
    match form.filter(|_| wide(g.dtype) == g.dtype && reach < i32::MAX as usize) {
        Some(form) => Ok((seen, form)),
        None => Ok((steps.flat_wide(1, false)?, [all, 0, 1])),
    }
}
