//! What a thread's plans launch, recorded for the memory timeline.
use crate::plan::{LaunchEvent, Observer, observe};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::thread::ThreadId;

/// One launch: the number of its plan and its own, op, segment and line, live bytes, and what it makes as (bytes, last launch).
type Row = (usize, usize, &'static str, Option<String>, Option<String>, usize, Vec<(usize, Option<usize>)>);

/// Records the launches of this thread's evaluations between `start` and `stop`.
#[pyclass(name = "_LaunchRecorder", module = "agtape", frozen)]
pub struct PyLaunchRecorder {
    rows: Arc<Mutex<Vec<Row>>>,
    /// The thread that started it, and who observed before.
    former: Mutex<Option<(ThreadId, Option<Observer>)>>,
}

fn row(event: &LaunchEvent, former: Option<&Row>) -> Row {
    let plan = former.map_or(0, |f| if event.index == 0 { f.0 + 1 } else { f.0 });
    let node = event.node;
    let segment = node.segment.as_ref().or(node.replay_of.as_ref()).map(|s| s.name.to_string());
    let made = event.made.iter().map(|life| (life.bytes, (life.last != usize::MAX).then_some(life.last)));
    (plan, event.index, node.op.name(), segment, node.place.as_deref().map(str::to_owned), event.live_bytes, made.collect())
}

#[pymethods]
impl PyLaunchRecorder {
    #[new]
    fn new() -> PyLaunchRecorder {
        PyLaunchRecorder { rows: Arc::default(), former: Mutex::new(None) }
    }

    /// Begins to record; who observed before goes on hearing of every launch.
    fn start(&self) -> PyResult<()> {
        let mut former = self.former.lock();
        if former.is_some() {
            return Err(PyRuntimeError::new_err("memory_timeline: this timeline is recording already"));
        }
        let (rows, before) = (self.rows.clone(), observe(None));
        let outer = before.clone();
        observe(Some(Arc::new(move |event: &LaunchEvent| {
            if let Some(outer) = &outer {
                outer(event);
            }
            let mut rows = rows.lock();
            let new = row(event, rows.last());
            rows.push(new);
        })));
        *former = Some((std::thread::current().id(), before));
        Ok(())
    }

    /// Ends recording.
    fn stop(&self) -> PyResult<()> {
        let mut former = self.former.lock();
        match former.take() {
            Some((thread, before)) if thread == std::thread::current().id() => {
                observe(before);
                Ok(())
            }
            other => {
                *former = other;
                Err(PyRuntimeError::new_err("memory_timeline: a timeline must be left on the thread that entered it"))
            }
        }
    }

    /// The launches so far.
    fn rows(&self) -> Vec<Row> {
        self.rows.lock().clone()
    }
}

/// Adds this file's class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyLaunchRecorder>()
}
