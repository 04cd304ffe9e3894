//! Replays of captured steps: what the capture took for constant is checked, then its plans run on the present values.
use super::capture::{Around, refused};
use super::expected::{Expected, Given, Inputs};
use super::tensor::{PyTensor, compute};
use super::versions::Held;
use crate::dtype::DType;
use crate::graph::{Budget, Tensor, Value, Variable};
use crate::ops::random::take_counters;
use crate::ops::view::copy;
use crate::plan::{Captured, Numbers, Source, Values, evaluate};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Weak;
use std::thread::ThreadId;

/// A new version of a tensor that was there before.
pub struct Published {
    /// The run that computes it.
    pub run: usize,
    /// Its value.
    pub source: Source,
    /// The tensor.
    pub tensor: Py<PyTensor>,
    /// Its type.
    pub dtype: DType,
}

/// What a leaf's gradient is after the step.
pub enum After {
    /// None.
    Nothing,
    /// What it was before.
    Same,
    /// A value of the step.
    Value(Source, DType),
}

/// What the step does to a leaf's gradient.
pub struct Gradient {
    /// The leaf.
    pub of: Weak<Variable>,
    /// Whether there is one before.
    pub was_there: bool,
    /// The step replaces it without a look.
    pub is_replaced: bool,
    /// It goes before anything runs: nothing reads it.
    pub is_dropped_first: bool,
    /// What there is after.
    pub after: After,
    /// As a host copy.
    pub is_on_host: bool,
}

/// What a step returns.
pub enum Output {
    /// An argument.
    Input(usize),
    /// A tensor that was there before.
    Object(Py<PyTensor>),
    /// A new one.
    Value(Source, DType),
}

/// A call that updates parameters.
pub struct Update {
    /// The run that computes it.
    pub run: usize,
}

/// A captured step. It belongs to the thread that made it.
#[pyclass(name = "_Captured", module = "agtape", frozen)]
pub struct PyCaptured {
    captured: Mutex<Captured>,
    thread: ThreadId,
    around: Around,
    given: Vec<Given>,
    expected: Vec<Expected>,
    published: Vec<Published>,
    gradients: Vec<Gradient>,
    outputs: Vec<Output>,
    updates: Vec<Update>,
    draws: Vec<u64>,
}

type Note<'py> = (Bound<'py, PyDict>, Bound<'py, PyAny>, Bound<'py, PyAny>);

impl PyCaptured {
    /// A captured step of this thread.
    #[allow(clippy::too_many_arguments)] // Each is one list of what the capture found; a struct of them would be this one.
    pub fn new(
        captured: Captured,
        around: Around,
        given: Vec<Given>,
        expected: Vec<Expected>,
        published: Vec<Published>,
        gradients: Vec<Gradient>,
        outputs: Vec<Output>,
        updates: Vec<Update>,
        draws: Vec<u64>,
    ) -> PyCaptured {
        let thread = std::thread::current().id();
        PyCaptured {
            captured: Mutex::new(captured),
            thread,
            around,
            given,
            expected,
            published,
            gradients,
            outputs,
            updates,
            draws,
        }
    }

    fn check(&self, inputs: Inputs<'_, '_>, updates: usize) -> PyResult<()> {
        if std::thread::current().id() != self.thread {
            return Err(refused(
                "the step is called on another thread than it was captured on; expected that each thread captures its own",
            ));
        }
        self.around.check()?;
        if inputs.len() != self.given.len() || updates != self.updates.len() {
            return Err(refused(format!(
                "{} tensors and {updates} updates are given; expected {} and {}",
                inputs.len(),
                self.given.len(),
                self.updates.len()
            )));
        }
        self.given.iter().zip(inputs).try_for_each(|(given, t)| given.check(t))?;
        for (i, given) in self.given.iter().enumerate() {
            let now = (0..i).find(|&j| inputs[j].get().tensor().id() == inputs[i].get().tensor().id());
            if now != (0..i).find(|&j| self.given[j].id == given.id) {
                return Err(refused(format!(
                    "{} is the same tensor as another argument, or no longer; expected as when captured",
                    given.name
                )));
            }
        }
        for gradient in &self.gradients {
            let Some(variable) = gradient.of.upgrade() else {
                return Err(refused("a leaf whose gradient the step computes was let go since it was captured"));
            };
            let is_there = variable.grad().is_some();
            if is_there != gradient.was_there && !gradient.is_replaced {
                let (now, then) = if is_there { ("there is", "there was none") } else { ("there is none", "there was one") };
                return Err(refused(format!(
                    "gradients: {now} for a leaf before the step, and {then} when it was captured; expected that zero_grad() is called \
                     always or never between steps"
                )));
            }
        }
        Ok(())
    }

    /// The values that were there before, checked; those that plans write over are nobody else's.
    fn externals(&self, py: Python<'_>, inputs: Inputs<'_, '_>) -> PyResult<Vec<Value>> {
        let tensors: Vec<Tensor> = self.expected.iter().map(|e| e.tensor(inputs)).collect::<PyResult<_>>()?;
        if tensors.iter().any(|t| t.value().is_none()) {
            compute(py, || evaluate(&tensors))?;
        }
        let mut values = Vec::with_capacity(tensors.len());
        for (expected, t) in self.expected.iter().zip(tensors) {
            let value = t.computed()?;
            expected.check(&t, &value)?;
            let is_as_then = value.layout.is_contiguous() || !expected.layout.is_contiguous();
            if is_as_then && (!expected.is_overwritten || Expected::is_own(&t, &value)) {
                values.push(value);
                continue;
            }
            let own = Held::new(copy(&t));
            compute(py, || evaluate(std::slice::from_ref(&own.0)))?;
            values.push(own.0.computed()?);
        }
        Ok(values)
    }

    /// Gives new versions to the tensors that a run has computed.
    fn publish(&self, run: usize, values: &Values) -> PyResult<()> {
        for p in self.published.iter().filter(|p| p.run == run) {
            let object = p.tensor.get();
            object.put(Tensor::leaf(values.get(&p.source)?, p.dtype, object.variable()));
        }
        Ok(())
    }

    fn finish(&self, py: Python<'_>, inputs: Inputs<'_, '_>, values: &Values) -> PyResult<Vec<Py<PyTensor>>> {
        for gradient in &self.gradients {
            let Some(variable) = gradient.of.upgrade() else { continue };
            match &gradient.after {
                After::Same => continue,
                After::Nothing => variable.set_grad(None),
                After::Value(source, dtype) => variable.set_grad(Some(Tensor::leaf(values.get(source)?, *dtype, None))),
            }
            variable.set_grad_on_host(gradient.is_on_host);
        }
        let result = |output: &Output| match output {
            Output::Input(i) => Ok(inputs[*i].clone().unbind()),
            Output::Object(t) => Ok(t.clone_ref(py)),
            Output::Value(source, dtype) => Py::new(py, PyTensor::from(Tensor::leaf(values.get(source)?, *dtype, None))),
        };
        self.outputs.iter().map(result).collect()
    }
}

#[pymethods]
impl PyCaptured {
    /// Repeats the step on these tensors. updates: for each call that updates parameters its numbers as words, and what to note when it has
    /// been computed, as (dict, key, value). Raises CaptureError, before anything runs, for what has changed since the capture.
    fn replay<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<Bound<'py, PyTensor>>,
        updates: Vec<(Vec<u64>, Vec<Note<'py>>)>,
    ) -> PyResult<Vec<Py<PyTensor>>> {
        let Some(mut captured) = self.captured.try_lock() else {
            return Err(refused("the step is called while a replay of it is under way"));
        };
        self.check(&inputs, updates.len())?;
        let externals = self.externals(py, &inputs)?;
        let draws = self.draws.iter().map(|&counters| take_counters(counters)).collect();
        let numbers = Numbers { draws, updates: updates.iter().map(|(words, _)| words.iter().copied().collect()).collect() };
        let budget = captured.budget().map(Budget::new);
        for gradient in self.gradients.iter().filter(|g| g.is_dropped_first) {
            gradient.of.upgrade().iter().for_each(|variable| variable.set_grad(None));
        }
        let mut values = captured.begin(externals);
        for run in 0..captured.runs() {
            let (captured, values) = (&mut *captured, &mut values);
            compute(py, || captured.run(run, values, &numbers, budget.as_ref()))?;
            self.publish(run, values)?;
            for (_, (_, notes)) in self.updates.iter().zip(&updates).filter(|(update, _)| update.run == run) {
                notes.iter().try_for_each(|(dict, key, value)| dict.set_item(key, value))?;
            }
            captured.release(run, values);
        }
        self.finish(py, &inputs, &values)
    }

    /// How many plans a replay runs.
    #[getter]
    fn plans(&self) -> usize {
        self.captured.try_lock().map_or(0, |captured| captured.runs())
    }
}
