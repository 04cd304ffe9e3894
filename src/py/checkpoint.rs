//! Segments as Python sees them: the scope of one that is traced, and the gradient rule of one whose function is called again.
use super::error::{attached, remember};
use super::run::PyRun;
use super::tape::Unsent;
use super::tensor::{PyTensor, wrap_all};
use crate::checkpoint;
use crate::error::{Error, Result};
use crate::graph::{CustomRule, Scope, Segment, Tensor, outside_walk, record_version};
use crate::ops::Grads;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::any::Any;
use std::sync::Arc;
use std::thread::ThreadId;

/// A segment under way, and the thread it was entered on.
type Entered = (ThreadId, Unsent<(Scope, Arc<Segment>)>);

/// A scope whose recorded nodes belong to a segment of this name.
#[pyclass(name = "_Segment", module = "agtape", frozen)]
pub struct PySegment {
    name: String,
    entered: Mutex<Option<Entered>>,
}

#[pymethods]
impl PySegment {
    #[new]
    fn new(name: String) -> PySegment {
        PySegment { name, entered: Mutex::new(None) }
    }

    fn __enter__(slf: Bound<'_, PySegment>) -> PyResult<Bound<'_, PySegment>> {
        let me = slf.get();
        let mut entered = me.entered.lock();
        if entered.is_some() {
            return Err(PyRuntimeError::new_err(format!("checkpoint: segment {} was entered already", me.name)));
        }
        *entered = checkpoint::open(&me.name).map(|s| (std::thread::current().id(), Unsent((checkpoint::enter(&s), s))));
        drop(entered);
        Ok(slf)
    }

    fn __exit__(&self, _kind: Bound<'_, PyAny>, _value: Bound<'_, PyAny>, _trace: Bound<'_, PyAny>) -> PyResult<bool> {
        let entered = self.entered.lock().take();
        match entered {
            None => Ok(false),
            Some((thread, Unsent((scope, segment)))) if thread == std::thread::current().id() => {
                drop(scope);
                checkpoint::close(&segment);
                Ok(false)
            }
            other => {
                *self.entered.lock() = other;
                Err(PyRuntimeError::new_err("checkpoint: a segment must be left on the thread that entered it"))
            }
        }
    }
}

/// The rule of a segment whose function is called again: `replay(grads, inputs)` gives one gradient or None an input.
pub struct PyReplay {
    /// The segment's name.
    pub name: String,
    /// Python's function.
    pub replay: Py<PyAny>,
    /// Which outputs of the function are outputs of the node.
    pub wanted: Vec<usize>,
    /// How many outputs the function has.
    pub outputs: usize,
    /// The report's row lives as long as the rule.
    pub _segment: Arc<Segment>,
}

impl PyReplay {
    fn call(&self, inputs: &[Tensor], grad_outs: &[Option<Tensor>]) -> PyResult<Grads> {
        attached(|py| {
            let mut grads: Vec<Option<Tensor>> = vec![None; self.outputs];
            for (&o, g) in self.wanted.iter().zip(grad_outs) {
                grads[o] = g.clone();
            }
            let grads: Vec<Option<PyTensor>> = grads.into_iter().map(|g| g.map(PyTensor::from)).collect();
            let args = (PyList::new(py, grads)?, PyList::new(py, wrap_all(inputs.iter().cloned()))?);
            let found = self.replay.bind(py).call1(args)?;
            let found: Vec<Option<Bound<'_, PyTensor>>> = found.extract()?;
            // A computed value goes with its Python object unless something else reads it by then.
            let keep = |t: Tensor| if t.requires_grad() { t } else { record_version(&t, None) };
            Ok(found.into_iter().map(|g| g.map(|g| keep(g.get().tensor()))).collect())
        })
    }
}

impl CustomRule for PyReplay {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_replay(&self) -> bool {
        true
    }

    fn callee(&self) -> Option<&dyn Any> {
        Some(&self.replay)
    }

    fn vjp(&self, inputs: &[Tensor], _outputs: &[Tensor], grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        outside_walk(|| self.call(inputs, grad_outs)).map_err(|raised| {
            // It leaves as itself.
            remember(raised);
            Error::state("checkpoint", format!("the replay of {} raised", self.name))
        })
    }
}

/// Adds this file's classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySegment>()?;
    m.add_class::<PyRun>()?;
    Ok(())
}
