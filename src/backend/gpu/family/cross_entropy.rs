//! Cross-entropy and its gradient: rows of logits against labels.
use super::super::catalog::cross_entropy::{self as shaders, Form};
use super::super::launch::{Slot, Steps, Word};
use super::rows::{KEPT_OF_ONE, Rows, are_wide, beside, dispatch, elements, groups, rows, sizes, threads};
use crate::backend::op::EntropyForm;
use crate::error::Result;

/// What both kernels are given behind what is their own.
struct Target {
    form: Form,
    weight: Option<Rows>,
    words: Vec<Word>,
    slots: Vec<Slot>,
}

/// Labels are input `k`; class weights, if there are any, the one behind.
fn target(form: EntropyForm, k: usize, (n, count): (usize, usize), steps: &mut Steps) -> Result<Target> {
    let labels = elements(steps, k)?;
    let weight = if form.weight { Some(elements(steps, k + 1)?) } else { None };
    let mut words = labels.words().to_vec();
    words.extend([Word::Fixed(count as u32), Word::Fixed(n as u32), Word::Ticket]);
    if form.ignores {
        words.extend([Word::Low(0), Word::High(0)]);
    }
    if form.smooths {
        words.push(Word::Float(1));
    }
    let mut slots = vec![labels.slot, Slot::Flag];
    if let Some(weight) = weight {
        words.extend(weight.words());
        slots.push(weight.slot);
    }
    let form = Form { weight: None, ignores: form.ignores, smooths: form.smooths, labels: labels.elem };
    Ok(Target { form, weight, words, slots })
}

impl Target {
    /// The form beside rows that move four elements at a time or not.
    fn form(&self, is_wide: bool) -> Form {
        Form { weight: self.weight.map(|w| w.columns(is_wide)), ..self.form }
    }
}

/// Outputs loss, the largest logit, the sum of the exponentials, and the label's weight if there are weights or ignored rows.
pub fn prepare(form: EntropyForm, steps: &mut Steps) -> Result<()> {
    let (n, count) = sizes(steps.ins[0].shape)?;
    let x = rows(steps, 0)?;
    let target = target(form, 1, (n, count), steps)?;
    let threads = threads(n, count, KEPT_OF_ONE, steps.caps);
    let mut words = x.words().to_vec();
    let mut slots = vec![x.slot];
    for k in 0..steps.outs.len() {
        let out = steps.out(k, false);
        words.push(out.offset());
        slots.push(out.slot);
    }
    words.extend(&target.words);
    slots.extend(&target.slots);
    let groups = groups(steps, count, threads)?;
    let make = |is_wide| shaders::forward(target.form(is_wide), x.laid(is_wide), threads);
    dispatch(steps, are_wide(n, &[x]), make, &slots, words, groups);
    Ok(())
}

/// Output the gradient of the logits.
pub fn prepare_gradient(form: EntropyForm, steps: &mut Steps) -> Result<()> {
    let (n, count) = sizes(steps.ins[1].shape)?;
    let (g, x) = (elements(steps, 0)?, rows(steps, 1)?);
    let target = target(form, 2, (n, count), steps)?;
    let statistics = 3 + usize::from(form.weight);
    let (top, sum) = (elements(steps, statistics)?, elements(steps, statistics + 1)?);
    let y = steps.out_rounded(0, false);
    let threads = threads(n, count, KEPT_OF_ONE, steps.caps);
    let mut words = [x, g, top, sum].iter().flat_map(Rows::words).collect::<Vec<_>>();
    words.push(y.offset());
    words.extend(&target.words);
    let mut slots = vec![x.slot, g.slot, top.slot, sum.slot, y.slot];
    slots.extend(&target.slots);
    let groups = groups(steps, count, threads)?;
    let make = |is_wide| shaders::gradient(target.form(is_wide), [x.laid(is_wide), beside(&y, is_wide)], threads);
    dispatch(steps, are_wide(n, &[x]), make, &slots, words, groups);
    Ok(())
}

#[cfg(test)]
mod tests;
