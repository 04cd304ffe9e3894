//! Functions and methods that change shapes: reshape, axes in another order, broadcasting, flips.
use super::arguments::{Checked, Int, array, arrays, axes, check_count, checked, integer, ints, several};
use super::flags::{Flag, Word};
use super::tensor::{PyTensor, wrap_all};
use crate::graph::Tensor;
use crate::ops::view;
use crate::shape;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

type Arg<'py> = Option<Bound<'py, PyAny>>;

/// The same elements in row-major order under another shape; one size may be -1.
///
/// shape: several integers or a tuple. Raises ValueError if the number of elements differs.
///
/// >>> import agtape as ag
/// >>> ag.reshape(ag.arange(6), 2, -1).tolist()
/// [[0, 1, 2], [3, 4, 5]]
#[pyfunction]
#[pyo3(signature = (x, *args, shape = None, copy = None))]
pub fn reshape(x: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>, shape: Arg<'_>, copy: Option<Flag<'_>>) -> PyResult<PyTensor> {
    let (x, copy) = (array("reshape", x)?, copy.of("reshape", "copy")?);
    let to = several("reshape", "shape", args, shape.as_ref())?;
    let y = view::reshape(&x, &to)?;
    Ok(if copy == Some(true) { view::copy(&y) } else { y }.into())
}

/// The axes in the order given, several integers or a tuple.
///
/// Raises ValueError unless each axis is named once.
///
/// >>> import agtape as ag
/// >>> ag.permute(ag.zeros(2, 3, 4), 2, 0, 1).shape
/// (4, 2, 3)
#[pyfunction]
#[pyo3(signature = (x, *args, axes = None))]
pub fn permute(x: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>, axes: Arg<'_>) -> PyResult<PyTensor> {
    Ok(view::permute(&array("permute", x)?, Some(&several("permute", "axes", args, axes.as_ref())?))?.into())
}

/// `transpose` by its arguments: none reverses, two integers swap, a tuple or more integers permute.
fn transposed(x: &Tensor, args: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
    let y = match args.len() {
        0 => view::permute(x, None)?,
        2 => view::transpose(
            "transpose",
            x,
            integer("transpose", "an axis", &args.get_item(0)?)?,
            integer("transpose", "an axis", &args.get_item(1)?)?,
        )?,
        1 if args.get_item(0)?.is_none() => view::permute(x, None)?,
        _ => view::permute(x, Some(&several("transpose", "axes", args, None)?))?,
    };
    Ok(y.into())
}

/// The axes reversed, in the order of a tuple (NumPy), or two of them swapped (PyTorch).
///
/// Raises ValueError for axes that x does not have, or a tuple that does not name each once.
///
/// >>> import agtape as ag
/// >>> x = ag.zeros(2, 3, 4)
/// >>> ag.transpose(x).shape, ag.transpose(x, (0, 2, 1)).shape, ag.transpose(x, 0, 1).shape
/// ((4, 3, 2), (2, 4, 3), (3, 2, 4))
#[pyfunction]
#[pyo3(signature = (x, *args, axes = None))]
pub fn transpose(x: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>, axes: Arg<'_>) -> PyResult<PyTensor> {
    let x = array("transpose", x)?;
    match axes {
        Some(given) => Ok(view::permute(&x, Some(&ints("transpose", "axes", &given)?))?.into()),
        None => transposed(&x, args),
    }
}

/// The last two axes swapped.
///
/// Raises ValueError if there are fewer than two.
///
/// >>> import agtape as ag
/// >>> ag.matrix_transpose(ag.zeros(2, 3, 4)).shape
/// (2, 4, 3)
#[pyfunction]
pub fn matrix_transpose(x: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let x = array("matrix_transpose", x)?;
    if x.rank() < 2 {
        return Err(PyValueError::new_err(format!("matrix_transpose: got shape {:?}; expected at least two axes", x.shape())));
    }
    Ok(view::transpose("matrix_transpose", &x, -1, -2)?.into())
}

/// Two axes swapped.
///
/// Raises ValueError for an axis that x does not have.
///
/// >>> import agtape as ag
/// >>> ag.swapaxes(ag.zeros(2, 3, 4), 0, 2).shape
/// (4, 3, 2)
#[pyfunction]
pub fn swapaxes(x: &Bound<'_, PyAny>, axis1: Int<'_>, axis2: Int<'_>) -> PyResult<PyTensor> {
    let op = "swapaxes";
    Ok(view::transpose(op, &array(op, x)?, axis1.of(op, "axis1")?, axis2.of(op, "axis2")?)?.into())
}

/// Axes moved to other places, the others in order; each argument an integer or a tuple.
///
/// Raises ValueError for axes that x does not have, or lists of unequal length.
///
/// >>> import agtape as ag
/// >>> ag.moveaxis(ag.zeros(2, 3, 4), 0, -1).shape
/// (3, 4, 2)
#[pyfunction]
pub fn moveaxis(x: &Bound<'_, PyAny>, source: &Bound<'_, PyAny>, destination: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let x = array("moveaxis", x)?;
    let (from, to) = (ints("moveaxis", "source", source)?, ints("moveaxis", "destination", destination)?);
    if from.len() != to.len() {
        return Err(PyValueError::new_err(format!("moveaxis: source {from:?} and destination {to:?}; expected as many axes")));
    }
    let (from, to) = (shape::axes("moveaxis", &from, x.rank())?, shape::axes("moveaxis", &to, x.rank())?);
    let mut rest = (0..x.rank()).filter(|a| !from.contains(a));
    let order: Vec<usize> =
        (0..x.rank()).filter_map(|place| to.iter().position(|&t| t == place).map(|i| from[i]).or_else(|| rest.next())).collect();
    Ok(view::permute_axes(&x, &order).into())
}

/// New axes of size 1 at these places of the result, an integer or a tuple.
///
/// Raises ValueError for a place that the result does not have.
///
/// >>> import agtape as ag
/// >>> ag.expand_dims(ag.zeros(3), 0).shape
/// (1, 3)
#[pyfunction]
#[pyo3(signature = (x, axis = None))]
pub fn expand_dims(x: &Bound<'_, PyAny>, axis: Arg<'_>) -> PyResult<PyTensor> {
    let places = axes("expand_dims", axis.as_ref())?.unwrap_or_else(|| smallvec::smallvec![0]);
    Ok(view::expand_dims(&array("expand_dims", x)?, &places)?.into())
}

/// Without these axes of size 1 (None: without any of them).
///
/// axis: None, an integer or a tuple. Raises ValueError for an axis of another size.
///
/// >>> import agtape as ag
/// >>> ag.squeeze(ag.zeros(1, 3, 1), axis=0).shape
/// (3, 1)
#[pyfunction]
#[pyo3(signature = (x, axis = None))]
pub fn squeeze(x: &Bound<'_, PyAny>, axis: Arg<'_>) -> PyResult<PyTensor> {
    Ok(view::squeeze(&array("squeeze", x)?, axes("squeeze", axis.as_ref())?.as_deref())?.into())
}

/// Stretched to a shape that it broadcasts to: several integers or a tuple.
///
/// Raises ValueError if it does not broadcast.
///
/// >>> import agtape as ag
/// >>> ag.broadcast_to(ag.tensor([1, 2]), (2, 2)).tolist()
/// [[1, 2], [1, 2]]
#[pyfunction]
#[pyo3(signature = (x, *args, shape = None))]
pub fn broadcast_to(x: &Bound<'_, PyAny>, args: &Bound<'_, PyTuple>, shape: Arg<'_>) -> PyResult<PyTensor> {
    let to = checked("broadcast_to", &several("broadcast_to", "shape", args, shape.as_ref())?)?;
    Ok(view::broadcast_to(&array("broadcast_to", x)?, &to)?.into())
}

/// Tensors stretched to the shape that all broadcast to, as a tuple.
///
/// Raises ValueError if they do not broadcast.
///
/// >>> import agtape as ag
/// >>> [t.shape for t in ag.broadcast_arrays(ag.zeros(3, 1), ag.zeros(2))]
/// [(3, 2), (3, 2)]
#[pyfunction]
#[pyo3(signature = (*args))]
pub fn broadcast_arrays<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    let all = crate::ops::movement::broadcast_all(&arrays("broadcast_arrays", args.as_any())?)?;
    PyTuple::new(args.py(), wrap_all(all))
}

/// The elements along the axes in reverse (None: all axes).
///
/// axis: None, an integer or a tuple. Raises ValueError for an axis that x does not have.
///
/// >>> import agtape as ag
/// >>> ag.flip(ag.tensor([1, 2, 3])).tolist()
/// [3, 2, 1]
#[pyfunction]
#[pyo3(signature = (x, axis = None))]
pub fn flip(x: &Bound<'_, PyAny>, axis: Arg<'_>) -> PyResult<PyTensor> {
    Ok(view::flip(&array("flip", x)?, axes("flip", axis.as_ref())?.as_deref())?.into())
}

/// The axes from start to end joined into one; all of them by default.
///
/// Raises ValueError for an axis that x does not have, or an end before the start.
///
/// >>> import agtape as ag
/// >>> ag.flatten(ag.zeros(2, 3, 4), 1).shape
/// (2, 12)
#[pyfunction]
#[pyo3(signature = (x, start = Int::Is(0), end = Int::Is(-1)), text_signature = "(x, start=0, end=-1)")]
pub fn flatten(x: &Bound<'_, PyAny>, start: Int<'_>, end: Int<'_>) -> PyResult<PyTensor> {
    let (start, end) = (start.of("flatten", "start")?, end.of("flatten", "end")?);
    let x = array("flatten", x)?;
    if x.rank() == 0 {
        return Ok(view::reshape_to(&x, &[1]).into());
    }
    let (i, j) = (shape::axis("flatten", start, x.rank())?, shape::axis("flatten", end, x.rank())?);
    if j < i {
        return Err(PyValueError::new_err(format!("flatten: start is axis {i} and end axis {j}; expected the start first")));
    }
    let to = [&x.shape()[..i], &[x.shape()[i..=j].iter().product()], &x.shape()[j + 1..]].concat();
    Ok(view::reshape_to(&x, &to).into())
}

#[pymethods]
impl PyTensor {
    /// The axes reversed, as NumPy's `T`.
    #[getter(T)]
    fn reversed_axes(&self) -> PyResult<PyTensor> {
        Ok(view::permute(&self.tensor(), None)?.into())
    }

    /// The last two axes swapped.
    #[getter(mT)]
    fn matrix_transposed(slf: &Bound<'_, PyTensor>) -> PyResult<PyTensor> {
        matrix_transpose(slf.as_any())
    }

    /// The same elements under another shape: several integers or a tuple, one of which may be -1. See `ag.reshape`.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        Ok(view::reshape(&self.tensor(), &several("reshape", "shape", shape, None)?)?.into())
    }

    /// `reshape`, by PyTorch's other name.
    #[pyo3(signature = (*shape))]
    fn view(&self, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        Ok(view::reshape(&self.tensor(), &several("view", "shape", shape, None)?).map_err(|e| e.named("view"))?.into())
    }

    /// The axes in another order: several integers or a tuple. See `ag.permute`.
    #[pyo3(signature = (*axes))]
    fn permute(&self, axes: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        Ok(view::permute(&self.tensor(), Some(&several("permute", "axes", axes, None)?))?.into())
    }

    /// Two axes swapped; without arguments all reversed, with a tuple in its order. See `ag.transpose`.
    #[pyo3(signature = (*axes))]
    fn transpose(&self, axes: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        transposed(&self.tensor(), axes)
    }

    /// Two axes swapped. See `ag.swapaxes`.
    fn swapaxes(slf: &Bound<'_, PyTensor>, axis1: Int<'_>, axis2: Int<'_>) -> PyResult<PyTensor> {
        swapaxes(slf.as_any(), axis1, axis2)
    }

    /// Axes moved to other places. See `ag.moveaxis`.
    fn moveaxis(slf: &Bound<'_, PyTensor>, source: &Bound<'_, PyAny>, destination: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        moveaxis(slf.as_any(), source, destination)
    }

    /// New axes of size 1. See `ag.expand_dims`.
    #[pyo3(signature = (axis = None))]
    fn expand_dims(slf: &Bound<'_, PyTensor>, axis: Arg<'_>) -> PyResult<PyTensor> {
        expand_dims(slf.as_any(), axis)
    }

    /// A new axis of size 1, by PyTorch's name. See `ag.expand_dims`.
    fn unsqueeze(&self, axis: Int<'_>) -> PyResult<PyTensor> {
        Ok(view::expand_dims(&self.tensor(), &[axis.of("unsqueeze", "axis")?])?.into())
    }

    /// Without axes of size 1. See `ag.squeeze`.
    #[pyo3(signature = (axis = None))]
    fn squeeze(slf: &Bound<'_, PyTensor>, axis: Arg<'_>) -> PyResult<PyTensor> {
        squeeze(slf.as_any(), axis)
    }

    /// Stretched to a shape. See `ag.broadcast_to`.
    #[pyo3(signature = (*shape))]
    fn broadcast_to(slf: &Bound<'_, PyTensor>, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        broadcast_to(slf.as_any(), shape, None)
    }

    /// Stretched to a shape in which -1 keeps a size, by PyTorch's name.
    #[pyo3(signature = (*shape))]
    fn expand(&self, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let x = self.tensor();
        let mut to = several("expand", "shape", shape, None)?;
        let lead = to.len().saturating_sub(x.rank());
        for (d, &size) in to.iter_mut().skip(lead).zip(x.shape()) {
            *d = if *d == -1 { size as i64 } else { *d };
        }
        Ok(view::broadcast_to(&x, &checked("expand", &to)?)?.into())
    }

    /// The elements along the axes in reverse. See `ag.flip`.
    #[pyo3(signature = (axis = None))]
    fn flip(slf: &Bound<'_, PyTensor>, axis: Arg<'_>) -> PyResult<PyTensor> {
        flip(slf.as_any(), axis)
    }

    /// The axes from start to end joined into one. See `ag.flatten`.
    #[pyo3(signature = (start = Int::Is(0), end = Int::Is(-1)), text_signature = "($self, start=0, end=-1)")]
    fn flatten(slf: &Bound<'_, PyTensor>, start: Int<'_>, end: Int<'_>) -> PyResult<PyTensor> {
        flatten(slf.as_any(), start, end)
    }

    /// All elements along one axis.
    fn ravel(&self) -> PyTensor {
        let x = self.tensor();
        view::reshape_to(&x, &[x.elems()]).into()
    }

    /// The number of elements, PyTorch's `numel`.
    fn numel(&self) -> usize {
        self.tensor().elems()
    }

    /// The number of axes, PyTorch's `dim`.
    fn dim(&self) -> usize {
        self.tensor().rank()
    }
}

/// Rows and columns of coordinates: each vector along an axis of its own, all stretched to one shape, as a tuple.
///
/// args: vectors. indexing: "xy" (the first two axes swapped, as in pictures) or "ij". Raises ValueError for another word or shape.
///
/// >>> import agtape as ag
/// >>> x, y = ag.meshgrid(ag.tensor([1, 2]), ag.tensor([5, 6, 7]), indexing="ij")
/// >>> x.shape, y.tolist()
/// ((2, 3), [[5, 6, 7], [5, 6, 7]])
#[pyfunction]
#[pyo3(signature = (*args, indexing = Word::Is("xy")), text_signature = "(*args, indexing=\"xy\")")]
pub fn meshgrid<'py>(args: &Bound<'py, PyTuple>, indexing: Word<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let is_swapped = indexing.among("meshgrid", "indexing", &[("xy", true), ("ij", false)])?;
    let list = arrays("meshgrid", args.as_any())?;
    if let Some(t) = list.iter().find(|t| t.rank() > 1) {
        return Err(PyValueError::new_err(format!("meshgrid: got shape {:?}; expected vectors", t.shape())));
    }
    let is_swapped = is_swapped && list.len() > 1;
    let place = |i: usize| if is_swapped && i < 2 { 1 - i } else { i };
    let columns: Vec<Tensor> = list
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let mut to = vec![1; list.len()];
            to[place(i)] = t.elems();
            view::reshape_to(t, &to)
        })
        .collect();
    let all = crate::ops::movement::broadcast_all(&columns)?;
    PyTuple::new(args.py(), wrap_all(all))
}

/// The parts along an axis, without it, as a tuple.
///
/// Raises ValueError for an axis that x does not have, TypeError for a tensor without axes.
///
/// >>> import agtape as ag
/// >>> a, b = ag.unstack(ag.tensor([[1, 2], [3, 4]]))
/// >>> b.tolist()
/// [3, 4]
#[pyfunction]
#[pyo3(signature = (x, axis = Int::Is(0)), text_signature = "(x, axis=0)")]
pub fn unstack<'py>(x: &Bound<'py, PyAny>, axis: Int<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let axis = axis.of("unstack", "axis")?;
    let t = array("unstack", x)?;
    if t.rank() == 0 {
        return Err(PyTypeError::new_err("unstack: got a tensor without axes; expected at least one"));
    }
    let axis = shape::axis("unstack", axis, t.rank())?;
    check_count("unstack", "axis", t.shape()[axis])?;
    let parts = (0..t.shape()[axis]).map(|i| -> PyResult<PyTensor> {
        let part = view::narrow(&t, axis, i, i + 1)?;
        Ok(view::squeeze(&part, Some(&[axis as i64]))?.into())
    });
    PyTuple::new(x.py(), parts.collect::<PyResult<Vec<_>>>()?)
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; reshape, permute, transpose, matrix_transpose, swapaxes, moveaxis, expand_dims, squeeze, broadcast_to);
    functions!(m; broadcast_arrays, flip, flatten, meshgrid, unstack);
    Ok(())
}
