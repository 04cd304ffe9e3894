//! Optimizer updates of Python's leaves: one fused node a parameter, all of them run by one plan.
// Each hyperparameter is an argument of its own, so that Python pays for no container.
#![allow(clippy::too_many_arguments)]
use super::arguments::{Checked, Real, count};
use super::flags::Flag;
use super::leaf::leaf_version;
use super::tensor::{PyTensor, compute};
use crate::backend::op::Op;
use crate::graph::{Scope, Stage, Tensor, Variable};
use crate::ops::update::{AdamHyper, SgdHyper, adam, sgd};
use crate::plan::evaluate_pending;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::RefCell;
use std::sync::Arc;

type Leaves<'py> = Vec<Bound<'py, PyTensor>>;
type Note<'py> = (Bound<'py, PyDict>, Bound<'py, PyAny>, Bound<'py, PyAny>);

thread_local! {
    /// Leaves with new versions that `finish_updates` is to compute.
    static WAITING: RefCell<Vec<Py<PyTensor>>> = const { RefCell::new(Vec::new()) };
}

/// Refuses lists of unequal length.
fn check_counts(op: &str, n: usize, others: &[(&str, usize)]) -> PyResult<()> {
    match others.iter().find(|(_, m)| *m != n) {
        None => Ok(()),
        Some((name, m)) => Err(PyValueError::new_err(format!("{op}: got {n} parameters but {m} {name}; expected as many"))),
    }
}

/// Gives a leaf its new version under the identity it has.
fn put(leaf: &Bound<'_, PyTensor>, new: &Tensor) {
    let variable = leaf.get().variable().unwrap_or_else(|| Arc::new(Variable::new(false)));
    PyTensor::rebind(leaf, leaf_version(new, variable));
}

/// The version before an update that was not computed.
fn before(t: &Tensor) -> Option<Tensor> {
    let update = t.node.state.lock().inputs.first().cloned()?;
    if !matches!(update.node.op, Op::Update(_)) {
        return None;
    }
    let state = update.node.state.lock();
    if state.stage == Stage::Computed {
        return None;
    }
    // Inputs are p, g and then the states; outputs are p and the states.
    let input = if update.index() == 0 { 0 } else { update.index() + 1 };
    state.inputs.get(input).cloned()
}

/// Puts back the old version of every leaf whose update did not run.
fn undo(leaves: &[Py<PyTensor>]) {
    // Newest first: a leaf in two updates ends with its oldest version.
    for leaf in leaves.iter().rev() {
        let leaf = leaf.get();
        if let Some(old) = before(&leaf.tensor()) {
            leaf.put(old);
        }
    }
}

/// Gives the leaves of updates the versions that those have made, which `finish_updates` is to compute; `columns` has the leaves of each output.
fn put_all<'py>(new: &[Vec<Tensor>], columns: impl Iterator<Item = Leaves<'py>>) {
    let mut columns: Vec<_> = columns.map(Leaves::into_iter).collect();
    let mut updated = Vec::with_capacity(new.len() * columns.len());
    for outs in new {
        for (out, leaf) in outs.iter().zip(columns.iter_mut().filter_map(Iterator::next)) {
            put(&leaf, out);
            updated.push(leaf.unbind());
        }
    }
    WAITING.with(|w| w.borrow_mut().extend(updated));
}

fn take_waiting() -> Vec<Py<PyTensor>> {
    WAITING.with(|w| std::mem::take(&mut *w.borrow_mut()))
}

/// Computes the updates recorded since the last call, with everything else that is pending, and then notes them: each of
/// notes is (dict, key, value), and an entry is set without running any Python code, so that no interrupt falls in between.
///
/// Raises what computing raises; leaves whose update did not run get their old versions back then, and nothing is noted.
#[pyfunction]
pub fn finish_updates(py: Python<'_>, notes: Vec<Note<'_>>) -> PyResult<()> {
    let updated = take_waiting();
    // Named, so that an update whose gradient cannot be computed is an error and not left out.
    let named: Vec<Tensor> = updated.iter().map(|leaf| leaf.get().tensor()).collect();
    compute(py, || evaluate_pending(&named)).inspect_err(|_| undo(&updated))?;
    notes.iter().try_for_each(|(dict, key, value)| dict.set_item(key, value))
}

/// Puts back the old versions of all leaves whose updates were recorded since `finish_updates` and not computed.
#[pyfunction]
pub fn abandon_updates() {
    undo(&take_waiting());
}

/// Stochastic gradient descent on each parameter and, if given, its momentum buffer; the same objects get new values, unrecorded, which
/// `finish_updates` computes.
///
/// params, grads, bufs: lists of tensors of one length; first_step: the buffers become the gradients. Raises ValueError or TypeError for
/// shapes or dtypes that differ; nothing is recorded then.
#[pyfunction]
#[pyo3(signature = (params, grads, bufs, lr, weight_decay = Real::Is(0.0), momentum = Real::Is(0.0), dampening = Real::Is(0.0), nesterov = Flag::Is(false), first_step = Flag::Is(false)), text_signature = "(params, grads, bufs, lr, weight_decay=0.0, momentum=0.0, dampening=0.0, nesterov=False, first_step=False)")]
pub fn sgd_update(
    params: Leaves<'_>,
    grads: Leaves<'_>,
    bufs: Option<Leaves<'_>>,
    lr: Real<'_>,
    weight_decay: Real<'_>,
    momentum: Real<'_>,
    dampening: Real<'_>,
    nesterov: Flag<'_>,
    first_step: Flag<'_>,
) -> PyResult<()> {
    check_counts(
        "sgd",
        params.len(),
        &[("gradients", grads.len()), ("momentum buffers", bufs.as_ref().map_or(params.len(), Vec::len))],
    )?;
    let hyper = SgdHyper {
        lr: lr.of("sgd", "lr")?,
        weight_decay: weight_decay.of("sgd", "weight_decay")?,
        momentum: momentum.of("sgd", "momentum")?,
        dampening: dampening.of("sgd", "dampening")?,
        is_nesterov: nesterov.of("sgd", "nesterov")?,
        is_first: first_step.of("sgd", "first_step")?,
    };
    let _paused = Scope::enter(|s| s.paused = true);
    let mut new = Vec::with_capacity(params.len());
    for (i, (p, g)) in params.iter().zip(&grads).enumerate() {
        let buf = bufs.as_ref().map(|b| b[i].get().tensor());
        new.push(sgd(&p.get().tensor(), &g.get().tensor(), buf.as_ref(), &hyper)?);
    }
    put_all(&new, [Some(params), bufs].into_iter().flatten());
    Ok(())
}

/// Adam (decoupled: AdamW) on each parameter and its two moments; the same objects get new values, unrecorded, which `finish_updates`
/// computes.
///
/// params, grads, means, squares: lists of tensors of one length; step counts from 1. Raises ValueError or TypeError for shapes or dtypes
/// that differ; nothing is recorded then.
#[pyfunction]
#[pyo3(signature = (params, grads, means, squares, lr, beta1, beta2, eps, weight_decay, step, decoupled))]
pub fn adam_update(
    params: Leaves<'_>,
    grads: Leaves<'_>,
    means: Leaves<'_>,
    squares: Leaves<'_>,
    lr: Real<'_>,
    beta1: Real<'_>,
    beta2: Real<'_>,
    eps: Real<'_>,
    weight_decay: Real<'_>,
    step: &Bound<'_, PyAny>,
    decoupled: Flag<'_>,
) -> PyResult<()> {
    let others = [("gradients", grads.len()), ("first moments", means.len()), ("second moments", squares.len())];
    check_counts("adam", params.len(), &others)?;
    let step = count("adam", "step", step)? as u64;
    let hyper = AdamHyper {
        lr: lr.of("adam", "lr")?,
        beta1: beta1.of("adam", "beta1")?,
        beta2: beta2.of("adam", "beta2")?,
        eps: eps.of("adam", "eps")?,
        weight_decay: weight_decay.of("adam", "weight_decay")?,
        step,
        is_decoupled: decoupled.of("adam", "decoupled")?,
    };
    let _paused = Scope::enter(|s| s.paused = true);
    let mut new = Vec::with_capacity(params.len());
    for (i, p) in params.iter().enumerate() {
        let (g, m, v) = (grads[i].get().tensor(), means[i].get().tensor(), squares[i].get().tensor());
        new.push(adam(&p.get().tensor(), &g, &m, &v, &hyper)?);
    }
    put_all(&new, [params, means, squares].into_iter());
    Ok(())
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; sgd_update, adam_update, finish_updates, abandon_updates);
    Ok(())
}
