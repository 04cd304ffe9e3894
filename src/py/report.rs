//! The tape's report and forecasts of memory as Python objects.
use super::convert::device_of;
use super::tape::PyTape;
use super::tensor::{PyTensor, compute};
use crate::graph::{CustomRule, Forecast, GradState, Scope, TapeCore, Tensor, next_id, scope};
use crate::plan;
use crate::tape::{self, Fate, StorageRow};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;

/// A dict from names and values.
macro_rules! dict {
    ($py:expr; $($name:literal: $value:expr),* $(,)?) => {{
        let d = PyDict::new($py);
        $( d.set_item($name, $value)?; )*
        d
    }};
}

/// Who keeps a storage when the tape is cleared.
const fn holder(fate: Fate) -> &'static str {
    match fate {
        Fate::Pending | Fate::Freed => "",
        Fate::HeldByPython => "python",
        Fate::HeldByShare => "view or export",
        Fate::HeldByTape => "another tape",
        Fate::HeldByPending => "pending values",
    }
}

fn storage_dict<'py>(py: Python<'py>, row: &StorageRow) -> PyResult<Bound<'py, PyDict>> {
    let d = dict!(py;
        "op": row.op,
        "shape": &row.shape[..],
        "dtype": row.dtype.name(),
        "bytes": row.bytes,
        "bytes_read": row.bytes_read,
        "values": row.values,
        "kind": if row.is_operand { "operand" } else { "activation" },
        "is_held": row.is_held,
        "is_freed": row.fate == Fate::Freed,
        "held_by": holder(row.fate),
        "line": row.line.as_deref(),
        "_key": row.key,
    );
    Ok(d)
}

/// A tape, or for None the innermost recording one, else this thread's newest.
fn tape_given(tape: Option<Bound<'_, PyTape>>) -> PyResult<Option<Arc<TapeCore>>> {
    match tape {
        Some(t) => Ok(Some(t.get().core()?)),
        None => Ok(tape::current()),
    }
}

/// The functions of segments that are called again, which go when the tape is cleared.
#[pyfunction]
#[pyo3(signature = (tape = None))]
pub fn replay_functions(py: Python<'_>, tape: Option<Bound<'_, PyTape>>) -> PyResult<Vec<Py<PyAny>>> {
    let rules = tape_given(tape)?.as_ref().map(tape::replays).unwrap_or_default();
    let function = |rule: &Arc<dyn CustomRule>| rule.callee()?.downcast_ref::<Py<PyAny>>().map(|f| f.clone_ref(py));
    Ok(rules.iter().filter_map(function).collect())
}

/// The report of a tape as a dict (None: the innermost recording tape, else this thread's newest). `alone`: tensors that only the functions
/// of its segments hold.
#[pyfunction]
#[pyo3(signature = (tape = None, alone = Vec::new()))]
pub fn tape_report_dict<'py>(
    py: Python<'py>,
    tape: Option<Bound<'py, PyTape>>,
    alone: Vec<Bound<'py, PyTensor>>,
) -> PyResult<Bound<'py, PyDict>> {
    let alone = alone.iter().map(|t| t.get().tensor()).collect();
    let report = tape_given(tape)?.map(|core| tape::report(&core, alone)).unwrap_or_default();
    let needed = report.operands + report.activations;
    let (ops, segments) = (PyList::empty(py), PyList::empty(py));
    let (lines, storages) = (PyList::empty(py), PyList::empty(py));
    for row in &report.by_segment {
        segments
            .append(dict!(py; "name": &row.name[..], "kept": row.kept, "dropped": row.dropped, "replay_cost": row.replay_cost))?;
    }
    let interiors = PyList::empty(py);
    for row in &report.held_in_segments {
        interiors.append(dict!(py;
            "segment": &row.segment,
            "op": row.op,
            "shape": &row.shape[..],
            "dtype": row.dtype.name(),
            "bytes": row.bytes,
            "_key": row.key,
        ))?;
    }
    for row in &report.by_op {
        ops.append(dict!(py; "op": row.op, "nodes": row.nodes, "bytes": row.bytes))?;
    }
    for row in &report.by_line {
        lines.append(dict!(py; "line": &row.line, "nodes": row.nodes, "bytes": row.bytes))?;
    }
    for row in &report.by_storage {
        storages.append(storage_dict(py, row)?)?;
    }
    Ok(dict!(py;
        "nodes": report.nodes,
        "bytes_total": needed + report.graph,
        "bytes_operands": report.operands,
        "bytes_activations": report.activations,
        "bytes_graph": report.graph,
        "bytes_needed": needed,
        "bytes_held": report.held,
        "bytes_freed_by_clear": report.freed_by_clear,
        "by_op": ops,
        "by_segment": segments,
        "held_in_segments": interiors,
        "by_line": lines,
        "by_storage": storages,
    ))
}

/// A number that tells the tensor's storage from others while it lives; 0 if it is not computed.
#[pyfunction]
pub fn storage_key(t: &PyTensor) -> usize {
    t.tensor().value().map_or(0, |v| Arc::as_ptr(&v.storage) as usize)
}

/// Whether ops remember the line that called them, from now on on this thread; gives what was set before.
#[pyfunction]
pub fn set_source_lines(on: bool) -> bool {
    scope(|s| std::mem::replace(&mut s.lines, on))
}

/// Whether ops remember the line that called them.
#[pyfunction]
pub fn get_source_lines() -> bool {
    scope(|s| s.lines)
}

/// Calls a function that records a training step, plans what the tensors it returns need, and computes nothing.
///
/// keep: tensors that have the same version afterwards as before. Raises RuntimeError if the function reads a value, and what it raises.
/// Gives a dict: kernels, work, peak_bytes and kept_bytes, both of a device and on top of what is held there now.
#[pyfunction]
#[pyo3(signature = (record, keep, device = None))]
pub fn forecast<'py>(
    py: Python<'py>,
    record: Bound<'py, PyAny>,
    keep: Vec<Bound<'py, PyTensor>>,
    device: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let device = device_of(device)?;
    let versions: Vec<(Bound<'py, PyTensor>, Tensor)> = keep.into_iter().map(|t| (t.clone(), t.get().tensor())).collect();
    versions.iter().for_each(|(_, version)| version.hold());
    let newest = tape::newest();
    let first = next_id();
    let planned = {
        let _nothing_runs = Forecast::enter();
        // As if no tape were open: nothing of this is recorded on those that are.
        let _recording = Scope::enter(|s| *s = GradState::default());
        record.call0().and_then(|made| {
            let planned = compute(py, || plan::forecast(first, device));
            drop(made);
            planned
        })
    };
    tape::set_newest(newest);
    for (t, version) in &versions {
        let now = t.get().tensor();
        if !Arc::ptr_eq(&now.node, &version.node) || now.index != version.index {
            t.get().put(version.clone());
        }
        version.unhold();
    }
    let planned = planned?;
    Ok(dict!(py;
        "kernels": planned.kernels,
        "work": planned.work,
        "peak_bytes": planned.peak_bytes,
        "kept_bytes": planned.kept_bytes,
    ))
}

/// The most bytes that buffers may have together (None: what the machine has); gives what was set before.
#[pyfunction]
#[pyo3(signature = (bytes = None))]
pub fn set_memory_limit(bytes: Option<usize>) -> Option<usize> {
    crate::graph::set_memory_limit(bytes)
}

/// Bytes that a storage of so many bytes takes: its size class.
#[pyfunction]
pub fn class_bytes(bytes: usize) -> usize {
    crate::pool::class_bytes(bytes)
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; tape_report_dict, replay_functions, storage_key, set_source_lines, get_source_lines, forecast, set_memory_limit, class_bytes);
    Ok(())
}
