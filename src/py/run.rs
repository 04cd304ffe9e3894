//! The runs of a segment whose function is called again: the first is logged, the second compared with it and differentiated.
use super::checkpoint::PyReplay;
use super::tape::Unsent;
use super::tensor::{PyTensor, compute, wrap_all};
use super::versions::{Change, Held, Noted, begin_journal, end_journal, note_again};
use crate::checkpoint;
use crate::device::Device;
use crate::graph::{
    Log, Obeying, Probe, Scope, TapeCore, Tensor, go_on_obeying, is_wanted_in, next_id, pooled_devices, pools, scope,
};
use crate::ops::custom;
use crate::plan::{evaluate_pending, name_replay};
use crate::pool::PoolId;
use crate::tape;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use smallvec::smallvec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::ThreadId;

/// A run under way.
struct Running {
    thread: ThreadId,
    scope: Unsent<Scope>,
    /// The budgets of the tapes that do not record meanwhile.
    obeyed: Vec<Obeying>,
    tape: Arc<TapeCore>,
    noted: Noted,
    /// What the second run finds changed, to be put back.
    present: Vec<Change>,
}

/// One run of a segment's function: the first, whose ops are logged, or a second, which is compared with it and differentiated.
#[pyclass(name = "_Run", module = "agtape", frozen)]
pub struct PyRun {
    name: String,
    first: Option<Py<PyRun>>,
    /// The tensors that the function is given, and in a second run what it finds by itself.
    inputs: Mutex<Vec<Tensor>>,
    given: usize,
    /// Which of them the tapes around the first run could send a gradient to.
    required: Vec<bool>,
    /// Which of those that the function is given wanted a gradient in the first run; what comes of the others wants none in a second one.
    wanting: Mutex<Vec<bool>>,
    /// Numbers of the tapes around the first run.
    outer: Vec<u32>,
    /// The number that the first node made in it may have.
    first_node: AtomicU64,
    /// The innermost of them, its generation, and the generations of its pool and the persistent one.
    around: Option<(Arc<TapeCore>, u32)>,
    pools: Vec<(Device, PoolId, u64)>,
    log: Mutex<Arc<Log>>,
    running: Mutex<Option<Running>>,
    tape: Mutex<Option<Arc<TapeCore>>>,
    /// Versions before the first run of what it changed.
    changes: Mutex<Vec<Change>>,
    /// Versions to which what a second run changed goes back, once the segments that it ran itself have run a second time.
    going_back: Mutex<Vec<Change>>,
    difference: Mutex<Option<String>>,
}

impl PyRun {
    fn build(name: String, first: Option<Py<PyRun>>, inputs: Vec<Tensor>, required: Vec<bool>, outer: Vec<u32>) -> PyRun {
        let innermost = match &first {
            Some(first) => first.get().around.as_ref().map(|(tape, _)| tape.clone()),
            None => scope(|s| s.tapes.last().cloned()),
        };
        let pools = {
            let mut watched: Vec<_> = pooled_devices().map(|d| (d, pools(d).lock().persistent())).collect();
            watched.extend(innermost.iter().flat_map(|t| t.pools.lock().clone()));
            watched.into_iter().map(|(d, id)| (d, id, pools(d).lock().generation(id).unwrap_or(0))).collect()
        };
        PyRun {
            name,
            first,
            inputs: Mutex::new(inputs),
            given: required.len(),
            required,
            wanting: Mutex::default(),
            outer,
            first_node: AtomicU64::new(0),
            around: innermost.map(|t| (t.clone(), t.generation.load(Relaxed))),
            pools,
            log: Mutex::default(),
            running: Mutex::new(None),
            tape: Mutex::new(None),
            changes: Mutex::default(),
            going_back: Mutex::default(),
            difference: Mutex::new(None),
        }
    }

    /// Of a second run's inputs, those that wanted a gradient in this first one.
    fn sources<'a>(&self, inputs: &'a [Tensor]) -> impl Iterator<Item = &'a Tensor> {
        let wanting = self.wanting.lock().clone();
        // What the function found by itself was found because it wants one.
        inputs.iter().enumerate().filter(move |(i, _)| wanting.get(*i).copied().unwrap_or(true)).map(|(_, t)| t)
    }

    /// Puts the versions in place that the first run found; what is there now comes back at the end.
    fn go_back(&self, py: Python<'_>) -> Vec<Change> {
        let Some(first) = &self.first else { return Vec::new() };
        let changes = first.get().changes.lock();
        let swap = |c: &Change| {
            let object = c.tensor.get();
            let present = Change { tensor: c.tensor.clone_ref(py), before: Held::new(object.tensor()) };
            object.put(c.before.0.clone());
            present
        };
        changes.iter().map(swap).collect()
    }

    /// Ends the journal of a run. Gives the first one's changes as they were before it; a second one's stay until `undo`.
    fn settle(&self, running: &mut Running, py: Python<'_>) -> Vec<Change> {
        let noted = end_journal(running.noted);
        let is_first = self.first.is_none();
        if is_first {
            note_again(py, &noted);
        }
        let mut own: Vec<Change> = Vec::new();
        for change in noted {
            // What was made in the run is its own affair.
            let is_outside = self.log.lock().is_outside(&change.before.0.node);
            if is_outside && !own.iter().any(|c| c.tensor.is(&change.tensor)) {
                own.push(change);
            }
        }
        if is_first {
            return own;
        }
        own.append(&mut running.present);
        *self.going_back.lock() = own;
        Vec::new()
    }
}

#[pymethods]
impl PyRun {
    #[new]
    fn new(name: String, given: Vec<Bound<'_, PyTensor>>) -> PyRun {
        let given: Vec<Tensor> = given.iter().map(|t| t.get().tensor()).collect();
        let outer = scope(|s| s.around());
        let required = given.iter().map(|t| is_wanted_in(&outer, t)).collect();
        PyRun::build(name, None, given, required, outer)
    }

    /// A second run, with what stands in for the inputs of the first.
    fn again(slf: Bound<'_, PyRun>, inputs: Vec<Bound<'_, PyTensor>>) -> PyRun {
        let me = slf.get();
        let inputs = inputs.iter().map(|t| t.get().tensor()).collect();
        PyRun::build(me.name.clone(), Some(slf.clone().unbind()), inputs, me.required.clone(), me.outer.clone())
    }

    fn __enter__<'py>(slf: Bound<'py, PyRun>, py: Python<'py>) -> PyResult<Bound<'py, PyRun>> {
        let me = slf.get();
        let inputs = me.inputs.lock().clone();
        let probe = match &me.first {
            Some(first) => {
                let granted = inputs.iter().zip(&me.required).filter(|(_, required)| **required).map(|(t, _)| t);
                Probe::again(first.get().sources(&inputs), granted)
            }
            None => scope(|s| Probe::first(&s.tapes)),
        };
        let tape = tape::open_probe(probe, me.outer.clone())?;
        let expected = me.first.as_ref().map(|f| f.get().log.lock().clone());
        let is_first = me.first.is_none();
        let parent = if is_first { scope(|s| s.log.clone()) } else { None };
        let log = Arc::new(Log::new(&inputs[..me.given], expected, parent));
        *me.log.lock() = log.clone();
        let mut obeyed = Vec::new();
        let scope = Scope::enter(|s| {
            if is_first || s.paused {
                obeyed.extend(s.tapes.iter().filter_map(go_on_obeying));
                s.tapes = smallvec![tape.clone()];
            } else {
                s.tapes.push(tape.clone());
            }
            s.paused = false;
            s.log = Some(log);
        });
        me.first_node.store(next_id(), Relaxed);
        let noted = begin_journal();
        let present = me.go_back(py);
        let thread = std::thread::current().id();
        *me.running.lock() = Some(Running { thread, scope: Unsent(scope), obeyed, tape, noted, present });
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Bound<'_, PyAny>,
        _value: Bound<'_, PyAny>,
        _trace: Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let mut running = match self.running.lock().take() {
            Some(running) if running.thread == std::thread::current().id() => running,
            other => {
                *self.running.lock() = other;
                return Err(PyRuntimeError::new_err("checkpoint: a segment must be left on the thread that entered it"));
            }
        };
        let changes = self.settle(&mut running, py);
        if !kind.is_none() {
            self.undo();
        }
        let Running { scope: Unsent(scope), obeyed, tape, .. } = running;
        drop((scope, obeyed));
        *self.difference.lock() = self.log.lock().end();
        let is_on_run = |c: &Change| c.tensor.get().tensor().node.marks.iter().any(|m| Arc::ptr_eq(&m.tape, &tape));
        let lost = kind.is_none() && changes.iter().any(is_on_run);
        *self.changes.lock() = changes;
        *self.tape.lock() = Some(tape);
        if lost {
            return Err(PyRuntimeError::new_err(format!(
                "checkpoint: segment {} changed a tensor from outside in place, by recorded ops; with replay=\"call\" its gradient would be \
                 lost: return the new value, or use replay=\"trace\"",
                self.name
            )));
        }
        Ok(false)
    }

    /// Puts back what a second run changed.
    fn undo(&self) {
        for change in std::mem::take(&mut *self.going_back.lock()) {
            change.tensor.get().put(change.before.0.clone());
        }
    }

    /// The tensors as they are now, under objects of their own: what the run changed in place is undone in the end.
    fn snapshot(&self, tensors: Vec<Bound<'_, PyTensor>>) -> Vec<PyTensor> {
        wrap_all(tensors.iter().map(|t| t.get().tensor()))
    }

    /// Enters what the run returned: its tensors, and the containers and keys around them; the second run's must be the first one's.
    fn enter_results(&self, tensors: Vec<Bound<'_, PyTensor>>, structure: &str) {
        let tensors: Vec<Tensor> = tensors.iter().map(|t| t.get().tensor()).collect();
        self.log.lock().enter_results(&tensors, structure);
    }

    /// The outputs of the first run under one node that carries the replay; those that want no gradient as they are.
    fn record(&self, py: Python<'_>, outputs: Vec<Bound<'_, PyTensor>>, replay: Py<PyAny>) -> PyResult<Vec<Option<PyTensor>>> {
        let Some(tape) = self.tape.lock().take() else {
            return Err(PyRuntimeError::new_err("checkpoint: the segment has not run"));
        };
        let (log, mut inputs) = (self.log.lock().clone(), std::mem::take(&mut *self.inputs.lock()));
        let is_same = |a: &Tensor, b: &Tensor| Arc::ptr_eq(&a.node, &b.node) && a.index == b.index;
        let found: Vec<Tensor> = tape.probe.iter().flat_map(Probe::take_found).collect();
        *self.wanting.lock() = inputs.iter().map(|t| found.iter().any(|f| is_same(f, t))).collect();
        let captured: Vec<Tensor> = found.into_iter().filter(|f| !inputs.iter().any(|t| is_same(f, t))).collect();
        if let Some(t) = captured.iter().find(|t| !log.is_outside(&t.node)) {
            return Err(PyRuntimeError::new_err(format!(
                "checkpoint: segment {} made a leaf of shape {:?} that requires a gradient; its second run would make another one: make it \
                 outside, or use replay=\"trace\"",
                self.name,
                t.shape()
            )));
        }
        let kept: Vec<Tensor> = inputs.iter().chain(&captured).cloned().collect();
        let outs: Vec<Tensor> = outputs.iter().map(|t| t.get().tensor()).collect();
        let is_wanted = |t: &&Tensor| t.node.marks.iter().any(|m| Arc::ptr_eq(&m.tape, &tape) && m.is_live());
        let wanted: Vec<usize> = (0..outs.len()).filter(|&o| is_wanted(&&outs[o])).collect();
        let (figures, held) = (checkpoint::figures(&tape, &log, &kept), checkpoint::held(&tape, &log, &self.name, &outs));
        compute(py, || tape::close_probe(&tape))?;
        let Some(segment) = checkpoint::open(&self.name) else { return Ok(outs.iter().map(|_| None).collect()) };
        let (_, _) = (segment.figures.set(figures), segment.held.set(held));
        inputs.extend(captured);
        let raws: Vec<Tensor> = wanted.iter().map(|&o| outs[o].clone()).collect();
        let rule = PyReplay { name: self.name.clone(), replay, wanted: wanted.clone(), outputs: outs.len(), _segment: segment };
        let made = if raws.is_empty() { Vec::new() } else { custom::segment(Arc::new(rule), &inputs, self.given, &raws)? };
        let mut wrapped: Vec<Option<PyTensor>> = outs.iter().map(|_| None).collect();
        for (o, t) in wanted.into_iter().zip(wrap_all(made)) {
            wrapped[o] = Some(t);
        }
        Ok(wrapped)
    }

    /// Raises if the second run differs from the first or has reset a pool.
    fn check(&self) -> PyResult<()> {
        if let Some((tape, had)) = &self.around {
            let now = tape.generation.load(Relaxed);
            if now != *had {
                return Err(PyRuntimeError::new_err(format!(
                    "checkpoint: the replay of segment {} cleared tape {}, whose backward pass it belongs to: it had generation {had}, its \
                     current generation is {now}",
                    self.name, tape.id
                )));
            }
        }
        for (device, id, had) in &self.pools {
            if let Err(error) = pools(*device).lock().check_not_reset(*id, *had) {
                return Err(PyRuntimeError::new_err(format!("checkpoint: the replay of segment {}: {error}", self.name)));
            }
        }
        match self.difference.lock().as_ref() {
            None => Ok(()),
            Some(difference) => Err(PyRuntimeError::new_err(format!(
                "checkpoint: the replay of segment {} is not what ran first: {difference}; use replay=\"trace\", or keep what the function \
                 reads as it was",
                self.name
            ))),
        }
    }

    /// The gradients of the inputs for given gradients of the second run's outputs, evaluated unless they are recorded themselves.
    fn gradients(
        &self,
        py: Python<'_>,
        outputs: Vec<Bound<'_, PyTensor>>,
        grads: Vec<Option<Bound<'_, PyTensor>>>,
    ) -> PyResult<Vec<Option<PyTensor>>> {
        let Some(tape) = self.tape.lock().take() else {
            return Err(PyRuntimeError::new_err("checkpoint: the segment has not run again"));
        };
        let inputs = std::mem::take(&mut *self.inputs.lock());
        let replayed = self.first_node.load(Relaxed)..next_id();
        let pairs: Vec<(Tensor, Option<Tensor>)> = outputs
            .iter()
            .zip(&grads)
            .filter_map(|(t, g)| g.as_ref().map(|g| (t.get().tensor(), Some(g.get().tensor()))))
            .collect();
        let targets = compute(py, || tape::gradients(&tape, &pairs, &inputs, false, false));
        self.undo();
        let targets = targets?;
        let mut found = targets.found();
        for i in 1..inputs.len() {
            // A tensor that was given twice gets its gradient once.
            if inputs[..i].iter().any(|t| Arc::ptr_eq(&t.node, &inputs[i].node) && t.index == inputs[i].index) {
                found[i] = None;
            }
        }
        let mut wrapped = wrap_all(found.iter().flatten().cloned()).into_iter();
        let wrapped: Vec<Option<PyTensor>> = found.iter().map(|g| g.as_ref().and_then(|_| wrapped.next())).collect();
        if scope(|s| s.paused || s.tapes.is_empty()) {
            let all: Vec<Tensor> = found.into_iter().flatten().collect();
            compute(py, || {
                let _named = name_replay(&self.name, replayed);
                evaluate_pending(&all)
            })?;
        }
        Ok(wrapped)
    }
}
