//! The Python module: registration only.
mod arith;
mod convert;
mod dtype;
mod error;
mod export;
mod memory;
mod tape;
mod tensor;

use crate::dtype::DType;
use pyo3::prelude::*;

/// Whether the user pressed Ctrl-C; the exception waits in `error::remember`.
fn interrupted() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(e) => {
            error::remember(e);
            true
        }
    })
}

/// The user's line: the innermost Python frame outside this package.
fn place() -> Option<String> {
    Python::attach(|py| {
        let mut frame = py.import("sys").ok()?.call_method1("_getframe", (0,)).ok()?;
        loop {
            let code = frame.getattr("f_code").ok()?;
            let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
            let module: String = frame.getattr("f_globals").ok()?.get_item("__name__").and_then(|n| n.extract()).unwrap_or_default();
            if module != "agtape" && !module.starts_with("agtape.") {
                let line: i64 = frame.getattr("f_lineno").ok()?.extract().ok()?;
                return Some(format!("{file}:{line}"));
            }
            frame = frame.getattr("f_back").ok().filter(|f| !f.is_none())?;
        }
    })
}

#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::backend::cpu::set_interrupt_hook(interrupted);
    crate::graph::set_place_hook(place);
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<tensor::PyTensor>()?;
    m.add_class::<dtype::PyDType>()?;
    m.add_class::<tape::PyTape>()?;
    m.add_class::<memory::PyHandle>()?;
    for d in DType::ALL {
        m.add(if d == DType::Bool { "bool_" } else { d.name() }, dtype::PyDType(d))?;
    }
    for f in [
        wrap_pyfunction!(dtype::dtype_of, m)?,
        wrap_pyfunction!(tape::no_grad, m)?,
        wrap_pyfunction!(tape::enable_grad, m)?,
        wrap_pyfunction!(tape::detect_anomaly, m)?,
        wrap_pyfunction!(tape::is_grad_enabled, m)?,
        wrap_pyfunction!(tape::gradient, m)?,
        wrap_pyfunction!(tape::watch, m)?,
        wrap_pyfunction!(tape::eval_pending, m)?,
        wrap_pyfunction!(memory::memory_stats_dict, m)?,
        wrap_pyfunction!(memory::reset_peak_memory, m)?,
        wrap_pyfunction!(memory::empty_cache, m)?,
        wrap_pyfunction!(memory::tape_report_dict, m)?,
        wrap_pyfunction!(memory::last_plan_dict, m)?,
        wrap_pyfunction!(memory::last_backward_dict, m)?,
        wrap_pyfunction!(memory::plan_cache_dict, m)?,
        wrap_pyfunction!(memory::clear_plan_cache, m)?,
    ] {
        m.add_function(f)?;
    }
    Ok(())
}
