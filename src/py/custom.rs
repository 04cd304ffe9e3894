//! Python's custom ops: a gradient rule that the backward walk calls with the interpreter's lock held.
use super::error::{attached, remember};
use super::tensor::{PyTensor, wrap_all};
use crate::error::{Error, Result};
use crate::graph::{CustomRule, Fingerprint, Tensor, scope};
use crate::ops::Grads;
use crate::ops::custom::custom as record_custom;
use crate::ops::unary::zeros_like;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::Arc;

/// A Python function `rule(grads, inputs, outputs)` that returns one gradient or None an input.
struct PyRule {
    name: String,
    function: Py<PyAny>,
}

fn list<'py>(py: Python<'py>, tensors: impl IntoIterator<Item = Tensor>) -> PyResult<Bound<'py, PyList>> {
    let objects: Vec<PyTensor> = wrap_all(tensors);
    PyList::new(py, objects)
}

impl PyRule {
    fn call(&self, inputs: &[Tensor], outputs: &[Tensor], grad_outs: &[Option<Tensor>]) -> PyResult<Grads> {
        attached(|py| {
            let grads = outputs.iter().zip(grad_outs).map(|(o, g)| g.clone().unwrap_or_else(|| zeros_like(o)));
            let args = (list(py, grads)?, list(py, inputs.iter().cloned())?, list(py, outputs.iter().cloned())?);
            let found = self.function.bind(py).call1(args)?;
            let found: Vec<Option<Bound<'_, PyTensor>>> = found.extract().map_err(|_| {
                PyTypeError::new_err(format!(
                    "custom op {}: the rule returned {}; expected a list with a tensor or None for each input",
                    self.name,
                    found.get_type()
                ))
            })?;
            Ok(found.into_iter().map(|g| g.map(|g| g.get().tensor())).collect())
        })
    }
}

impl CustomRule for PyRule {
    fn name(&self) -> &str {
        &self.name
    }

    fn vjp(&self, inputs: &[Tensor], outputs: &[Tensor], grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        self.call(inputs, outputs, grad_outs).map_err(|raised| {
            // It leaves as itself.
            remember(raised);
            Error::state("custom", format!("the gradient rule of {} raised", self.name))
        })
    }
}

/// The outputs as results of one node with a gradient rule; the outputs themselves where no tape needs it.
///
/// inputs: the tensors that the rule gives gradients for. outputs: what the forward made of them, unrecorded. rule(grads, inputs, outputs)
/// gets lists of tensors and returns a list with one gradient or None an input. fingerprints() is asked inside a segment whose function is
/// called again: for the rule and for its arguments, a list with two numbers for each object, and the tensors in them.
#[pyfunction]
pub fn custom(
    inputs: Vec<Bound<'_, PyTensor>>,
    outputs: Vec<Bound<'_, PyTensor>>,
    rule: Py<PyAny>,
    name: String,
    fingerprints: Bound<'_, PyAny>,
) -> PyResult<Vec<PyTensor>> {
    let rule = Arc::new(PyRule { name: name.clone(), function: rule });
    let made = record_custom(rule, &core(&inputs), &core(&outputs))?;
    let log = scope(|s| s.log.clone());
    if let (Some(log), Some(node)) = (log, made.first().map(|t| &t.node).filter(|n| n.is_recorded())) {
        let [rule, arguments]: [Found<'_>; 2] = fingerprints.call0()?.extract()?;
        log.push_rule(node, &name, &fingerprint(rule), &fingerprint(arguments));
    }
    Ok(wrap_all(made))
}

/// The parts of a fingerprint and its tensors, as Python gives them.
type Found<'py> = (Vec<(u64, u64)>, Vec<Bound<'py, PyTensor>>);

fn fingerprint((parts, tensors): Found<'_>) -> Fingerprint {
    Fingerprint { parts, tensors: core(&tensors) }
}

fn core(list: &[Bound<'_, PyTensor>]) -> Vec<Tensor> {
    list.iter().map(|t| t.get().tensor()).collect()
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; custom);
    Ok(())
}
