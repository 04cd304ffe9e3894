//! Options of plans.
use crate::backend::kind::Precision;
use crate::graph::{are_gradients_resident, set_default_gradients_resident, set_gradients_resident};
use crate::plan::{PlanOptions, options, set_default_options as replace_defaults, set_options as replace_options};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn as_dict<'py>(py: Python<'py>, o: &PlanOptions, resident_grads: bool) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("fuse", o.fuse)?;
    d.set_item("plan_cache", o.cache)?;
    d.set_item("anomaly", o.anomaly)?;
    d.set_item("resident_grads", resident_grads)?;
    d.set_item("deterministic", o.deterministic)?;
    d.set_item("matmul_precision", o.precision.name())?;
    Ok(d)
}

/// The precision that a word names, or the one before without a word.
fn precision(word: Option<&str>, now: Precision) -> PyResult<Precision> {
    let Some(word) = word else { return Ok(now) };
    Precision::ALL.iter().copied().find(|p| p.name() == word).ok_or_else(|| {
        let words: Vec<String> = Precision::ALL.iter().map(|p| format!("'{}'", p.name())).collect();
        PyValueError::new_err(format!("options: matmul_precision is '{word}'; expected {}", words.join(", ")))
    })
}

/// The options in force on this thread, as a dict.
#[pyfunction]
pub fn get_options(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    as_dict(py, &options(), are_gradients_resident())
}

/// Changes options of this thread (None: unchanged) and returns the former ones as a dict.
#[pyfunction]
#[pyo3(signature = (fuse = None, plan_cache = None, anomaly = None, resident_grads = None, deterministic = None, matmul_precision = None))]
pub fn set_options<'py>(
    py: Python<'py>,
    fuse: Option<bool>,
    plan_cache: Option<bool>,
    anomaly: Option<bool>,
    resident_grads: Option<bool>,
    deterministic: Option<bool>,
    matmul_precision: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let now = options();
    let new = PlanOptions {
        fuse: fuse.unwrap_or(now.fuse),
        cache: plan_cache.unwrap_or(now.cache),
        anomaly: anomaly.unwrap_or(now.anomaly),
        deterministic: deterministic.unwrap_or(now.deterministic),
        precision: precision(matmul_precision, now.precision)?,
    };
    let were_resident = match resident_grads {
        Some(on) => set_gradients_resident(on),
        None => are_gradients_resident(),
    };
    as_dict(py, &replace_options(new), were_resident)
}

/// Changes the options that threads start from, and those of this one (None: unchanged).
#[pyfunction]
#[pyo3(signature = (fuse = None, plan_cache = None, resident_grads = None, deterministic = None, matmul_precision = None))]
pub fn set_default_options(
    fuse: Option<bool>,
    plan_cache: Option<bool>,
    resident_grads: Option<bool>,
    deterministic: Option<bool>,
    matmul_precision: Option<&str>,
) -> PyResult<()> {
    let now = options();
    replace_defaults(PlanOptions {
        fuse: fuse.unwrap_or(now.fuse),
        cache: plan_cache.unwrap_or(now.cache),
        deterministic: deterministic.unwrap_or(now.deterministic),
        precision: precision(matmul_precision, now.precision)?,
        ..now
    });
    if let Some(on) = resident_grads {
        set_default_gradients_resident(on);
    }
    Ok(())
}

/// Called before the process forks.
#[pyfunction]
pub fn before_fork(py: Python<'_>) {
    py.detach(crate::plan::before_fork);
    crate::plan::before_fork_pools();
}

/// Called after the process forked, in the parent and in the child.
#[pyfunction]
pub fn after_fork(is_child: bool) {
    crate::plan::after_fork(is_child);
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; get_options, set_options, set_default_options, before_fork, after_fork);
    Ok(())
}
