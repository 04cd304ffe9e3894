//! A user's op: a node over its inputs and its forward's outputs that carries a gradient rule written in terms of other ops.
use super::rule::{Ctx, Grads, Rule, make_many};
use super::transfer::one_device;
use crate::backend::op::Op;
use crate::error::{Error, Result};
use crate::graph::{CustomRule, Saved, Spec, Tensor, record};
use crate::shape::broadcast;
use smallvec::SmallVec;
use std::sync::Arc;

/// Outputs of one segment: plans say in 32 bits which of them are kept.
const MOST_OUTPUTS: usize = 31;

/// The outputs of a user's op under a node that carries its gradient rule; the outputs themselves where no tape needs it. `inputs` are
/// those the rule gives gradients for; `outputs` were computed by other ops, without recording.
pub fn custom(rule: Arc<dyn CustomRule>, inputs: &[Tensor], outputs: &[Tensor]) -> Result<Vec<Tensor>> {
    if outputs.is_empty() || inputs.len() + outputs.len() > 32 {
        let message = format!(
            "{}: {} inputs and {} outputs; expected at least one output, and at most 32 together",
            rule.name(),
            inputs.len(),
            outputs.len()
        );
        return Err(Error::value("custom", message));
    }
    one_device("custom", &inputs.iter().chain(outputs).collect::<Vec<_>>())?;
    let all: SmallVec<[Tensor; 2]> = inputs.iter().chain(outputs).cloned().collect();
    let specs: SmallVec<[Spec; 1]> = outputs.iter().map(|t| t.spec().clone()).collect();
    let outs = make_many(Op::Custom, SmallVec::new(), all, specs);
    match outs.first().filter(|t| !t.node.marks.is_empty()) {
        None => Ok(outputs.to_vec()),
        Some(t) => {
            t.node.state.lock().rule = Some(rule);
            Ok(outs)
        }
    }
}

/// The outputs of a segment whose function is called again, under a node that carries the replay; the outputs themselves where no tape
/// needs it. Of `inputs`, the first `given` are kept for the replay: the others it finds by itself.
pub fn segment(rule: Arc<dyn CustomRule>, inputs: &[Tensor], given: usize, outputs: &[Tensor]) -> Result<Vec<Tensor>> {
    if outputs.len() > MOST_OUTPUTS {
        let message = format!("segment {} has {} outputs; expected at most {MOST_OUTPUTS}", rule.name(), outputs.len());
        return Err(Error::value("checkpoint", message));
    }
    one_device("checkpoint", &inputs.iter().chain(outputs).collect::<Vec<_>>())?;
    let all: SmallVec<[Tensor; 2]> = inputs.iter().chain(outputs).cloned().collect();
    let specs: SmallVec<[Spec; 1]> = outputs.iter().map(|t| t.spec().clone()).collect();
    let kept = Saved { inputs: (0..given).fold(0, |mask, i| mask | Saved::bit(i)), outputs: 0 };
    let node = record(Op::Custom, SmallVec::new(), all, specs, |_, _| Some(kept));
    if node.marks.is_empty() {
        return Ok(outputs.to_vec());
    }
    node.state.lock().rule = Some(rule);
    Ok((0..outputs.len()).map(|o| Tensor { node: node.clone(), index: o as u32 }).collect())
}

/// The rule of users' ops: it asks the user's own, and saves all inputs and outputs.
pub struct Custom;

impl Rule for Custom {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        Some(Saved { inputs: u32::MAX, outputs: u32::MAX })
    }

    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let rule = ctx.node.state.lock().rule.clone();
        let rule = rule.ok_or(Error::Internal("a custom op whose rule is gone"))?;
        let expected = ctx.inputs.len() - grad_outs.len();
        let outputs = match rule.is_replay() {
            true => Vec::new(),
            false => (0..grad_outs.len()).map(|o| ctx.output(o)).collect::<Result<Vec<Tensor>>>()?,
        };
        let mut grads = rule.vjp(&ctx.inputs[..expected], &outputs, grad_outs)?;
        let wrong = |message: String| Err(Error::value("custom", format!("the gradient rule of {}: {message}", rule.name())));
        if grads.len() != expected {
            return wrong(format!("gave {} gradients for {expected} inputs", grads.len()));
        }
        for (i, g) in grads.iter().enumerate() {
            let Some(g) = g else { continue };
            let spec = ctx.spec(i);
            if !broadcast("custom", g.shape(), &spec.shape).is_ok_and(|s| s[..] == *g.shape()) {
                return wrong(format!("gave shape {:?} for input {i} of shape {:?}", g.shape(), spec.shape));
            }
            if !g.dtype().is_float() {
                return wrong(format!("gave {} for input {i} of type {}", g.dtype(), spec.dtype));
            }
        }
        // The forward's outputs were made without recording: they need none.
        grads.resize(ctx.inputs.len(), None);
        Ok(grads)
    }
}
