//! Tapes, recording scopes and gradients as Python sees them.
use super::budget::parse_budget;
use super::tensor::{PyTensor, compute, wrap_all};
use crate::graph::{Scope, TapeCore, scope};
use crate::plan::{evaluate_pending, options, set_options};
use crate::tape;
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::Arc;
use std::thread::ThreadId;

/// A recording of operations, for their gradients: `with ag.grad_tape() as tape:`.
///
/// `budget` bounds the active bytes of all pools from here until backward has ended, everything held included: an int of bytes, or a
/// text like "1.5 GiB". Values are dropped and computed again so that it is kept; BudgetError (a MemoryError with `smallest_bytes`) says
/// before anything runs that no way was found. ValueError: it is zero, negative or not to be understood.
///
/// >>> import agtape as ag
/// >>> w = ag.param([3.0])
/// >>> with ag.grad_tape() as tape:
/// ...     loss = (w ** 2).sum()
/// >>> loss.backward()
/// >>> w.grad.tolist()
/// [6.0]
#[pyclass(name = "grad_tape", module = "agtape", frozen, weakref)]
pub struct PyTape {
    inner: Mutex<Inner>,
    budget: Option<usize>,
}

struct Inner {
    core: Option<Arc<TapeCore>>,
    entered: Option<(ThreadId, Unsent<Scope>)>,
}

/// A scope belongs to the thread that entered it; leaving on another thread is refused, so it never moves.
pub struct Unsent<T>(pub T);
// SAFETY: the scope inside is only entered and left on the thread whose id is kept beside it.
unsafe impl<T> Send for Unsent<T> {}

impl PyTape {
    /// The tape, once it was entered.
    pub fn core(&self) -> PyResult<Arc<TapeCore>> {
        self.inner
            .lock()
            .core
            .clone()
            .ok_or_else(|| PyRuntimeError::new_err("grad_tape: this tape was never entered; use `with ag.grad_tape() as tape:`"))
    }
}

#[pymethods]
impl PyTape {
    #[new]
    #[pyo3(signature = (budget = None))]
    fn new(budget: Option<Bound<'_, PyAny>>) -> PyResult<PyTape> {
        let budget = budget.map(|b| parse_budget(&b)).transpose()?;
        Ok(PyTape { inner: Mutex::new(Inner { core: None, entered: None }), budget })
    }

    fn __enter__<'py>(slf: Bound<'py, PyTape>) -> PyResult<Bound<'py, PyTape>> {
        if slf.get().inner.lock().entered.is_some() {
            return Err(PyRuntimeError::new_err("grad_tape: this tape is recording already"));
        }
        let known = slf.get().inner.lock().core.clone();
        let core = match known {
            Some(core) => core,
            None => {
                let budget = slf.get().budget;
                compute(slf.py(), move || tape::open(budget))?
            }
        };
        let scope = tape::enter(&core);
        let mut inner = slf.get().inner.lock();
        inner.core = Some(core);
        inner.entered = Some((std::thread::current().id(), Unsent(scope)));
        drop(inner);
        Ok(slf)
    }

    fn __exit__(&self, _kind: Bound<'_, PyAny>, _value: Bound<'_, PyAny>, _trace: Bound<'_, PyAny>) -> PyResult<bool> {
        let entered = self.inner.lock().entered.take();
        match entered {
            Some((thread, scope)) if thread == std::thread::current().id() => {
                drop(scope);
                Ok(false)
            }
            Some(other) => {
                self.inner.lock().entered = Some(other);
                Err(PyRuntimeError::new_err("grad_tape: a tape must be left on the thread that entered it"))
            }
            None => Err(PyRuntimeError::new_err("grad_tape: left without having been entered")),
        }
    }

    /// Frees what backward would need; later backward passes over what was recorded raise.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core()?;
        compute(py, || tape::clear(&core))
    }

    /// The bound on active bytes, or None.
    #[getter]
    fn budget(&self) -> Option<usize> {
        self.budget
    }

    /// Counts clears and finished backward passes.
    #[getter]
    fn generation(&self) -> PyResult<u32> {
        Ok(self.core()?.generation.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// Whether operations on this thread are being recorded on it.
    #[getter]
    fn is_recording(&self) -> bool {
        self.inner.lock().core.as_ref().is_some_and(|core| scope(|s| s.tapes.iter().any(|t| Arc::ptr_eq(t, core))))
    }
}

/// What a scope object changes while it is entered.
#[derive(Clone, Copy, PartialEq)]
enum Switch {
    NoGrad,
    EnableGrad,
    Anomaly,
}

/// A scope that was entered: its thread, what to give back, and the options before it.
type Entered = (ThreadId, Unsent<Scope>, Option<crate::plan::PlanOptions>);

/// Scopes that switch recording: entered and left on one thread, any number of times.
#[pyclass(name = "_Scope", module = "agtape", frozen)]
pub struct PyScope {
    switch: Switch,
    stack: Mutex<Vec<Entered>>,
}

#[pymethods]
impl PyScope {
    fn __enter__(slf: Bound<'_, PyScope>) -> Bound<'_, PyScope> {
        let me = slf.get();
        let switch = me.switch;
        let mut old = None;
        if switch == Switch::Anomaly {
            let now = options();
            old = Some(set_options(crate::plan::PlanOptions { anomaly: true, ..now }));
        }
        let scope = Scope::enter(|s| match switch {
            Switch::NoGrad => s.paused = true,
            Switch::EnableGrad => s.paused = false,
            Switch::Anomaly => s.anomaly = true,
        });
        me.stack.lock().push((std::thread::current().id(), Unsent(scope), old));
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Bound<'_, PyAny>,
        _value: Bound<'_, PyAny>,
        _trace: Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        // What was recorded inside is checked inside.
        let checked =
            if self.switch == Switch::Anomaly && kind.is_none() { compute(py, || evaluate_pending(&[])) } else { Ok(()) };
        // Several threads may be inside one scope: each leaves what it entered last.
        let mine = {
            let mut stack = self.stack.lock();
            let here = std::thread::current().id();
            stack.iter().rposition(|(thread, ..)| *thread == here).map(|at| stack.remove(at))
        };
        let Some((_, scope, old)) = mine else {
            return Err(PyRuntimeError::new_err("a scope must be left on the thread that entered it"));
        };
        drop(scope);
        if let Some(old) = old {
            set_options(old);
        }
        checked.map(|()| false)
    }

    /// As a decorator: the function runs inside the scope.
    fn __call__<'py>(slf: Bound<'py, PyScope>, function: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("agtape.functional")?.call_method1("_in_scope", (slf, function))
    }
}

fn switch(switch: Switch) -> PyScope {
    PyScope { switch, stack: Mutex::new(Vec::new()) }
}

/// A scope in which nothing is recorded.
///
/// >>> import agtape as ag
/// >>> w = ag.param([1.0])
/// >>> with ag.grad_tape(), ag.no_grad():
/// ...     y = w * 2
/// >>> y.requires_grad
/// False
#[pyfunction]
pub fn no_grad() -> PyScope {
    switch(Switch::NoGrad)
}

/// A scope in which a recording tape goes on inside `no_grad`.
#[pyfunction]
pub fn enable_grad() -> PyScope {
    switch(Switch::EnableGrad)
}

/// A scope in which the first NaN or infinity raises FloatingPointError with the op and the line that called it.
#[pyfunction]
pub fn detect_anomaly() -> PyScope {
    switch(Switch::Anomaly)
}

/// Whether operations on this thread are recorded on a tape.
#[pyfunction]
pub fn is_grad_enabled() -> bool {
    scope(|s| !s.paused && !s.tapes.is_empty())
}

/// The same as `is_grad_enabled`.
#[pyfunction]
pub fn is_recording() -> bool {
    is_grad_enabled()
}

/// Puts another value (of any dtype and shape) into the same tensor object, recorded on no tape; a leaf stays a leaf.
#[pyfunction]
pub fn rebind(t: &Bound<'_, PyTensor>, value: &PyTensor) {
    let new = super::leaf::leaf_version(
        &value.tensor(),
        t.get().variable().unwrap_or_else(|| Arc::new(crate::graph::Variable::new(false))),
    );
    PyTensor::rebind(t, new);
}

/// Gradients of outputs with respect to what the innermost tape that recorded them also recorded or watched; None for inputs that were
/// not used. A gradient of None stands for ones. Nothing is evaluated or freed, and `.grad` stays as it is.
#[pyfunction]
#[pyo3(signature = (outputs, grad_outputs, inputs, create_graph = false, allow_unused = true))]
pub fn gradient(
    py: Python<'_>,
    outputs: Vec<Bound<'_, PyTensor>>,
    grad_outputs: Vec<Option<Bound<'_, PyTensor>>>,
    inputs: Vec<Bound<'_, PyTensor>>,
    create_graph: bool,
    allow_unused: bool,
) -> PyResult<Vec<Option<PyTensor>>> {
    if outputs.len() != grad_outputs.len() {
        return Err(PyValueError::new_err(format!("gradient: {} outputs but {} gradients", outputs.len(), grad_outputs.len())));
    }
    let outputs: Vec<_> =
        outputs.iter().zip(&grad_outputs).map(|(t, g)| (t.get().tensor(), g.as_ref().map(|g| g.get().tensor()))).collect();
    let inputs: Vec<_> = inputs.iter().map(|t| t.get().tensor()).collect();
    let newest =
        outputs.iter().flat_map(|(t, _)| &t.node.marks).filter(|m| m.is_live()).map(|m| m.tape.clone()).max_by_key(|t| t.id);
    let Some(tape) = newest.or_else(|| scope(|s| s.tapes.last().cloned())) else {
        return Ok(inputs.iter().map(|_| None).collect());
    };
    let targets = compute(py, || tape::gradients(&tape, &outputs, &inputs, true, create_graph))?;
    let found = targets.found();
    if let (false, Some(i)) = (allow_unused, found.iter().position(Option::is_none)) {
        return Err(PyRuntimeError::new_err(format!(
            "gradient: input {i} was not used in computing the outputs; pass allow_unused=True if that is meant"
        )));
    }
    let mut wrapped = wrap_all(found.iter().flatten().cloned()).into_iter();
    Ok(found.iter().map(|g| g.as_ref().and_then(|_| wrapped.next())).collect())
}

/// A fresh source on the innermost tape, linked to the outer ones.
#[pyfunction]
pub fn watch(t: &PyTensor) -> PyResult<PyTensor> {
    Ok(tape::watch(&t.tensor())?.into())
}

/// Evaluates everything pending that this thread's Python objects hold.
#[pyfunction]
pub fn eval_pending(py: Python<'_>) -> PyResult<()> {
    compute(py, || evaluate_pending(&[]))
}
