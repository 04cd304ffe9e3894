//! The one map from the core's errors to Python's exceptions; Python's own pass through unchanged.
use crate::error::Error;
use pyo3::exceptions::{
    PyFloatingPointError, PyIndexError, PyKeyboardInterrupt, PyMemoryError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use std::cell::RefCell;

thread_local! {
    /// An exception that Python raised while the core was running; it leaves as itself.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Remembers an exception of the user's code until the core has returned.
pub fn remember(error: PyErr) {
    RAISED.with(|r| *r.borrow_mut() = Some(error));
}

/// Runs a call into Python from the midst of the core's work; refused once the interpreter has ended, when a daemon thread may still be
/// at work.
pub fn attached<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> PyResult<T> {
    Python::try_attach(f).unwrap_or_else(|| Err(Error::Interrupted.into()))
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
