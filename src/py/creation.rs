//! Functions that make tensors: from data, constants, ranges, and matrices with a pattern.
// PyO3's generated wrappers are unsafe functions; inside macro_rules their hygiene hides the lint's own exemption.
#![allow(unsafe_op_in_unsafe_fn)]
use super::arguments::{Checked, Int, array, checked, count, ints, new_shape, number, quantity};
use super::convert::{DTypeArg, converted, device_given, from_array, on};
use super::error::named;
use super::flags::Flag;
use super::leaf::leaf_version;
use super::tensor::PyTensor;
use crate::device::Device;
use crate::dtype::{DType, Scalar};
use crate::graph::{Scope, Tensor, Variable, record_version};
use crate::ops::create;
use crate::ops::unary::cast;
use crate::ops::view::{broadcast_to, copy as row_major_copy};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

type Arg<'py> = Option<Bound<'py, PyAny>>;

fn check_float(op: &str, dtype: DType, requires_grad: bool) -> PyResult<()> {
    if requires_grad && !dtype.is_float() {
        return Err(PyTypeError::new_err(format!(
            "{op}: only floating-point tensors can require a gradient, this is {dtype}; pass dtype=\"float32\""
        )));
    }
    Ok(())
}

/// A new tensor, as a leaf that wants a gradient if asked for.
pub fn finish(op: &str, t: Tensor, requires_grad: bool) -> PyResult<PyTensor> {
    check_float(op, t.dtype(), requires_grad)?;
    Ok(if requires_grad { leaf_version(&t, Arc::new(Variable::new(true))) } else { t }.into())
}

/// A leaf with a copy of the data, outside every tape; on the default device, or another tensor's, unless one is given.
pub fn leaf(
    op: &str,
    data: &Bound<'_, PyAny>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let dtype = dtype.of(op, "dtype")?;
    let variable = requires_grad.then(|| Arc::new(Variable::new(true)));
    if let Ok(given) = data.cast::<PyTensor>() {
        let t = given.get().tensor();
        let dtype = dtype.unwrap_or(t.dtype());
        check_float(op, dtype, requires_grad)?;
        let _paused = Scope::enter(|s| s.paused = true);
        let device = device.map(|d| device_given(op, Some(d))).transpose()?.or(t.device());
        let is_copy = dtype == t.dtype() && device == t.device();
        let copied = if is_copy { row_major_copy(&t) } else { converted(&t, dtype, device)? };
        return Ok(record_version(&copied, variable).into());
    }
    if let Some(d) = dtype {
        check_float(op, d, requires_grad)?;
    }
    let t = from_array(data, dtype, variable, Some(device_given(op, device)?)).map_err(|e| named(op, data.py(), e))?;
    check_float(op, t.dtype(), requires_grad)?;
    Ok(t.into())
}

/// A tensor with a copy of the data: an array, a number, nested sequences of numbers, or another tensor.
///
/// Arrays keep their dtype; Python floats become float32, ints int64. requires_grad: whether backward fills its `.grad`. Raises TypeError
/// for data that is no array of booleans, integers or floats, ValueError for an unknown device.
///
/// >>> import agtape as ag
/// >>> ag.tensor([[1.0, 2.0], [3.0, 4.0]]).shape
/// (2, 2)
#[pyfunction]
#[pyo3(signature = (data, dtype = None, device = None, requires_grad = Flag::Is(false)), text_signature = "(data, dtype=None, device=None, requires_grad=False)")]
pub fn tensor(
    data: &Bound<'_, PyAny>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: Flag<'_>,
) -> PyResult<PyTensor> {
    leaf("tensor", data, dtype, device, requires_grad.of("tensor", "requires_grad")?)
}

/// A leaf that wants a gradient, with a copy of the data; integers are refused with TypeError.
///
/// >>> import agtape as ag
/// >>> ag.param([1.0, 2.0]).requires_grad
/// True
#[pyfunction]
#[pyo3(signature = (data, dtype = None, device = None))]
pub fn param(data: &Bound<'_, PyAny>, dtype: Option<DTypeArg<'_>>, device: Option<&Bound<'_, PyAny>>) -> PyResult<PyTensor> {
    leaf("param", data, dtype, device, true)
}

/// The shape, the dtype (float32 unless given) and the device that a creation function was called with.
pub fn shape_and_dtype(
    op: &str,
    args: &Bound<'_, PyTuple>,
    shape: Option<&Bound<'_, PyAny>>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Vec<usize>, DType, Device)> {
    let (device, dtype) = (device_given(op, device)?, dtype.of(op, "dtype")?);
    let (shape, given) = new_shape(op, args, shape)?;
    Ok((shape, dtype.or(given).unwrap_or(DType::F32), device))
}

/// Functions of a shape and of a tensor's shape: name, like-name, number, what they are filled with.
macro_rules! constants {
    ($(($name:ident, $like:ident, $value:literal, $what:literal, $result:literal)),* $(,)?) => {
        $(
            #[doc = concat!("A tensor of ", $what, ", float32 unless dtype says otherwise.\n\nShape: several integers or a tuple. Raises ValueError for a negative size or an unknown device.\n\n>>> import agtape as ag\n>>> ag.", stringify!($name), "(2).tolist()\n", $result)]
            #[pyfunction]
            #[pyo3(signature = (*args, shape = None, dtype = None, device = None, requires_grad = Flag::Is(false)), text_signature = "(*args, shape=None, dtype=None, device=None, requires_grad=False)")]
            pub fn $name(args: &Bound<'_, PyTuple>, shape: Arg<'_>, dtype: Option<DTypeArg<'_>>, device: Option<&Bound<'_, PyAny>>, requires_grad: Flag<'_>) -> PyResult<PyTensor> {
                let requires_grad = requires_grad.of(stringify!($name), "requires_grad")?;
                let (shape, dtype, device) = shape_and_dtype(stringify!($name), args, shape.as_ref(), dtype, device)?;
                finish(stringify!($name), on(create::full(stringify!($name), &shape, Scalar::Int($value), dtype)?, device)?, requires_grad)
            }

            #[doc = concat!("A tensor of ", $what, " with x's shape, and its dtype unless given.\n\n>>> import agtape as ag\n>>> ag.", stringify!($like), "(ag.tensor([5.0, 6.0])).tolist()\n", $result)]
            #[pyfunction]
            #[pyo3(signature = (x, dtype = None, device = None))]
            pub fn $like(x: &Bound<'_, PyAny>, dtype: Option<DTypeArg<'_>>, device: Option<&Bound<'_, PyAny>>) -> PyResult<PyTensor> {
                let x = array(stringify!($like), x)?;
                let (device, dtype) = (beside(stringify!($like), &x, device)?, dtype.of(stringify!($like), "dtype")?);
                Ok(on(create::full(stringify!($like), x.shape(), Scalar::Int($value), dtype.unwrap_or(x.dtype()))?, device)?.into())
            }
        )*

        fn register_constants(m: &Bound<'_, PyModule>) -> PyResult<()> {
            functions!(m; $($name, $like),*);
            Ok(())
        }
    };
}

constants! {
    (zeros, zeros_like, 0, "zeros", "[0.0, 0.0]"),
    (ones, ones_like, 1, "ones", "[1.0, 1.0]"),
    (empty, empty_like, 0, "zeros (no memory is left uninitialized)", "[0.0, 0.0]"),
}

/// The device given, else a tensor's own.
fn beside(op: &str, x: &Tensor, device: Option<&Bound<'_, PyAny>>) -> PyResult<Device> {
    match (device, x.device()) {
        (None, Some(own)) => Ok(own),
        (given, _) => device_given(op, given),
    }
}

fn filled(op: &'static str, shape: &[usize], value: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<Tensor> {
    if value.cast::<PyTensor>().is_ok() || value.hasattr("dtype")? {
        let t = array(op, value)?;
        return Ok(cast(&broadcast_to(&t, shape)?, dtype.unwrap_or(t.dtype())));
    }
    let value = number(op, "fill_value", value)?;
    Ok(create::full(op, shape, value, dtype.unwrap_or(value.weak_dtype()))?)
}

/// A tensor filled with a number; its dtype follows the number (float32, int64 or bool) unless given.
///
/// shape: an integer or a tuple. Raises ValueError for a negative size, TypeError for what is no number.
///
/// >>> import agtape as ag
/// >>> ag.full((2,), 7.0).tolist()
/// [7.0, 7.0]
#[pyfunction]
#[pyo3(signature = (shape, fill_value, dtype = None, device = None, requires_grad = Flag::Is(false)), text_signature = "(shape, fill_value, dtype=None, device=None, requires_grad=False)")]
pub fn full(
    shape: &Bound<'_, PyAny>,
    fill_value: &Bound<'_, PyAny>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: Flag<'_>,
) -> PyResult<PyTensor> {
    let (device, dtype) = (device_given("full", device)?, dtype.of("full", "dtype")?);
    let requires_grad = requires_grad.of("full", "requires_grad")?;
    let shape = checked("full", &ints("full", "shape", shape)?)?;
    finish("full", on(filled("full", &shape, fill_value, dtype)?, device)?, requires_grad)
}

/// A tensor filled with a number, with x's shape, and its dtype unless given.
///
/// >>> import agtape as ag
/// >>> ag.full_like(ag.tensor([1.0, 2.0]), 7).tolist()
/// [7.0, 7.0]
#[pyfunction]
#[pyo3(signature = (x, fill_value, dtype = None, device = None))]
pub fn full_like(
    x: &Bound<'_, PyAny>,
    fill_value: &Bound<'_, PyAny>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyTensor> {
    let x = array("full_like", x)?;
    let (device, dtype) = (beside("full_like", &x, device)?, dtype.of("full_like", "dtype")?);
    Ok(on(filled("full_like", x.shape(), fill_value, Some(dtype.unwrap_or(x.dtype())))?, device)?.into())
}

/// start, start + step, .. before stop (0, 1, .. before start if that is all): int64 for integers, else float32, unless given.
///
/// Raises ValueError for a step of 0 or too many values.
///
/// >>> import agtape as ag
/// >>> ag.arange(1, 7, 2).tolist()
/// [1, 3, 5]
#[pyfunction]
#[pyo3(signature = (start, stop = None, step = None, dtype = None, device = None))]
pub fn arange(
    start: &Bound<'_, PyAny>,
    stop: Arg<'_>,
    step: Arg<'_>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyTensor> {
    let (device, dtype) = (device_given("arange", device)?, dtype.of("arange", "dtype")?);
    let first = quantity("arange", "start", start)?;
    let step = step.map_or(Ok(Scalar::Int(1)), |s| quantity("arange", "step", &s))?;
    let (start, stop) = match stop {
        Some(stop) => (first, quantity("arange", "stop", &stop)?),
        None => (Scalar::Int(0), first),
    };
    Ok(on(create::arange(start, stop, step, dtype)?, device)?.into())
}

/// num evenly spaced numbers from start to stop, float32 unless dtype says otherwise; without endpoint, stop would be the next.
///
/// Raises ValueError for a negative number.
///
/// >>> import agtape as ag
/// >>> ag.linspace(0, 1, 3).tolist()
/// [0.0, 0.5, 1.0]
#[pyfunction]
#[pyo3(signature = (start, stop, num = None, endpoint = Flag::Is(true), dtype = None, device = None), text_signature = "(start, stop, num=None, endpoint=True, dtype=None, device=None)")]
pub fn linspace(
    start: &Bound<'_, PyAny>,
    stop: &Bound<'_, PyAny>,
    num: Arg<'_>,
    endpoint: Flag<'_>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyTensor> {
    let (device, endpoint) = (device_given("linspace", device)?, endpoint.of("linspace", "endpoint")?);
    let (a, b) = (quantity("linspace", "start", start)?.as_f64(), quantity("linspace", "stop", stop)?.as_f64());
    let n = num.map_or(Ok(50), |n| count("linspace", "num", &n))?;
    let dtype = dtype.of("linspace", "dtype")?.unwrap_or(DType::F32);
    let line = create::linspace(a, b, n, endpoint, dtype)?;
    // Other types are computed in float64, which adapters lack.
    let line = if dtype == DType::F32 { line } else { on(line, Device::CPU)? };
    Ok(on(line, device)?.into())
}

/// A matrix with ones on its k-th diagonal and zeros elsewhere, float32 unless dtype says otherwise.
///
/// Raises ValueError for a negative size.
///
/// >>> import agtape as ag
/// >>> ag.eye(2).tolist()
/// [[1.0, 0.0], [0.0, 1.0]]
#[pyfunction]
#[pyo3(signature = (n_rows, n_cols = None, k = Int::Is(0), dtype = None, device = None), text_signature = "(n_rows, n_cols=None, k=0, dtype=None, device=None)")]
pub fn eye(
    n_rows: &Bound<'_, PyAny>,
    n_cols: Arg<'_>,
    k: Int<'_>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyTensor> {
    let (device, dtype) = (device_given("eye", device)?, dtype.of("eye", "dtype")?.unwrap_or(DType::F32));
    let n = count("eye", "n_rows", n_rows)?;
    let m = n_cols.map_or(Ok(n), |c| count("eye", "n_cols", &c))?;
    Ok(on(create::eye(n, m, k.of("eye", "k")?, dtype)?, device)?.into())
}

/// Patterns of matrices by the number of a diagonal, each also a method: name, what it gives, an example's result for [[1, 2], [3, 4]].
macro_rules! patterns {
    ($(($name:ident, $what:literal, $result:literal)),* $(,)?) => {
        $(
            #[doc = concat!($what, "\n\nRaises ValueError for a shape that does not fit.\n\n>>> import agtape as ag\n>>> ag.", stringify!($name), "(ag.tensor([[1, 2], [3, 4]])).tolist()\n", $result)]
            #[pyfunction]
            #[pyo3(signature = (x, k = Int::Is(0)), text_signature = "(x, k=0)")]
            pub fn $name(x: &Bound<'_, PyAny>, k: Int<'_>) -> PyResult<PyTensor> {
                Ok(create::$name(&array(stringify!($name), x)?, k.of(stringify!($name), "k")?)?.into())
            }
        )*

        #[pymethods]
        impl PyTensor {
            $(
                #[doc = concat!($what, " See `ag.", stringify!($name), "`.")]
                #[pyo3(signature = (k = Int::Is(0)), text_signature = "($self, k=0)")]
                fn $name(&self, k: Int<'_>) -> PyResult<PyTensor> {
                    Ok(create::$name(&self.tensor(), k.of(stringify!($name), "k")?)?.into())
                }
            )*
        }

        fn register_patterns(m: &Bound<'_, PyModule>) -> PyResult<()> {
            functions!(m; $($name),*);
            Ok(())
        }
    };
}

patterns! {
    (triu, "The last two axes with zeros below the k-th diagonal.", "[[1, 2], [0, 4]]"),
    (tril, "The last two axes with zeros above the k-th diagonal.", "[[1, 0], [3, 4]]"),
    (diag, "The k-th diagonal of a matrix, or a matrix with a vector on its k-th diagonal.", "[1, 4]"),
}

/// The diagonal of two axes, moved by offset, as a new last axis.
///
/// Raises ValueError for axes that x does not have, or the same axis twice.
///
/// >>> import agtape as ag
/// >>> ag.diagonal(ag.tensor([[1, 2], [3, 4]]), offset=1).tolist()
/// [2]
#[pyfunction]
#[pyo3(signature = (x, offset = Int::Is(0), axis1 = Int::Is(0), axis2 = Int::Is(1)), text_signature = "(x, offset=0, axis1=0, axis2=1)")]
pub fn diagonal(x: &Bound<'_, PyAny>, offset: Int<'_>, axis1: Int<'_>, axis2: Int<'_>) -> PyResult<PyTensor> {
    let (offset, axis1, axis2) = diagonal_of("diagonal", &offset, &axis1, &axis2)?;
    Ok(create::diagonal(&array("diagonal", x)?, offset, axis1, axis2)?.into())
}

/// Which diagonal of which axes.
pub fn diagonal_of(op: &str, offset: &Int<'_>, axis1: &Int<'_>, axis2: &Int<'_>) -> PyResult<(i64, i64, i64)> {
    Ok((offset.of(op, "offset")?, axis1.of(op, "axis1")?, axis2.of(op, "axis2")?))
}

#[pymethods]
impl PyTensor {
    /// The diagonal of two axes. See `ag.diagonal`.
    #[pyo3(signature = (offset = Int::Is(0), axis1 = Int::Is(0), axis2 = Int::Is(1)), text_signature = "($self, offset=0, axis1=0, axis2=1)")]
    fn diagonal(slf: &Bound<'_, PyTensor>, offset: Int<'_>, axis1: Int<'_>, axis2: Int<'_>) -> PyResult<PyTensor> {
        diagonal(slf.as_any(), offset, axis1, axis2)
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_constants(m)?;
    register_patterns(m)?;
    functions!(m; tensor, param, full, full_like, arange, linspace, eye, diagonal);
    Ok(())
}
