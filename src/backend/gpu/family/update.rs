//! `Update`: optimizer steps, in place where the plan put the outputs where the inputs are.
use super::super::catalog::update;
use super::super::launch::{Derived, Flat, Slot, Steps, Word, spread};
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
    let g = steps.flat_wide(1, false)?;
    let mut states: Vec<Flat> = Vec::new();
    for k in 0..steps.outs.len() {
        let input = if k == 0 { 0 } else { k + 1 };
        states.push(steps.out_from(k, input, false)?);
    }
    let total = elems(steps.outs[0].shape);
    let operands = || std::iter::once(&g).chain(&states);
    let slots: Vec<Slot> = operands().map(|x| x.slot).collect();
    let mut words = vec![fixed("update", total)?];
    words.extend(operands().map(Flat::offset));
    words.extend((0..numbers).map(|k| Word::Derived(Derived::Update(kind, k))));
    let groups = spread(total, 256, steps.caps)?;
    steps.dispatch(source, &slots, words, groups);
    Ok(())
}
