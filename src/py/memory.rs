//! Handles, statistics and peak scopes as Python objects.
use super::convert::device_given;
use crate::backend::transfers::transfers;
use crate::device::Device;
use crate::graph::pools;
use crate::pool::{Handle, PoolKind, ScopeId, Stats};
use crate::tape;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A checked reference to one storage; it owns nothing.
#[pyclass(name = "Handle", module = "agtape", frozen)]
pub struct PyHandle(pub Device, pub Handle);

#[pymethods]
impl PyHandle {
    /// The pool: "persistent" or "pass".
    #[getter]
    fn pool(&self) -> String {
        self.1.pool_name()
    }

    /// The slot of the storage in its pool.
    #[getter]
    fn slot(&self) -> u32 {
        self.1.slot
    }

    /// Drawn from the pool's counter when the storage was allocated.
    #[getter]
    fn generation(&self) -> u32 {
        self.1.generation.get()
    }

    /// Whether the storage is still there under this handle.
    #[getter]
    fn is_valid(&self) -> bool {
        pools(self.0).lock().get(self.1).is_ok()
    }

    /// Raises RuntimeError with pool and both generations if the handle is stale.
    fn check(&self) -> PyResult<()> {
        pools(self.0).lock().get(self.1).map(|_| ()).map_err(|e| crate::error::Error::from(e).into())
    }

    fn __repr__(&self) -> String {
        let is_valid = if self.is_valid() { "True" } else { "False" };
        format!("Handle(pool={:?}, slot={}, generation={}, is_valid={is_valid})", self.pool(), self.slot(), self.generation())
    }
}

fn stats_dict<'py>(py: Python<'py>, stats: &Stats, with_generation: bool) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("active", stats.active)?;
    d.set_item("peak", stats.peak)?;
    d.set_item("cached", stats.cached)?;
    d.set_item("reserved", stats.reserved)?;
    if with_generation {
        d.set_item("generation", stats.generation)?;
    }
    Ok(d)
}

/// Pool bytes of a device as a dict: active, peak, cached, reserved and the same by kind of pool.
#[pyfunction]
#[pyo3(signature = (device = None))]
pub fn memory_stats_dict<'py>(py: Python<'py>, device: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
    let (all, persistent, pass) = {
        let pools = pools(device_given("memory_stats", device.as_ref())?).lock();
        (pools.stats(), pools.stats_of(PoolKind::Persistent), pools.stats_of(PoolKind::Pass))
    };
    let d = stats_dict(py, &all, false)?;
    let pools = PyDict::new(py);
    pools.set_item("pass", stats_dict(py, &pass, true)?)?;
    pools.set_item("persistent", stats_dict(py, &persistent, true)?)?;
    d.set_item("pools", pools)?;
    Ok(d)
}

/// Sets the peak back to what is active.
#[pyfunction]
#[pyo3(signature = (device = None))]
pub fn reset_peak_memory(device: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    pools(device_given("reset_peak_memory", device.as_ref())?).lock().reset_peak();
    Ok(())
}

/// The highest `reserved` that a device had since its peaks began; for tests of budgets, which bound it at every moment.
#[pyfunction]
#[pyo3(signature = (device = None))]
pub fn reserved_peak(device: Option<Bound<'_, PyAny>>) -> PyResult<usize> {
    Ok(pools(device_given("reserved_peak", device.as_ref())?).lock().reserved_peak())
}

/// How many buffers the pools of a device have asked the system for so far; for tests that a steady step asks for none.
#[pyfunction]
#[pyo3(signature = (device = None))]
pub fn buffers_granted(device: Option<Bound<'_, PyAny>>) -> PyResult<u64> {
    Ok(pools(device_given("buffers_granted", device.as_ref())?).lock().granted())
}

/// Returns cached buffers to the system; gives the bytes returned.
#[pyfunction]
#[pyo3(signature = (device = None))]
pub fn empty_cache(py: Python<'_>, device: Option<Bound<'_, PyAny>>) -> PyResult<usize> {
    let device = device_given("empty_cache", device.as_ref())?;
    // An adapter that is at work is waited for.
    Ok(py.detach(|| pools(device).lock().trim()))
}

/// This thread's last plan that ran a kernel, as a dict.
#[pyfunction]
pub fn last_plan_dict(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let plan = crate::plan::last_plan();
    let d = PyDict::new(py);
    d.set_item("kernels", plan.kernels)?;
    d.set_item("nodes", plan.nodes)?;
    d.set_item("buffer_bytes", plan.buffer_bytes)?;
    d.set_item("peak_bytes", plan.peak_bytes)?;
    d.set_item("measured_peak_bytes", plan.measured_peak_bytes)?;
    d.set_item("rebuilds", plan.spent.rebuilds)?;
    d.set_item("work", plan.work)?;
    d.set_item("work_ratio", plan.work_ratio())?;
    d.set_item("cache_hit", plan.cache_hit)?;
    Ok(d)
}

/// What this thread's last backward pass did, as a dict.
#[pyfunction]
pub fn last_backward_dict(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let last = tape::last_backward();
    let d = PyDict::new(py);
    d.set_item("path", if last.is_on_host { "host" } else { "resident" })?;
    d.set_item("nodes", last.nodes)?;
    d.set_item("segments_replayed", last.segments_replayed)?;
    d.set_item("kernels", last.kernels)?;
    d.set_item("bytes", last.bytes)?;
    d.set_item("cache_hit", last.cache_hit)?;
    Ok(d)
}

/// What moved between host and devices since the process began, as a dict.
#[pyfunction]
pub fn transfers_dict(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let total = transfers();
    let d = PyDict::new(py);
    d.set_item("to_host", total.to_host)?;
    d.set_item("to_host_bytes", total.to_host_bytes)?;
    d.set_item("to_device", total.to_device)?;
    d.set_item("to_device_bytes", total.to_device_bytes)?;
    d.set_item("arguments_bytes", total.arguments_bytes)?;
    Ok(d)
}

/// Hits, misses and kept plans of the plan cache, as a dict.
#[pyfunction]
pub fn plan_cache_dict(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let stats = py.detach(crate::plan::cache_stats);
    let d = PyDict::new(py);
    d.set_item("hits", stats.hits)?;
    d.set_item("misses", stats.misses)?;
    d.set_item("plans", stats.plans)?;
    Ok(d)
}

/// Forgets every plan.
#[pyfunction]
pub fn clear_plan_cache(py: Python<'_>) {
    py.detach(crate::plan::clear_cache);
}

/// A scope that knows the highest number of active pool bytes inside it, what was held at entry included.
///
/// >>> import agtape as ag
/// >>> with ag.peak_memory() as m:
/// ...     x = ag.eval(ag.zeros(1000))
/// >>> m.peak >= 4000
/// True
#[pyclass(name = "peak_memory", module = "agtape", frozen)]
pub struct PyPeak {
    device: Device,
    state: Mutex<Peak>,
}

enum Peak {
    New,
    Open(ScopeId),
    Closed(usize),
}

impl Drop for PyPeak {
    fn drop(&mut self) {
        if let Peak::Open(id) = *self.state.get_mut() {
            pools(self.device).lock().close_peak_scope(id);
        }
    }
}

#[pymethods]
impl PyPeak {
    #[new]
    #[pyo3(signature = (device = None))]
    fn new(device: Option<Bound<'_, PyAny>>) -> PyResult<PyPeak> {
        Ok(PyPeak { device: device_given("peak_memory", device.as_ref())?, state: Mutex::new(Peak::New) })
    }

    fn __enter__(slf: Bound<'_, PyPeak>) -> PyResult<Bound<'_, PyPeak>> {
        let scope = slf.get();
        let mut state = scope.state.lock();
        if matches!(*state, Peak::Open(_)) {
            return Err(PyRuntimeError::new_err("peak_memory: this scope is open already"));
        }
        *state = Peak::Open(pools(scope.device).lock().open_peak_scope());
        drop(state);
        Ok(slf)
    }

    fn __exit__(&self, _kind: Bound<'_, PyAny>, _value: Bound<'_, PyAny>, _trace: Bound<'_, PyAny>) -> bool {
        let mut state = self.state.lock();
        if let Peak::Open(id) = *state {
            *state = Peak::Closed(pools(self.device).lock().close_peak_scope(id));
        }
        false
    }

    /// Bytes; frozen when the scope ends.
    #[getter]
    fn peak(&self) -> usize {
        match *self.state.lock() {
            Peak::New => 0,
            Peak::Open(id) => pools(self.device).lock().scope_peak(id).unwrap_or(0),
            Peak::Closed(peak) => peak,
        }
    }

    /// The peak as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let d = PyDict::new(py);
        d.set_item("peak", self.peak())?;
        Ok(d)
    }

    fn __repr__(&self) -> String {
        format!("peak_memory(peak={} bytes)", self.peak())
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyHandle>()?;
    m.add_class::<PyPeak>()?;
    functions!(m; memory_stats_dict, reset_peak_memory, reserved_peak, buffers_granted, empty_cache, last_plan_dict, last_backward_dict);
    functions!(m; plan_cache_dict, clear_plan_cache, transfers_dict);
    Ok(())
}
