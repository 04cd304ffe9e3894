//! The Python tensor: a name for one version of a value, with its properties and reads.
use super::arguments::{Checked, check_count, check_members, operand, wrong_type};
use super::convert::converted;
use super::dtype::PyDType;
use super::error::{raise_soon, unless_wrong_type};
use super::export;
use super::flags::Flag;
use super::leaf::leaf_version;
use crate::device::{Device, default_device};
use crate::dtype::DType;
use crate::error::Error;
use crate::graph::{Tensor, Variable, is_granted, is_pending_full, placed, record_version, scope};
use crate::plan::{evaluate, try_evaluate_pending};
use crate::tape;
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

/// An array on a device whose operations are recorded and computed when a value is needed.
///
/// Made by `ag.tensor`, by creation functions and by operations; it follows NumPy in indexing, broadcasting and dtypes.
///
/// >>> import agtape as ag
/// >>> (ag.tensor([1.0, 2.0]) * 3).tolist()
/// [3.0, 6.0]
#[pyclass(name = "Tensor", module = "agtape", frozen, weakref, subclass)]
pub struct PyTensor {
    /// The present version; an update puts another one here.
    pub(super) current: Mutex<Tensor>,
    /// The leaf whose gradient it is: `p.grad` gives a new object each time, and in-place changes to any of them must reach `p.grad`.
    pub(super) gradient_of: Option<Arc<Variable>>,
}

impl Drop for PyTensor {
    fn drop(&mut self) {
        disown(self.current.get_mut());
    }
}

/// A Python object has this version.
pub(super) fn own(version: &Tensor) {
    version.hold();
    version.node.variable.iter().for_each(|v| v.own());
}

/// It has it no more.
pub(super) fn disown(version: &Tensor) {
    version.unhold();
    version.node.variable.iter().for_each(|v| v.disown());
}

/// Several results of one call as Python tensors: all are held before any is wrapped, since wrapping may evaluate.
pub fn wrap_all(tensors: impl IntoIterator<Item = Tensor>) -> Vec<PyTensor> {
    let tensors: Vec<Tensor> = tensors.into_iter().collect();
    tensors.iter().for_each(Tensor::hold);
    let wrapped = tensors.iter().cloned().map(PyTensor::from).collect();
    tensors.iter().for_each(Tensor::unhold);
    wrapped
}

impl From<Tensor> for PyTensor {
    fn from(tensor: Tensor) -> PyTensor {
        // What Python holds is on a device.
        let tensor = if tensor.device().is_none() { placed(&tensor, default_device()) } else { tensor };
        own(&tensor);
        // Here and not where ops are recorded: between the parts of a composite op, values are held that nobody counts.
        // What cannot be computed stays pending, and raises when it is asked for by name; an interrupt is for now.
        if is_pending_full() && matches!(try_evaluate_pending(&[]), Err(Error::Interrupted)) {
            raise_soon();
        }
        PyTensor { current: Mutex::new(tensor), gradient_of: None }
    }
}

/// Runs the core without the interpreter's lock.
pub fn compute<T: Send>(py: Python<'_>, f: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    py.detach(f).map_err(PyErr::from)
}

impl PyTensor {
    /// The present version.
    pub fn tensor(&self) -> Tensor {
        self.current.lock().clone()
    }

    /// The value of a tensor with one element, as a Python number.
    fn only_element<'py>(&self, op: &str, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.tensor();
        if t.elems() != 1 {
            return Err(PyValueError::new_err(format!(
                "{op}: only a tensor with one element has a number; the shape is {:?}: index or reduce it first",
                t.shape()
            )));
        }
        export::numpy(py, &t)?.call_method0("item")
    }

    /// The user's leaf that it is, if it is one.
    pub fn variable(&self) -> Option<Arc<Variable>> {
        self.current.lock().node.variable.clone()
    }

    /// The gradient of a leaf, whose in-place changes reach the leaf.
    pub fn gradient_of(grad: Tensor, variable: Arc<Variable>) -> PyTensor {
        own(&grad);
        PyTensor { current: Mutex::new(grad), gradient_of: Some(variable) }
    }
}

/// The leaves that a call names: one, or a sequence of them.
fn leaves(op: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<Arc<Variable>>> {
    const EXPECTED: &str = "leaves made with requires_grad=True for inputs";
    let leaf = |obj: &Bound<'_, PyAny>| {
        let Ok(t) = obj.cast::<PyTensor>() else { return Err(wrong_type(op, obj, EXPECTED)) };
        let t = t.get();
        t.variable().ok_or_else(|| {
            let message =
                format!("{op}: inputs has a tensor of shape {:?} that is no leaf; expected {EXPECTED}", t.tensor().shape());
            PyValueError::new_err(message)
        })
    };
    if given.is_instance_of::<PyTensor>() {
        return Ok(vec![leaf(given)?]);
    }
    check_members(op, "inputs", given)?;
    let Some(items) = unless_wrong_type(given.py(), given.try_iter())? else { return Err(wrong_type(op, given, EXPECTED)) };
    let mut list = Vec::new();
    for item in items {
        list.push(leaf(&item?)?);
        check_count(op, "inputs", list.len())?;
    }
    if list.is_empty() {
        return Err(PyValueError::new_err(format!("{op}: inputs is empty; expected {EXPECTED}, or None for all")));
    }
    Ok(list)
}

#[pymethods]
impl PyTensor {
    /// Sizes of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.current.lock().shape())
    }

    /// The element type.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.current.lock().dtype())
    }

    /// The device that holds the value: "cpu", "gpu", "gpu:1", ...
    #[getter]
    fn device(&self) -> String {
        self.current.lock().device().unwrap_or(Device::CPU).to_string()
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.current.lock().rank()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.current.lock().elems()
    }

    /// Bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.current.lock().dtype().size_bytes()
    }

    /// Bytes of the elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.current.lock().spec().bytes()
    }

    /// Whether backward reaches it: a leaf that wants a gradient, or recorded on a live tape.
    #[getter]
    fn requires_grad(&self) -> bool {
        let t = self.tensor();
        t.requires_grad() || is_granted(&t)
    }

    /// Whether no tape recorded how it came about.
    #[getter]
    fn is_leaf(&self) -> bool {
        let t = self.tensor();
        // What stands for a recorded value in a second run was not recorded itself.
        !t.node.is_recorded() && (t.requires_grad() || !is_granted(&t))
    }

    /// The checked reference to its storage; evaluates, downloads nothing.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<super::memory::PyHandle> {
        let t = self.tensor();
        compute(py, || evaluate(std::slice::from_ref(&t)))?;
        let storage = t.computed()?.storage;
        Ok(super::memory::PyHandle(storage.device(), storage.handle()))
    }

    /// The values as a read-only NumPy array, which holds them as long as it lives; bfloat16 gives float32.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        export::numpy(py, &self.tensor())
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<Flag<'_>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let copy = copy.of("__array__", "copy")?;
        let own = export::numpy(py, &self.tensor())?;
        let array = match dtype {
            Some(dtype) => own.call_method1("astype", (dtype,))?,
            None => own.clone(),
        };
        if copy == Some(false) && self.tensor().dtype() == DType::BF16 {
            return Err(PyValueError::new_err("__array__: copy=False, but bfloat16 must be converted to float32"));
        }
        let is_other = !array.is(&own) && !array.getattr("dtype")?.eq(own.getattr("dtype")?)?;
        match copy {
            Some(false) if is_other => {
                Err(PyValueError::new_err(format!("__array__: copy=False, but {} must be converted", own.getattr("dtype")?)))
            }
            Some(true) => array.call_method0("copy"),
            _ => Ok(if is_other { array } else { own }),
        }
    }

    /// The value of a tensor with one element, as a Python number.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.only_element("item", py)
    }

    /// The values as nested lists.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        export::numpy(py, &self.tensor())?.call_method0("tolist")
    }

    /// The same value outside every tape. See `ag.detach`.
    fn detach(&self) -> PyTensor {
        record_version(&self.tensor(), None).into()
    }

    /// Takes another tensor's value (same shape) as this tensor's new version, on this tensor's device; never recorded.
    fn assign_<'py>(slf: Bound<'py, PyTensor>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTensor>> {
        let me = slf.get();
        let old = me.tensor();
        let value = converted(&operand("assign_", value)?.beside("assign_", old.dtype())?, old.dtype(), old.device())?;
        if value.shape() != old.shape() {
            return Err(PyValueError::new_err(format!("assign_: got shape {:?}, expected {:?}", value.shape(), old.shape())));
        }
        let variable = me.variable().unwrap_or_else(|| Arc::new(Variable::new(false)));
        PyTensor::rebind(&slf, leaf_version(&value, variable));
        Ok(slf)
    }

    /// Fills the gradients of the leaves that this recorded result depends on.
    ///
    /// gradient: the gradient of this tensor (needed unless it has one element). inputs: leaves to fill, all by default. retain_graph:
    /// keep what a second pass needs (default: the value of create_graph). create_graph: record the gradients' own computation.
    /// Raises RuntimeError for a tensor that no tape recorded or whose tape was used up.
    ///
    /// >>> import agtape as ag
    /// >>> w = ag.param([2.0])
    /// >>> with ag.grad_tape():
    /// ...     loss = (w * w).sum()
    /// >>> loss.backward()
    /// >>> w.grad.tolist()
    /// [4.0]
    #[pyo3(signature = (gradient = None, inputs = None, retain_graph = None, create_graph = Flag::Is(false)), text_signature = "($self, gradient=None, inputs=None, retain_graph=None, create_graph=False)")]
    fn backward(
        &self,
        py: Python<'_>,
        gradient: Option<Bound<'_, PyAny>>,
        inputs: Option<Bound<'_, PyAny>>,
        retain_graph: Option<Flag<'_>>,
        create_graph: Flag<'_>,
    ) -> PyResult<()> {
        let loss = self.tensor();
        let create_graph = create_graph.of("backward", "create_graph")?;
        let retain_graph = retain_graph.of("backward", "retain_graph")?.unwrap_or(create_graph);
        if scope(|s| s.tapes.iter().any(|t| t.probe.is_some())) {
            return Err(PyRuntimeError::new_err(
                "backward: called inside a checkpoint segment with replay=\"call\", whose second run would add the gradients again; use \
                 ag.grad, or replay=\"trace\"",
            ));
        }
        let inputs = inputs.map(|given| leaves("backward", &given)).transpose()?;
        let how = tape::Backward {
            gradient: gradient.map(|g| operand("backward", &g)?.beside("backward", loss.dtype())).transpose()?,
            inputs,
            retain_graph,
            create_graph,
        };
        compute(py, || tape::backward(&loss, how))
    }

    fn __len__(&self) -> PyResult<usize> {
        self.current.lock().shape().first().copied().ok_or_else(|| PyTypeError::new_err("len() of a tensor without axes"))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let t = self.tensor();
        if t.elems() != 1 {
            return Err(PyValueError::new_err(format!(
                "the truth of a tensor of shape {:?} is ambiguous; use any() or all()",
                t.shape()
            )));
        }
        self.item(py)?.is_truthy()
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.only_element("float", py)?.extract()
    }

    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.only_element("int", py)?.call_method0("__int__")
    }

    fn __index__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.tensor();
        if !t.dtype().is_int() || t.elems() != 1 {
            let message = format!("a {} tensor of shape {:?} is not an index; expected one integer", t.dtype(), t.shape());
            return Err(PyTypeError::new_err(message));
        }
        self.item(py)?.call_method0("__index__")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        export::repr(py, &self.tensor())
    }

    fn __hash__(slf: &Bound<'_, PyTensor>) -> isize {
        slf.as_ptr() as isize >> 4
    }
}
