//! NumPy's index expressions as data, and functions that read and write at positions.
use super::arguments::{Checked, Int, array, count, digits, integer_object, operand, wrong_type};
use super::convert::{DTypeArg, from_array};
use super::error::is_misfit;
use super::export;
use super::tensor::{PyTensor, wrap_all};
use crate::backend::kind::Caller;
use crate::device::Device;
use crate::dtype::DType;
use crate::graph::Tensor;
use crate::ops::create::from_i64;
use crate::ops::index;
use crate::ops::indexing::{Index, getitem, setitem};
use crate::ops::nonzero::{places, ranks};
use crate::ops::view::{move_axis, narrow, reshape_to};
use crate::shape::{self, Shape};
use numpy::{PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PySlice, PyTuple};
use smallvec::{SmallVec, smallvec};

type Items = SmallVec<[Index; 4]>;

/// The items of an index expression.
fn items(op: &'static str, key: &Bound<'_, PyAny>) -> PyResult<Items> {
    match key.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|k| item(op, &k)).collect(),
        Err(_) => Ok(smallvec![item(op, key)?]),
    }
}

fn item(op: &'static str, key: &Bound<'_, PyAny>) -> PyResult<Index> {
    let py = key.py();
    if key.is_exact_instance_of::<PyInt>() {
        return int(op, key);
    }
    if key.is_instance_of::<PySlice>() {
        return Ok(Index::Slice {
            start: bound(op, &key.getattr(intern!(py, "start"))?)?,
            stop: bound(op, &key.getattr(intern!(py, "stop"))?)?,
            step: bound(op, &key.getattr(intern!(py, "step"))?)?,
        });
    }
    if key.is_none() {
        return Ok(Index::NewAxis);
    }
    if key.is(py.Ellipsis()) {
        return Ok(Index::Ellipsis);
    }
    if let Ok(truth) = key.cast::<PyBool>() {
        return Ok(Index::Truth(truth.is_true()));
    }
    if let Ok(t) = key.cast::<PyTensor>() {
        return tensor_item(py, t.get().tensor());
    }
    if key.hasattr(intern!(py, "dtype"))? || key.is_instance_of::<PyList>() {
        return host_item(op, key);
    }
    match integer_object(key)? {
        Some(number) => int(op, number.as_any()),
        None => host_item(op, key),
    }
}

/// An integer of Python's as an index.
fn int(op: &str, key: &Bound<'_, PyAny>) -> PyResult<Index> {
    key.extract::<i64>()
        .map(Index::Int)
        .map_err(|_| PyIndexError::new_err(format!("{op}: index {} is out of range for every axis", digits(key))))
}

/// A bound of a slice; one beyond 64 bits is clipped like any other that is too large.
fn bound(op: &str, at: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if at.is_none() {
        return Ok(None);
    }
    let Some(number) = integer_object(at)? else {
        let kind = at.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{op}: slice bound is of type {kind}; expected integers or None")));
    };
    match number.extract::<i64>() {
        Ok(i) => Ok(Some(i)),
        Err(_) => Ok(Some(if number.gt(0)? { i64::MAX } else { i64::MIN })),
    }
}

/// A tensor as an index: integers are checked when it is computed, bools are evaluated now.
fn tensor_item(py: Python<'_>, t: Tensor) -> PyResult<Index> {
    if t.dtype() != DType::Bool {
        return Ok(Index::Array(t));
    }
    if t.rank() == 0 {
        return mask_item(&export::numpy(py, &t)?);
    }
    Ok(Index::Mask { shape: Shape::from_slice(t.shape()), indices: positions_in(py, &t)? })
}

/// Where a tensor is not 0. On a device they are found there, and their number is all that is read.
fn positions_in(py: Python<'_>, t: &Tensor) -> PyResult<Vec<Tensor>> {
    if t.elems() == 0 || t.device().is_none_or(Device::is_cpu) {
        return positions(&export::numpy(py, t)?);
    }
    let (truth, so_far) = ranks(t)?;
    let _held = wrap_all([truth.clone(), so_far.clone()]);
    let last = narrow(&so_far, 0, t.elems() - 1, t.elems())?;
    let count = export::numpy(py, &last)?.call_method0("item")?.extract()?;
    Ok(places(t.shape(), &truth, &so_far, count)?)
}

/// A boolean NumPy array as an index.
fn mask_item(mask: &Bound<'_, PyAny>) -> PyResult<Index> {
    let shape = Shape::from_slice(mask.cast::<PyUntypedArray>()?.shape());
    if shape.is_empty() {
        return Ok(Index::Truth(mask.is_truthy()?));
    }
    Ok(Index::Mask { shape, indices: positions(mask)? })
}

/// Where a NumPy array is true, one int64 vector an axis.
fn positions(array: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    array
        .py()
        .import("numpy")?
        .call_method1("nonzero", (array,))?
        .try_iter()?
        .map(|i| from_array(&i?, Some(DType::I64), None, None))
        .collect()
}

/// Integers of an array or a nested list and their shape.
fn host_integers(op: &str, given: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<(Vec<i64>, Shape)> {
    let kind: String = values.getattr("dtype")?.getattr("kind")?.extract()?;
    let is_empty = values.getattr("size")?.extract::<usize>()? == 0;
    if !(kind == "i" || kind == "u" || is_empty && kind == "f") {
        let what =
            if kind == "O" || kind == "U" { given.get_type().name()?.to_string() } else { values.getattr("dtype")?.to_string() };
        let expected = "integers, slices, None, an ellipsis, or arrays of integers or bools";
        return Err(PyIndexError::new_err(format!("{op}: got {what} as an index; expected {expected}")));
    }
    if kind == "u" && !is_empty && values.call_method0("max")?.gt(i64::MAX)? {
        let largest = values.call_method0("max")?;
        return Err(PyIndexError::new_err(format!("{op}: index {largest} is out of range for every axis")));
    }
    let np = values.py().import("numpy")?;
    let flat = np.call_method1("ascontiguousarray", (values, "int64"))?;
    let flat = flat.extract::<PyReadonlyArrayDyn<'_, i64>>()?;
    let shape = Shape::from_slice(values.cast::<PyUntypedArray>()?.shape());
    Ok((flat.as_slice().map_err(|e| PyValueError::new_err(e.to_string()))?.to_vec(), shape))
}

/// A NumPy array, scalar or nested list as an index.
fn host_item(op: &'static str, key: &Bound<'_, PyAny>) -> PyResult<Index> {
    let np = key.py().import("numpy")?;
    let values = np.call_method1("asarray", (key,)).map_err(|e| match is_misfit(key.py(), &e) {
        true => PyIndexError::new_err(format!(
            "{op}: cannot use {} as an index: {}; expected integers, slices, None, an ellipsis, or arrays of integers or bools",
            key.get_type(),
            e.value(key.py())
        )),
        false => e,
    })?;
    if values.getattr("dtype")?.getattr("kind")?.extract::<String>()? == "b" {
        return mask_item(&values);
    }
    let (list, shape) = host_integers(op, key, &values)?;
    Ok(if shape.is_empty() { Index::Int(list[0]) } else { Index::Host(list, shape) })
}

/// Index tensors for an axis of a size: those from the host are checked now, tensors when they are computed.
fn indices(op: &'static str, obj: &Bound<'_, PyAny>, least: i64, size: usize) -> PyResult<Tensor> {
    if let Ok(t) = obj.cast::<PyTensor>() {
        return Ok(t.get().tensor());
    }
    let values = obj.py().import("numpy")?.call_method1("asarray", (obj,)).map_err(|e| match is_misfit(obj.py(), &e) {
        true => wrong_type(op, obj, "integer indices"),
        false => e,
    })?;
    let (list, shape) = host_integers(op, obj, &values)?;
    if let Some(wrong) = list.iter().find(|&&i| i < least || i >= size as i64) {
        return Err(PyIndexError::new_err(format!(
            "{op}: index {wrong} is out of range; expected {least} to {}",
            size as i64 - 1
        )));
    }
    Ok(from_i64(&list, &shape)?)
}

fn size_along(op: &'static str, x: &Tensor, axis: Option<i64>) -> PyResult<usize> {
    Ok(match axis {
        None => x.elems(),
        Some(a) => x.shape()[shape::axis(op, a, x.rank())?],
    })
}

/// Slices of x at indices along an axis (None: elements in row-major order); the indices' axes stand where the axis was.
///
/// Raises IndexError for an index that is out of range (for index tensors: when computed).
///
/// >>> import agtape as ag
/// >>> ag.take(ag.tensor([10, 20, 30]), [2, 0]).tolist()
/// [30, 10]
#[pyfunction]
#[pyo3(signature = (x, indices, axis = None))]
pub fn take(x: &Bound<'_, PyAny>, indices: &Bound<'_, PyAny>, axis: Option<Int<'_>>) -> PyResult<PyTensor> {
    let axis = axis.of("take", "axis")?;
    let x = array("take", x)?;
    let n = size_along("take", &x, axis)? as i64;
    let at = self::indices("take", indices, -n, n as usize)?;
    Ok(index::take(&x, &at, axis)?.into())
}

/// x at positions along an axis, for each place of the other axes, which broadcast (axis None: of all elements in row-major order).
///
/// indices: integers with as many axes as x, or with one. Raises IndexError for an index out of range (for tensors: when computed).
///
/// >>> import agtape as ag
/// >>> ag.take_along_axis(ag.tensor([[1, 2], [3, 4]]), [[1], [0]], axis=1).tolist()
/// [[2], [3]]
#[pyfunction]
#[pyo3(signature = (x, indices, axis = Some(Int::Is(-1))), text_signature = "(x, indices, axis=-1)")]
pub fn take_along_axis(x: &Bound<'_, PyAny>, indices: &Bound<'_, PyAny>, axis: Option<Int<'_>>) -> PyResult<PyTensor> {
    let axis = axis.of("take_along_axis", "axis")?;
    let x = array("take_along_axis", x)?;
    let n = size_along("take_along_axis", &x, axis)? as i64;
    let at = self::indices("take_along_axis", indices, -n, n as usize)?;
    let x = if axis.is_none() { reshape_to(&x, &[x.elems()]) } else { x };
    Ok(index::take_along_axis(Caller::Own, &x, &at, axis.unwrap_or(0))?.into())
}

/// x with src added at positions along an axis, for each place of the other axes; repeated positions add.
///
/// index: integers with as many axes as x; src broadcasts to it. Raises IndexError for an index out of range (for tensors: when computed).
///
/// >>> import agtape as ag
/// >>> ag.scatter_add(ag.zeros(3), 0, [0, 2, 2], ag.ones(3)).tolist()
/// [1.0, 0.0, 2.0]
#[pyfunction]
pub fn scatter_add(x: &Bound<'_, PyAny>, axis: Int<'_>, index: &Bound<'_, PyAny>, src: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let axis = axis.of("scatter_add", "axis")?;
    let x = array("scatter_add", x)?;
    let n = size_along("scatter_add", &x, Some(axis))? as i64;
    let at = indices("scatter_add", index, -n, n as usize)?;
    let v = operand("scatter_add", src)?.beside("scatter_add", x.dtype())?;
    Ok(index::scatter_along(Caller::ScatterAdd, &x, &at, &v, axis)?.into())
}

/// x with the slices of source added at indices along an axis; repeated indices add.
///
/// index: a vector of integers; source broadcasts to what `ag.take` gives. Raises IndexError for an index out of range (for tensors: when
/// computed).
///
/// >>> import agtape as ag
/// >>> ag.index_add(ag.zeros(3), 0, [0, 2, 2], ag.ones(3)).tolist()
/// [1.0, 0.0, 2.0]
#[pyfunction]
pub fn index_add(x: &Bound<'_, PyAny>, axis: Int<'_>, index: &Bound<'_, PyAny>, source: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let axis = axis.of("index_add", "axis")?;
    let x = array("index_add", x)?;
    let a = shape::axis("index_add", axis, x.rank())?;
    let n = x.shape()[a] as i64;
    let at = indices("index_add", index, -n, n as usize)?;
    let mut v = operand("index_add", source)?.beside("index_add", x.dtype())?;
    if v.rank() == x.rank() {
        v = move_axis(&v, a, 0);
    }
    let added = index::scatter_add_by(Caller::IndexAdd, &move_axis(&x, a, 0), std::slice::from_ref(&at), &v)?;
    Ok(move_axis(&added, 0, a).into())
}

/// A new last axis with 1 at the index and 0 elsewhere, float32 unless dtype says otherwise.
///
/// Raises IndexError for an index outside 0 to num_classes - 1 (for tensors: when computed), TypeError for what is no integer.
///
/// >>> import agtape as ag
/// >>> ag.one_hot([1, 0], 3).tolist()
/// [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
#[pyfunction]
#[pyo3(signature = (indices, num_classes, dtype = None))]
pub fn one_hot(indices: &Bound<'_, PyAny>, num_classes: &Bound<'_, PyAny>, dtype: Option<DTypeArg<'_>>) -> PyResult<PyTensor> {
    let (classes, dtype) = (count("one_hot", "num_classes", num_classes)?, dtype.of("one_hot", "dtype")?);
    let at = self::indices("one_hot", indices, 0, classes)?;
    Ok(index::one_hot(&at, classes, dtype.unwrap_or(DType::F32))?.into())
}

/// Rows of a table, of shape (num, ..), at labels, for `nn.functional.embedding`.
///
/// labels: integers of any shape. Raises IndexError for one outside 0 to num - 1 when computed, TypeError for what is no tensor.
///
/// >>> from agtape import _core
/// >>> import agtape as ag
/// >>> _core.embedding_rows(ag.eye(2), ag.tensor([1])).tolist()
/// [[0.0, 1.0]]
#[pyfunction]
pub fn embedding_rows(weight: PyRef<'_, PyTensor>, labels: PyRef<'_, PyTensor>) -> PyResult<PyTensor> {
    Ok(index::gather_by(Caller::Embedding, &weight.tensor(), &[labels.tensor()])?.into())
}

/// What stands at labels along an axis, for the losses of `nn.functional`, whose name op is.
///
/// labels: integers with as many axes as x. Raises IndexError for one outside 0 to size - 1 when computed.
///
/// >>> from agtape import _core
/// >>> import agtape as ag
/// >>> _core.picked_by_labels(ag.eye(2), ag.tensor([[1], [1]]), 1, "nll_loss").tolist()
/// [[0.0], [1.0]]
#[pyfunction]
pub fn picked_by_labels(x: PyRef<'_, PyTensor>, labels: PyRef<'_, PyTensor>, axis: i64, op: &str) -> PyResult<PyTensor> {
    let by = if op == Caller::NllLoss.name() { Caller::NllLoss } else { Caller::CrossEntropy };
    Ok(index::take_along_axis(by, &x.tensor(), &labels.tensor(), axis)?.into())
}

/// The positions of elements unequal to 0, one int64 vector an axis, as a tuple; reads the values.
///
/// Raises ValueError for a tensor without axes.
///
/// >>> import agtape as ag
/// >>> [i.tolist() for i in ag.nonzero(ag.tensor([[0, 1], [2, 0]]))]
/// [[0, 1], [1, 0]]
#[pyfunction]
pub fn nonzero<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = x.py();
    let x = array("nonzero", x)?;
    if x.rank() == 0 {
        return Err(PyValueError::new_err("nonzero: got a tensor without axes; expected at least one"));
    }
    PyTuple::new(py, wrap_all(positions_in(py, &x)?))
}

#[pymethods]
impl PyTensor {
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        Ok(getitem(&self.tensor(), &items("getitem", key)?)?.into())
    }

    fn __setitem__(slf: &Bound<'_, PyTensor>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.get().check_in_place("t[i] = v")?;
        let x = slf.get().tensor();
        let value = operand("setitem", value)?.beside("setitem", x.dtype())?;
        PyTensor::update(slf, setitem(&x, &items("setitem", key)?, &value)?)
    }

    /// Slices at indices along an axis. See `ag.take`.
    #[pyo3(signature = (indices, axis = None))]
    fn take(slf: &Bound<'_, PyTensor>, indices: &Bound<'_, PyAny>, axis: Option<Int<'_>>) -> PyResult<PyTensor> {
        take(slf.as_any(), indices, axis)
    }

    /// The values at positions along an axis. See `ag.take_along_axis`.
    #[pyo3(signature = (indices, axis = Some(Int::Is(-1))), text_signature = "($self, indices, axis=-1)")]
    fn take_along_axis(slf: &Bound<'_, PyTensor>, indices: &Bound<'_, PyAny>, axis: Option<Int<'_>>) -> PyResult<PyTensor> {
        take_along_axis(slf.as_any(), indices, axis)
    }

    /// A new tensor with src added at positions along an axis. See `ag.scatter_add`.
    fn scatter_add(
        slf: &Bound<'_, PyTensor>,
        axis: Int<'_>,
        index: &Bound<'_, PyAny>,
        src: &Bound<'_, PyAny>,
    ) -> PyResult<PyTensor> {
        scatter_add(slf.as_any(), axis, index, src)
    }

    /// A new tensor with slices of source added at indices along an axis. See `ag.index_add`.
    fn index_add(
        slf: &Bound<'_, PyTensor>,
        axis: Int<'_>,
        index: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
    ) -> PyResult<PyTensor> {
        index_add(slf.as_any(), axis, index, source)
    }

    /// The positions of elements unequal to 0. See `ag.nonzero`.
    fn nonzero<'py>(slf: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTuple>> {
        nonzero(slf.as_any())
    }

    /// The elements where a bool mask, broadcast with the tensor, is true, as a vector; reads the mask.
    fn masked_select(&self, mask: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let mask_tensor = array("masked_select", mask)?;
        if mask_tensor.dtype() != DType::Bool {
            return Err(PyTypeError::new_err(format!("masked_select: the mask is {}; expected bool", mask_tensor.dtype())));
        }
        let all = crate::ops::movement::broadcast_all(&[self.tensor(), mask_tensor])?;
        let wide = Bound::new(mask.py(), PyTensor::from(all[1].clone()))?;
        let y = getitem(&all[0], &items("masked_select", wide.as_any())?)?;
        Ok(reshape_to(&y, &[y.elems()]).into())
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; take, take_along_axis, scatter_add, index_add, one_hot, nonzero, embedding_rows, picked_by_labels);
    Ok(())
}
