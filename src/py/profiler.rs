//! What evaluations took between two moments, as figures for `ag.profile`.
use super::tensor::compute;
use crate::plan::{LaunchCounts, Profile, Span};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A profile: it hears what all threads evaluate between `start` and `stop`.
#[pyclass(name = "_Profiler", module = "agtape", frozen)]
pub struct PyProfiler(Mutex<Option<Arc<Profile>>>);

impl Drop for PyProfiler {
    fn drop(&mut self) {
        if let Some(profile) = self.0.get_mut() {
            profile.abandon();
        }
    }
}

fn counts_dict<'py>(py: Python<'py>, counts: &LaunchCounts) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("kernel", counts.kernel)?;
    d.set_item("ops", &counts.ops)?;
    d.set_item("dtype", counts.dtype)?;
    d.set_item("shape", &counts.shape)?;
    d.set_item("terms", counts.terms)?;
    d.set_item("bytes_read", counts.bytes_read)?;
    d.set_item("bytes_written", counts.bytes_written)?;
    d.set_item("flops", counts.operations)?;
    Ok(d)
}

fn span_tuple(span: &Span) -> (&'static str, u32, u64, u64) {
    (span.stage.name(), span.thread, span.begin, span.end)
}

#[pymethods]
impl PyProfiler {
    #[new]
    fn new() -> PyProfiler {
        PyProfiler(Mutex::new(None))
    }

    /// Begins to listen; `kernels` says whether to every launch.
    fn start(&self, kernels: bool) -> PyResult<()> {
        let mut profile = self.0.lock();
        if profile.is_some() {
            return Err(PyRuntimeError::new_err(
                "profile: this profile was entered before; each is for one block: make a new one",
            ));
        }
        *profile = Some(Profile::open(kernels));
        Ok(())
    }

    /// Stops listening, when devices have told what they still owe.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let profile = self.0.lock().clone();
        match profile {
            Some(profile) => compute(py, || profile.close()),
            None => Ok(()),
        }
    }

    /// What was heard so far, times in nanoseconds: `begin`, `end`, `thread`; `kernels`, dicts of what launches do; `evaluations` as
    /// (device, thread, begin, end, whether the plan was known, its first kernel); `launches` as (evaluation, kernel, begin and end or
    /// None, whether the device's clock tells, whether it rebuilds, segment, its dispatches as shader and time); `spans` as (stage, thread, begin, end).
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let d = PyDict::new(py);
        let Some(profile) = self.0.lock().clone() else { return Ok(d) };
        let (evaluations, kernels) = (profile.evaluations(), PyList::empty(py));
        let mut firsts: FxHashMap<*const Vec<LaunchCounts>, usize> = FxHashMap::default();
        let mut rows = Vec::with_capacity(evaluations.len());
        let mut spans: Vec<_> = profile.duties().iter().map(span_tuple).collect();
        for evaluation in &evaluations {
            let at = Arc::as_ptr(&evaluation.counts);
            let first = match firsts.get(&at) {
                Some(&first) => first,
                None => {
                    let first = kernels.len();
                    for counts in evaluation.counts.iter() {
                        kernels.append(counts_dict(py, counts)?)?;
                    }
                    firsts.insert(at, first);
                    first
                }
            };
            let device = evaluation.device.to_string();
            rows.push((device, evaluation.thread, evaluation.begin, evaluation.end, evaluation.cache_hit, first));
            spans.extend(evaluation.spans.iter().map(span_tuple));
        }
        let launches: Vec<_> = profile
            .launches()
            .into_iter()
            .map(|l| {
                let (kernel, segment) = (rows[l.evaluation].5 + l.launch, l.segment.map(String::from));
                (l.evaluation, kernel, l.time, l.is_by_device, l.is_rebuilt, segment, l.dispatches)
            })
            .collect();
        d.set_item("begin", profile.begin)?;
        d.set_item("end", profile.end())?;
        d.set_item("thread", profile.thread)?;
        d.set_item("kernels", kernels)?;
        d.set_item("evaluations", rows)?;
        d.set_item("launches", launches)?;
        d.set_item("spans", spans)?;
        Ok(d)
    }
}

/// Adds this file's class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyProfiler>()
}
