//! Segments as Python sees them: a scope that is entered, and left on any exit.
use super::tape::Unsent;
use crate::checkpoint;
use crate::graph::{Scope, Segment};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
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

/// Adds this file's classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySegment>()?;
    Ok(())
}
