//! The Python module: registration only.

/// Adds functions to the Python module.
macro_rules! functions {
    ($m:expr; $($f:path),* $(,)?) => {{
        $( $m.add_function(pyo3::wrap_pyfunction!($f, $m)?)?; )*
    }};
}

mod arguments;
mod arith;
mod budget;
mod checkpoint;
mod convert;
mod creation;
mod custom;
mod devices;
mod dlpack;
mod dtype;
mod elementwise;
mod error;
mod export;
mod files;
mod flags;
mod imports;
mod indexing;
mod iteration;
mod joining;
mod leaf;
mod linear;
mod logic;
mod memory;
mod object;
mod operand;
mod options;
mod profiler;
mod random;
mod reductions;
mod report;
mod rows;
mod run;
mod shapes;
mod tape;
mod tensor;
mod timeline;
mod updates;
mod versions;

use crate::dtype::DType;
use pyo3::prelude::*;

/// Whether the user pressed Ctrl-C; the exception waits in `error::remember`. A daemon thread may still compute when the interpreter
/// has ended: what it does is over too.
fn interrupted() -> bool {
    let attached = Python::try_attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(e) => {
            error::remember(e);
            true
        }
    });
    attached.unwrap_or(true)
}

/// The user's line: the innermost Python frame outside this package.
fn place() -> Option<String> {
    Python::try_attach(|py| {
        let mut frame = py.import("sys").ok()?.call_method1("_getframe", (0,)).ok()?;
        loop {
            let code = frame.getattr("f_code").ok()?;
            let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
            let module: String =
                frame.getattr("f_globals").ok()?.get_item("__name__").and_then(|n| n.extract()).unwrap_or_default();
            if module != "agtape" && !module.starts_with("agtape.") {
                let line: i64 = frame.getattr("f_lineno").ok()?.extract().ok()?;
                return Some(format!("{file}:{line}"));
            }
            frame = frame.getattr("f_back").ok().filter(|f| !f.is_none())?;
        }
    })?
}

#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::backend::cpu::set_interrupt_hook(interrupted);
    crate::graph::set_place_hook(place);
    crate::graph::set_make_room(crate::plan::make_room);
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<tensor::PyTensor>()?;
    m.add_class::<dtype::PyDType>()?;
    m.add_class::<tape::PyTape>()?;
    for d in DType::ALL {
        m.add(if d == DType::Bool { "bool_" } else { d.name() }, dtype::PyDType(d))?;
    }
    functions!(m; dtype::dtype_of);
    functions!(m; tape::no_grad, tape::enable_grad, tape::detect_anomaly, tape::is_grad_enabled, tape::is_recording);
    functions!(m; tape::gradient, tape::watch, tape::rebind, tape::eval_pending);
    memory::register(m)?;
    budget::register(m)?;
    report::register(m)?;
    timeline::register(m)?;
    profiler::register(m)?;
    devices::register(m)?;
    options::register(m)?;
    creation::register(m)?;
    imports::register(m)?;
    dlpack::register(m)?;
    files::register(m)?;
    random::register(m)?;
    elementwise::register(m)?;
    logic::register(m)?;
    reductions::register(m)?;
    rows::register(m)?;
    shapes::register(m)?;
    joining::register(m)?;
    leaf::register(m)?;
    linear::register(m)?;
    indexing::register(m)?;
    iteration::register(m)?;
    object::register(m)?;
    updates::register(m)?;
    custom::register(m)?;
    checkpoint::register(m)?;
    Ok(())
}
