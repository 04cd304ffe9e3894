//! Optimizer updates as nodes with several outputs: shape rules; an update is never differentiated.
use super::rule::make_many;
use super::transfer::one_device;
use crate::backend::op::{Op, UpdateKind};
use crate::error::{Error, Result};
use crate::graph::{Spec, Tensor};
use smallvec::{SmallVec, smallvec};

/// Numbers of stochastic gradient descent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SgdHyper {
    /// Learning rate.
    pub lr: f64,
    /// Added to the gradient, times the parameter.
    pub weight_decay: f64,
    /// How much of the last direction is kept.
    pub momentum: f64,
    /// How much of the new gradient is left out of the direction.
    pub dampening: f64,
    /// Nesterov's look ahead.
    pub is_nesterov: bool,
    /// The first step, in which the buffer becomes the gradient.
    pub is_first: bool,
}

/// Numbers of Adam and AdamW.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdamHyper {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// The number of this step, from 1.
    pub step: u64,
    /// Weight decay apart from the gradient (AdamW).
    pub is_decoupled: bool,
}

/// The parameter is a float, and the others have its shape and dtype.
fn check(op: &'static str, p: &Tensor, others: &[(&str, &Tensor)]) -> Result<()> {
    one_device(op, &std::iter::once(p).chain(others.iter().map(|(_, t)| *t)).collect::<Vec<_>>())?;
    if !p.dtype().is_float() {
        return Err(Error::dtype(op, format!("the parameter is {}; expected a float", p.dtype())));
    }
    for (name, t) in others {
        if t.shape() != p.shape() {
            return Err(Error::value(op, format!("{name} has shape {:?}; expected the parameter's {:?}", t.shape(), p.shape())));
        }
        if t.dtype() != p.dtype() {
            return Err(Error::dtype(op, format!("{name} is {}; expected the parameter's {}", t.dtype(), p.dtype())));
        }
    }
    Ok(())
}

/// One output for each state that is updated, all like the parameter.
fn update(kind: UpdateKind, args: &[f64], inputs: SmallVec<[Tensor; 2]>, outputs: usize) -> Vec<Tensor> {
    let specs: SmallVec<[Spec; 1]> = (0..outputs).map(|_| inputs[0].spec().clone()).collect();
    make_many(Op::Update(kind), args.iter().map(|a| a.to_bits()).collect(), inputs, specs)
}

const fn flag(is_on: bool) -> f64 {
    if is_on { 1.0 } else { 0.0 }
}

/// The new p; with a momentum buffer also the new buffer.
pub fn sgd(p: &Tensor, g: &Tensor, buf: Option<&Tensor>, h: &SgdHyper) -> Result<Vec<Tensor>> {
    check("sgd", p, &[("the gradient", g)])?;
    let Some(buf) = buf else {
        return Ok(update(UpdateKind::Sgd, &[h.lr, h.weight_decay], smallvec![p.clone(), g.clone()], 1));
    };
    check("sgd", p, &[("the momentum buffer", buf)])?;
    let args = [h.lr, h.weight_decay, h.momentum, h.dampening, flag(h.is_nesterov), flag(h.is_first)];
    Ok(update(UpdateKind::SgdMomentum, &args, smallvec![p.clone(), g.clone(), buf.clone()], 2))
}

/// The new p, m and v.
pub fn adam(p: &Tensor, g: &Tensor, m: &Tensor, v: &Tensor, h: &AdamHyper) -> Result<Vec<Tensor>> {
    check("adam", p, &[("the gradient", g), ("the first moment", m), ("the second moment", v)])?;
    if h.step == 0 {
        return Err(Error::value("adam", "step is 0; steps count from 1"));
    }
    // 1 - beta^t without the loss of digits that a beta near 1 brings at small t.
    let correction = |beta: f64| if beta > 0.0 { -(h.step as f64 * beta.ln()).exp_m1() } else { 1.0 };
    let (c1, c2) = (correction(h.beta1), correction(h.beta2));
    let args = [h.lr, h.beta1, h.beta2, h.eps, h.weight_decay, c1, c2, flag(h.is_decoupled)];
    Ok(update(UpdateKind::Adam, &args, smallvec![p.clone(), g.clone(), m.clone(), v.clone()], 3))
}
