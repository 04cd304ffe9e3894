//! Budgets as Python gives them, and the error of one that cannot be met.
use super::arguments::integer_object;
use pyo3::create_exception;
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

create_exception!(
    agtape,
    BudgetError,
    PyMemoryError,
    "A budget for which no plan was found; `smallest_bytes` is the smallest for which one was. Nothing of the plan has run."
);

/// The error with its figure.
pub fn budget_error(text: String, smallest: usize) -> PyErr {
    let error = BudgetError::new_err(text);
    Python::attach(|py| match error.value(py).setattr("smallest_bytes", smallest) {
        Ok(()) => error.clone_ref(py),
        Err(other) => other,
    })
}

const UNITS: [(&str, f64); 11] = [
    ("", 1.0),
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("kib", 1024.0),
    ("mib", 1048576.0),
    ("gib", 1073741824.0),
    ("tib", 1099511627776.0),
    ("bytes", 1.0),
];

/// A budget in bytes: an int, or a number with a unit.
pub fn parse_budget(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let expected = "expected a positive int of bytes or a text like \"1.5 GiB\" (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)";
    let refuse = || {
        PyValueError::new_err(format!(
            "grad_tape: budget is {}; {expected}",
            given.repr().map_or_else(|_| "?".to_owned(), |r| r.to_string())
        ))
    };
    if let Ok(text) = given.cast::<PyString>() {
        let text = text.to_str()?.trim().to_lowercase();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale = UNITS.iter().find(|(name, _)| *name == unit.trim()).map(|(_, scale)| *scale).ok_or_else(refuse)?;
        let bytes = number.parse::<f64>().map_err(|_| refuse())? * scale;
        return if (1.0..9e18).contains(&bytes) { Ok(bytes as usize) } else { Err(refuse()) };
    }
    let Some(number) = integer_object(given)? else {
        let kind = given.get_type().name()?;
        return Err(PyTypeError::new_err(format!("grad_tape: budget is of type {kind}; {expected}")));
    };
    let bytes = number.extract::<i64>().map_err(|_| refuse())?;
    if bytes > 0 { Ok(bytes as usize) } else { Err(refuse()) }
}

fn operand<'py>(py: Python<'py>, o: &crate::plan::OperandRow) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("temp", o.temp)?;
    d.set_item("place", o.place)?;
    d.set_item("shape", o.shape.clone())?;
    d.set_item("item_bytes", o.item_bytes)?;
    d.set_item("is_kept", o.is_kept)?;
    Ok(d)
}

/// The launches of this thread's last plan that ran a kernel, as dicts.
#[pyfunction]
pub fn last_plan_launches(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = PyList::empty(py);
    for launch in crate::plan::last_launches() {
        let d = PyDict::new(py);
        d.set_item("kernel", launch.kernel)?;
        d.set_item("shape", launch.shape)?;
        d.set_item("ins", launch.ins.iter().map(|o| operand(py, o)).collect::<PyResult<Vec<_>>>()?)?;
        d.set_item("outs", launch.outs.iter().map(|o| operand(py, o)).collect::<PyResult<Vec<_>>>()?)?;
        d.set_item("scratch", launch.scratch.iter().map(|o| operand(py, o)).collect::<PyResult<Vec<_>>>()?)?;
        rows.append(d)?;
    }
    Ok(rows)
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("BudgetError", m.py().get_type::<BudgetError>())?;
    functions!(m; last_plan_launches);
    Ok(())
}
