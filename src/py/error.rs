//! The one map from the core's errors to Python's exceptions; Python's own pass through unchanged, save those that say an argument does
//! not fit, which get the name of the op.
use crate::error::Error;
use pyo3::exceptions::{
    PyFloatingPointError, PyIndexError, PyKeyboardInterrupt, PyMemoryError, PyOverflowError, PyRuntimeError, PyTypeError,
    PyValueError,
};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::ffi::c_long;

thread_local! {
    /// An exception that Python raised while the core was running; it leaves as itself.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Remembers an exception of the user's code until the core has returned.
pub fn remember(error: PyErr) {
    RAISED.with(|r| *r.borrow_mut() = Some(error));
}

/// Lets Python raise what was remembered as soon as it goes on: for a call that cannot fail itself.
pub fn raise_soon() {
    let Some(raised) = RAISED.with(|r| r.borrow_mut().take()) else { return };
    Python::attach(|py| {
        let thread = py.import("threading").and_then(|m| m.call_method0("get_ident")).and_then(|id| id.extract::<c_long>());
        if let Ok(thread) = thread {
            // SAFETY: this thread is attached, and the exception's class is alive for the call, which takes a reference of its own.
            unsafe { pyo3::ffi::PyThreadState_SetAsyncExc(thread, raised.get_type(py).as_ptr()) };
        }
    });
}

/// Runs a call into Python from the midst of the core's work; refused once the interpreter has ended, when a daemon thread may still be
/// at work.
pub fn attached<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> PyResult<T> {
    Python::try_attach(f).unwrap_or_else(|| Err(Error::Interrupted.into()))
}

/// `None` where something is of the wrong type for what was asked of it; what else its own code raises is not ours to hide.
pub fn unless_wrong_type<T>(py: Python<'_>, found: PyResult<T>) -> PyResult<Option<T>> {
    match found {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_instance_of::<PyTypeError>(py) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether an exception says that an object is of no use here. Others (an interrupt, no memory, an error in the object's own code that
/// computes a value) leave as they are.
pub fn is_misfit(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyValueError>(py)
        || error.is_instance_of::<PyOverflowError>(py)
}

/// The error of making a tensor, by the name of the op that was to have it; what is no misfit stays as it is.
pub fn named(op: &str, py: Python<'_>, error: PyErr) -> PyErr {
    if !is_misfit(py, &error) {
        return error;
    }
    let text = error.value(py).to_string();
    let why = text.strip_prefix("tensor: ").unwrap_or(&text);
    match error.is_instance_of::<PyTypeError>(py) {
        true => PyTypeError::new_err(format!("{op}: {why}")),
        false => PyValueError::new_err(format!("{op}: {why}")),
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        if let Some(raised) = RAISED.with(|r| r.borrow_mut().take()) {
            return raised;
        }
        let text = error.to_string();
        match error {
            Error::Value { .. } => PyValueError::new_err(text),
            Error::Type { .. } => PyTypeError::new_err(text),
            Error::Index { .. } => PyIndexError::new_err(text),
            Error::Anomaly { .. } => PyFloatingPointError::new_err(text),
            Error::Memory { .. } => PyMemoryError::new_err(text),
            Error::Budget { smallest, .. } => super::budget::budget_error(text, smallest),
            Error::Interrupted => PyKeyboardInterrupt::new_err(text),
            Error::Device { .. } => super::devices::DeviceError::new_err(text),
            Error::State { .. } | Error::Handle { .. } | Error::Internal(_) => PyRuntimeError::new_err(text),
        }
    }
}
