//! What is a leaf's alone: its versions, its gradient, and whether it wants one.
use super::arguments::{Checked, array};
use super::export;
use super::flags::Flag;
use super::tensor::PyTensor;
use crate::graph::{Tensor, Variable, record_version};
use crate::ops::transfer::one_device;
use crate::ops::unary::cast;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::sync::Arc;

/// A new version of a leaf: the same value under the leaf's identity, recorded on no tape.
pub fn leaf_version(new: &Tensor, variable: Arc<Variable>) -> Tensor {
    record_version(new, Some(variable))
}

impl PyTensor {
    /// The gradient of a leaf as a tensor on its device, a host copy too.
    pub fn resident_grad(&self) -> Option<PyTensor> {
        let variable = self.variable()?;
        let grad = variable.grad()?;
        Some(PyTensor::gradient_of(grad, variable))
    }

    fn requires_grad_in_place(&self, on: bool) -> PyResult<()> {
        let t = self.tensor();
        if on && !t.dtype().is_float() {
            return Err(PyTypeError::new_err(format!(
                "requires_grad: only floating-point tensors can require a gradient, this is {}",
                t.dtype()
            )));
        }
        if t.node.is_recorded() {
            return Err(PyRuntimeError::new_err(
                "requires_grad: this tensor was recorded by a tape; only leaves can be changed (use detach())",
            ));
        }
        match self.variable() {
            Some(variable) => variable.set_requires_grad(on),
            None if on => self.put(leaf_version(&t, Arc::new(Variable::new(true)))),
            None => {}
        }
        Ok(())
    }
}

#[pymethods]
impl PyTensor {
    #[setter]
    fn set_requires_grad(&self, on: Flag<'_>) -> PyResult<()> {
        self.requires_grad_in_place(on.of("requires_grad", "the value")?)
    }

    /// The gradient that backward has summed up for this leaf, or None; a read-only NumPy array if `ag.options(resident_grads=False)` was in
    /// force then, else a tensor on the device.
    #[getter]
    fn grad<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.variable() {
            Some(variable) if variable.is_grad_on_host() => variable.grad().map(|grad| export::numpy(py, &grad)).transpose(),
            _ => self.resident_grad().map(|grad| Ok(Bound::new(py, grad)?.into_any())).transpose(),
        }
    }

    #[setter]
    fn set_grad(&self, grad: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(variable) = self.variable() else {
            return match grad {
                None => Ok(()),
                Some(_) => Err(PyRuntimeError::new_err("grad: only a leaf made with requires_grad=True has a gradient")),
            };
        };
        let on_host = grad.as_ref().is_some_and(|g| !g.is_instance_of::<PyTensor>());
        let mut grad = grad.map(|g| array("grad", &g)).transpose()?;
        if on_host {
            // An array of the host's library may lack the dtype: bfloat16 is read as float32.
            grad = grad.map(|g| cast(&g, self.tensor().dtype()));
        }
        if let Some(g) = &grad {
            let t = self.tensor();
            one_device("grad", &[&t, g])?;
            if g.shape() != t.shape() || g.dtype() != t.dtype() {
                return Err(PyValueError::new_err(format!(
                    "grad: got shape {:?} of {}, expected {:?} of {}",
                    g.shape(),
                    g.dtype(),
                    t.shape(),
                    t.dtype()
                )));
            }
        }
        variable.set_grad(grad);
        variable.set_grad_on_host(on_host);
        Ok(())
    }

    /// Turns this leaf's gradient on or off and returns it.
    #[pyo3(name = "requires_grad_", signature = (requires_grad = Flag::Is(true)), text_signature = "($self, requires_grad=True)")]
    fn requires_grad_method<'py>(slf: Bound<'py, PyTensor>, requires_grad: Flag<'py>) -> PyResult<Bound<'py, PyTensor>> {
        slf.get().requires_grad_in_place(requires_grad.of("requires_grad_", "requires_grad")?)?;
        Ok(slf)
    }
}

/// The gradient of a leaf as a tensor on its device, even where `.grad` is a host copy; for optimizers and clipping.
#[pyfunction]
pub fn resident_grad(leaf: &Bound<'_, PyTensor>) -> Option<PyTensor> {
    leaf.get().resident_grad()
}

/// Whether a tensor is one that can be trained: a leaf that requires a gradient, or did once and is frozen.
#[pyfunction]
pub fn is_trainable(t: &PyTensor) -> bool {
    t.variable().is_some()
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; resident_grad, is_trainable);
    Ok(())
}
