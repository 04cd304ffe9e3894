//! New versions of Python's tensors: what in-place changes end in, and the journal of what a segment's run has changed.
use super::leaf::leaf_version;
use super::tensor::{PyTensor, disown, own};
use crate::graph::{Tensor, placed, scope};
use crate::ops::unary::cast;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::cell::RefCell;

/// A value that is held like what Python holds.
pub struct Held(pub Tensor);

impl Held {
    /// Holds a tensor until it is dropped.
    pub fn new(t: Tensor) -> Held {
        t.hold();
        Held(t)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.unhold();
    }
}

/// A tensor object that got another version, and the one before.
pub struct Change {
    /// The object.
    pub tensor: Py<PyTensor>,
    /// The version that it had.
    pub before: Held,
}

thread_local! {
    /// What the runs under way have changed; `None` when there is none.
    static JOURNAL: RefCell<Option<Vec<Change>>> = const { RefCell::new(None) };
}

/// Notes a tensor object that is about to get another version.
fn note_change(tensor: &Bound<'_, PyTensor>) {
    JOURNAL.with(|j| {
        if let Some(list) = j.borrow_mut().as_mut() {
            list.push(Change { tensor: tensor.clone().unbind(), before: Held::new(tensor.get().tensor()) });
        }
    });
}

/// Where a run's part of the journal begins, and whether the run began the journal.
#[derive(Clone, Copy)]
pub struct Noted {
    start: usize,
    is_outermost: bool,
}

/// Begins to note changes.
pub fn begin_journal() -> Noted {
    JOURNAL.with(|j| {
        let mut journal = j.borrow_mut();
        let is_outermost = journal.is_none();
        Noted { start: journal.get_or_insert_default().len(), is_outermost }
    })
}

/// Ends a run's part of the journal: what was changed, oldest first.
pub fn end_journal(noted: Noted) -> Vec<Change> {
    JOURNAL.with(|j| {
        let mut journal = j.borrow_mut();
        let own = journal.as_mut().map(|list| list.split_off(noted.start.min(list.len()))).unwrap_or_default();
        if noted.is_outermost {
            *journal = None;
        }
        own
    })
}

/// Notes changes again, for the run around the one that made them.
pub fn note_again(py: Python<'_>, changes: &[Change]) {
    JOURNAL.with(|j| {
        if let Some(list) = j.borrow_mut().as_mut() {
            list.extend(changes.iter().map(|c| Change { tensor: c.tensor.clone_ref(py), before: Held::new(c.before.0.clone()) }));
        }
    });
}

impl PyTensor {
    /// Puts another version in place: what every update ends in. A run of a segment's function notes what it changes.
    pub fn rebind(slf: &Bound<'_, PyTensor>, new: Tensor) {
        note_change(slf);
        slf.get().put(new);
    }

    /// Puts another version in place, unnoted.
    pub fn put(&self, new: Tensor) {
        own(&new);
        let old = std::mem::replace(&mut *self.current.lock(), new.clone());
        if let Some(variable) = &self.gradient_of {
            variable.replace_grad(&old, new);
        }
        disown(&old);
    }

    /// Refuses an in-place change that a recording tape could not see (T08).
    pub fn check_in_place(&self, op: &'static str) -> PyResult<()> {
        let is_leaf = self.variable().is_some_and(|v| v.requires_grad());
        if is_leaf && scope(|s| !s.paused && !s.tapes.is_empty()) {
            return Err(PyRuntimeError::new_err(format!(
                "{op}: a leaf that requires a gradient cannot be changed in place while a tape records; use `with ag.no_grad():` or assign_()"
            )));
        }
        Ok(())
    }

    /// Rebinds to the result of an in-place op: a leaf stays a leaf, anything else is recorded as usual.
    pub fn update(slf: &Bound<'_, PyTensor>, new: Tensor) -> PyResult<()> {
        let old = slf.get().tensor();
        // A whole tensor replaced by a number has no device of its own yet.
        let new = match old.device() {
            Some(device) if new.device().is_none() => placed(&new, device),
            _ => new,
        };
        let new = cast(&new, old.dtype());
        if new.shape() != old.shape() {
            return Err(PyValueError::new_err(format!(
                "in-place: the result has shape {:?}, the tensor {:?}",
                new.shape(),
                old.shape()
            )));
        }
        match slf.get().variable() {
            Some(variable) => PyTensor::rebind(slf, leaf_version(&new, variable)),
            None => PyTensor::rebind(slf, new),
        }
        Ok(())
    }
}
