//! Cross-entropy and its gradient: rows of logits against labels.
use super::super::catalog::cross_entropy::{self as shaders, Form};
use super::super::catalog::rows::Threads;
use super::super::launch::{Slot, Steps, Word};
use super::rows::{Rows, elements, groups, lanes, rows, sizes};
use crate::backend::op::EntropyForm;
use crate::error::Result;

/// What both kernels are given behind what is their own.
struct Target {
    form: Form,
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
    let weight = weight.map(|w| w.elem);
    let form = Form { weight, ignores: form.ignores, smooths: form.smooths, labels: labels.elem };
    Ok(Target { form, words, slots })
}

/// Outputs loss, the largest logit, the sum of the exponentials, and the label's weight if there are weights or ignored rows.
pub fn prepare(form: EntropyForm, steps: &mut Steps) -> Result<()> {
    let (n, count) = sizes(steps.ins[0].shape)?;
    let x = rows(steps, 0)?;
    let target = target(form, 1, (n, count), steps)?;
    let threads = Threads::along(lanes(n, count));
    let mut words = x.words().to_vec();
    let mut slots = vec![x.slot];
    for k in 0..steps.outs.len() {
        let out = steps.out(k, false);
        words.push(out.offset());
        slots.push(out.slot);
    }
    words.extend(target.words);
    slots.extend(target.slots);
    let groups = groups(steps, count, threads)?;
    steps.dispatch(shaders::forward(target.form, x.elem, threads.lanes), &slots, words, groups);
    Ok(())
}

/// Output the gradient of the logits.
pub fn prepare_gradient(form: EntropyForm, steps: &mut Steps) -> Result<()> {
    let (n, count) = sizes(steps.ins[1].shape)?;
    let (g, x) = (elements(steps, 0)?, rows(steps, 1)?);
    let target = target(form, 2, (n, count), steps)?;
    let statistics = 3 + usize::from(form.weight);
    let (top, sum) = (elements(steps, statistics)?, elements(steps, statistics + 1)?);
    let y = steps.out(0, false);
    let threads = Threads::along(lanes(n, count));
    let mut words = [x, g, top, sum].iter().flat_map(Rows::words).collect::<Vec<_>>();
    words.push(y.offset());
    words.extend(target.words);
    let mut slots = vec![x.slot, g.slot, top.slot, sum.slot, y.slot];
    slots.extend(target.slots);
    let groups = groups(steps, count, threads)?;
    steps.dispatch(shaders::gradient(target.form, x.elem, threads.lanes), &slots, words, groups);
    Ok(())
}

#[cfg(test)]
mod tests;
