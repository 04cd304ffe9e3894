//! Steps under capture: from the notes of one call to what repeats it.
use super::expected::{Expected, Given, Kind};
use super::replay::{After, Gradient, Output, Published, PyCaptured, Update};
use super::tensor::{PyTensor, compute};
use super::versions::{Held, Moved, begin_moves, end_moves};
use crate::device::{Device, default_device};
use crate::graph::{
    Notes, OutputId, Tensor, are_gradients_resident, begin_notes, end_notes, is_capturing, recorded_nodes as recorded,
    refuse_capture, scope,
};
use crate::plan::{Captured, External, PlanOptions, begin_runs, end_runs, evaluate_pending, options};
use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::Arc;

create_exception!(
    agtape,
    CaptureError,
    PyRuntimeError,
    "A step cannot be captured, or something that its capture took for constant has changed; a replay that raises it has run nothing."
);

/// The error with its reason.
pub fn refused(reason: impl AsRef<str>) -> PyErr {
    CaptureError::new_err(format!("capture: {}", reason.as_ref()))
}

/// What lies around a step, and must be so again around every replay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Around {
    /// Options of plans.
    pub options: PlanOptions,
    /// Gradients stay on the device.
    pub are_gradients_resident: bool,
    /// Inside `no_grad`.
    pub is_paused: bool,
    /// The default device.
    pub device: Device,
}

impl Around {
    /// What lies around now.
    pub fn now() -> PyResult<Around> {
        if scope(|s| !s.tapes.is_empty() || s.log.is_some() || s.segment.is_some()) {
            return Err(refused(
                "a tape records around the step, and would see nothing of a replay; expected that the step opens its own tape: call it \
                 outside `with ag.grad_tape()` and outside checkpoint segments",
            ));
        }
        Ok(Around {
            options: options(),
            are_gradients_resident: are_gradients_resident(),
            is_paused: scope(|s| s.paused),
            device: default_device(),
        })
    }

    /// Refuses what differs from the time of the capture.
    pub fn check(&self) -> PyResult<()> {
        let now = Around::now()?;
        if now == *self {
            return Ok(());
        }
        Err(refused(format!(
            "options, ag.no_grad() or the default device have changed: the step was captured under {self:?} and is called under {now:?}; \
             expected the same (captured.reset() captures anew)"
        )))
    }
}

/// Refuses to give values of a step under capture to the host.
pub fn refuse_read() -> PyResult<()> {
    if !is_capturing() {
        return Ok(());
    }
    let mut reason = String::new();
    refuse_capture(|place| {
        reason = format!(
            "the step reads values on the host (called at {place}): what it does with them would be baked in, whatever later values are; \
             expected a step that only computes: return the tensor and read it outside"
        );
        reason.clone()
    });
    Err(refused(reason))
}

/// Whether a step of this thread is under capture.
#[pyfunction(name = "is_capturing")]
pub fn is_capturing_now() -> bool {
    is_capturing()
}

/// How many ops this thread has recorded so far.
#[pyfunction]
pub fn recorded_nodes() -> u64 {
    recorded()
}

/// Says that the step under capture cannot be captured, and why; nothing without one.
#[pyfunction]
pub fn refuse(reason: String) {
    refuse_capture(|place| format!("{reason} (called at {place})"));
}

/// Begins the capture of a step on this thread, when everything pending is computed; `end_capture` or `abandon_capture` follows.
#[pyfunction]
pub fn begin_capture(py: Python<'_>) -> PyResult<()> {
    Around::now()?;
    compute(py, || evaluate_pending(&[]))?;
    begin_notes();
    begin_runs();
    begin_moves();
    Ok(())
}

/// Ends a capture, if there is one, without a result.
#[pyfunction]
pub fn abandon_capture() {
    end_notes();
    end_runs();
    end_moves();
}

/// Ends the capture of a step that was given these tensors, by these names, and returned those: computes what is pending, and gives what
/// repeats the step. Raises CaptureError for a step that cannot be repeated.
#[pyfunction]
pub fn end_capture(
    py: Python<'_>,
    inputs: Vec<Bound<'_, PyTensor>>,
    names: Vec<String>,
    outputs: Vec<Bound<'_, PyTensor>>,
) -> PyResult<PyCaptured> {
    let around = Around::now()?;
    let results: Vec<Tensor> = outputs.iter().map(|t| t.get().tensor()).collect();
    compute(py, || evaluate_pending(&results))?;
    let (notes, runs, moves) = (end_notes(), end_runs(), end_moves());
    let Some(notes) = notes else { return Err(refused("no step is under capture")) };
    if let Some(reason) = &notes.refusal {
        return Err(refused(reason));
    }
    check_kept(&notes, &moves, &outputs)?;
    let mut captured = Captured::new(runs, &notes).map_err(refused)?;
    let given: Vec<Given> = inputs.iter().zip(names).map(|(t, name)| Given::new(t, name, &moves)).collect();
    let published = published(py, &captured, &moves)?;
    let gradients = gradients(&mut captured, &notes)?;
    let outputs: Vec<Output> =
        outputs.iter().map(|t| output(&mut captured, &notes, &inputs, &moves, t)).collect::<PyResult<_>>()?;
    let mut updates = Vec::with_capacity(notes.updates.len());
    for nodes in &notes.updates {
        let Some(run) = captured.run_of(nodes) else { return Err(refused("the step updates parameters that nothing computes")) };
        updates.push(Update { run });
    }
    let found = std::mem::take(&mut captured.externals);
    let sorted = Sorting { given: &given, inputs: &inputs, moves: &moves, notes: &notes };
    let expected = found.into_iter().map(|external| sorted.expected(py, external)).collect::<PyResult<_>>()?;
    captured.finish();
    let draws = notes.draws.iter().map(|&(_, counters)| counters).collect();
    Ok(PyCaptured::new(captured, around, given, expected, published, gradients, outputs, updates, draws))
}

/// Refuses a step that leaves something of its own behind, besides what it returns, gradients and new versions of tensors.
fn check_kept(notes: &Notes, moves: &[Moved], outputs: &[Bound<'_, PyTensor>]) -> PyResult<()> {
    let mut allowed: FxHashMap<OutputId, u32> = FxHashMap::default();
    let mut allow = |t: &Tensor| *allowed.entry(t.id()).or_default() += 1;
    let mut seen: Vec<&Bound<'_, PyTensor>> = Vec::new();
    for t in outputs {
        if !seen.iter().any(|other| other.is(t)) && !moves.iter().any(|m| m.tensor.is(t)) {
            allow(&t.get().tensor());
            seen.push(t);
        }
    }
    let mut moved: Vec<&Moved> = Vec::new();
    for m in moves {
        if !moved.iter().any(|other| other.tensor.is(&m.tensor)) {
            allow(&m.tensor.get().tensor());
            moved.push(m);
        }
    }
    notes.grads.iter().filter_map(|g| g.of.grad()).for_each(|grad| allow(&grad));
    for node in notes.nodes.iter().filter_map(std::sync::Weak::upgrade) {
        for (o, out) in node.outs.iter().enumerate() {
            let held = out.python.load(std::sync::atomic::Ordering::Relaxed);
            if held > allowed.get(&(node.id, o as u32)).copied().unwrap_or(0) {
                let (shape, op) = (&out.spec.shape, node.op.name());
                let place = node.place.as_ref().map_or(String::new(), |p| format!(", called at {p}"));
                return Err(refused(format!(
                    "the step keeps a tensor of shape {shape:?} (of {op}{place}) besides what it returns, in an attribute, a list or an \
                     optimizer's new state, which a replay would not renew; expected that it returns it, or changes a tensor in place"
                )));
            }
        }
    }
    Ok(())
}

/// Which runs give new versions to tensors that were there before.
fn published(py: Python<'_>, captured: &Captured, moves: &[Moved]) -> PyResult<Vec<Published>> {
    let mut published = Vec::new();
    for m in moves {
        let object = m.tensor.get().tensor();
        match captured.slot_of(m.after).and_then(|source| captured.made_in(&source).map(|run| (run, source))) {
            Some((run, source)) => published.push(Published { run, source, tensor: m.tensor.clone_ref(py), dtype: m.dtype }),
            None if object.id() == m.after => {
                return Err(refused(format!("the new value of a tensor of shape {:?} was computed elsewhere", object.shape())));
            }
            // It was replaced before anybody computed it.
            None => {}
        }
    }
    Ok(published)
}

/// What the step does to gradients.
fn gradients(captured: &mut Captured, notes: &Notes) -> PyResult<Vec<Gradient>> {
    let mut found = Vec::new();
    // A leaf that the step made and dropped is known to the notes alone.
    for note in notes.grads.iter().filter(|note| Arc::strong_count(&note.of) > 1) {
        let (variable, before) = (&note.of, &note.before);
        let grad = variable.grad();
        let after = match &grad {
            None => After::Nothing,
            Some(t) if *before == Some(t.id()) => After::Same,
            Some(t) => match captured.source_of(t) {
                Some(source) => {
                    captured.pin(&source);
                    After::Value(source, t.dtype())
                }
                None => {
                    return Err(refused(format!(
                        "the gradient of a leaf of shape {:?} was set to a tensor from outside",
                        t.shape()
                    )));
                }
            },
        };
        let is_dropped_first = note.is_replaced && !matches!(after, After::Same) && !before.is_some_and(|id| captured.reads(id));
        found.push(Gradient {
            of: Arc::downgrade(variable),
            was_there: before.is_some(),
            is_replaced: note.is_replaced,
            is_dropped_first,
            after,
            is_on_host: variable.is_grad_on_host(),
        });
    }
    Ok(found)
}

fn output(
    captured: &mut Captured,
    notes: &Notes,
    inputs: &[Bound<'_, PyTensor>],
    moves: &[Moved],
    t: &Bound<'_, PyTensor>,
) -> PyResult<Output> {
    if let Some(i) = inputs.iter().position(|input| input.is(t)) {
        return Ok(Output::Input(i));
    }
    let now = t.get().tensor();
    if now.node.id < notes.first || moves.iter().any(|m| m.tensor.is(t)) {
        return Ok(Output::Object(t.clone().unbind()));
    }
    match captured.source_of(&now) {
        Some(source) => {
            captured.pin(&source);
            Ok(Output::Value(source, now.dtype()))
        }
        None => Err(refused(format!("the step returns a tensor of shape {:?} that none of its plans computed", now.shape()))),
    }
}

/// What is known of the tensors that a step found.
struct Sorting<'a, 'py> {
    given: &'a [Given],
    inputs: &'a [Bound<'py, PyTensor>],
    moves: &'a [Moved],
    notes: &'a Notes,
}

impl Sorting<'_, '_> {
    /// Where every replay finds what the step found there before it, and what it must be like.
    fn expected(&self, py: Python<'_>, external: External) -> PyResult<Expected> {
        let External { id, tensor, device, dtype, layout, is_overwritten } = external;
        let requires_grad = tensor.as_ref().is_some_and(|t| t.node.variable.as_ref().is_some_and(|v| v.requires_grad()));
        let moved = self.moves.iter().find(|m| m.before == id);
        let kind = if let Some(m) = moved {
            Kind::Object(m.tensor.clone_ref(py))
        } else if let Some(i) = self.given.iter().position(|g| g.id == id) {
            match self.given[i].is_fixed {
                true => Kind::Object(self.inputs[i].clone().unbind()),
                false => Kind::Input(i),
            }
        } else if let Some(note) = self.notes.grads.iter().find(|note| note.before == Some(id)) {
            Kind::Gradient(Arc::downgrade(&note.of))
        } else {
            let shape = &layout.shape;
            let Some(t) = tensor else {
                return Err(refused(format!("the step reads a tensor of shape {shape:?} from outside and lets go of it")));
            };
            match &t.node.variable {
                Some(variable) => Kind::Version(Arc::downgrade(variable)),
                None if t.out().python.load(std::sync::atomic::Ordering::Relaxed) == 0 => {
                    return Err(refused(format!(
                        "the step reads a value of shape {shape:?} that no tensor outside of it holds (of an older tape?); expected \
                         arguments, parameters and tensors that stay"
                    )));
                }
                None => Kind::Constant(Held::new(t)),
            }
        };
        let requires_grad = match &kind {
            Kind::Object(t) => t.get().variable().is_some_and(|v| v.requires_grad()),
            _ => requires_grad,
        };
        Ok(Expected { kind, device, dtype, layout, requires_grad, is_overwritten })
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("CaptureError", m.py().get_type::<CaptureError>())?;
    m.add_class::<PyCaptured>()?;
    functions!(m; is_capturing_now, recorded_nodes, refuse, begin_capture, abandon_capture, end_capture);
    Ok(())
}
