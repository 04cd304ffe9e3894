//! Reductions, running sums, softmax and sorting, as functions and methods.
// PyO3's generated wrappers are unsafe functions; inside macro_rules their hygiene hides the lint's own exemption.
#![allow(unsafe_op_in_unsafe_fn)]
use super::arguments::{Checked, Int, Real, array, axes, axis as one_axis, count};
use super::convert::{DTypeArg, converted};
use super::flags::Flag;
use super::tensor::PyTensor;
use crate::backend::kind::BinaryKind::Ne;
use crate::backend::kind::ReduceKind as R;
use crate::dtype::Scalar;
use crate::graph::Tensor;
use crate::ops::binary::{binary, host_scalar};
use crate::ops::cumulative;
use crate::ops::reduce::{self, reduce};
use crate::ops::softmax as rows;
use crate::ops::sort as order;
use crate::ops::unary::cast;
use crate::shape;
use pyo3::prelude::*;

type Arg<'py> = Option<Bound<'py, PyAny>>;

fn fold(kind: R, x: &Tensor, axis: Arg<'_>, keepdims: Flag<'_>, dtype: Option<DTypeArg<'_>>) -> PyResult<PyTensor> {
    let op = kind.name();
    let (axes, keepdims) = (axes(op, axis.as_ref())?, keepdims.of(op, "keepdims")?);
    let y = match dtype.of(op, "dtype")? {
        None => reduce(kind, x, axes.as_deref(), keepdims)?,
        Some(d) => cast(&reduce(kind, &converted(x, d, None)?, axes.as_deref(), keepdims)?, d),
    };
    Ok(y.into())
}

/// Reductions with a dtype: name, kind, what they compute, an example's result for [[1, 2], [3, 4]] along axis 0.
macro_rules! sums {
    ($(($name:ident, $kind:ident, $what:literal, $result:literal)),* $(,)?) => {
        $(
            #[doc = concat!($what, "\n\nx: a tensor or array. axis: None for all axes, an integer or a tuple; they are dropped unless keepdims. dtype: converted to first.\nRaises ValueError for an axis that x does not have.\n\n>>> import agtape as ag\n>>> ag.", stringify!($name), "(ag.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0).tolist()\n", $result)]
            #[pyfunction]
            #[pyo3(signature = (x, axis = None, keepdims = Flag::Is(false), dtype = None), text_signature = "(x, axis=None, keepdims=False, dtype=None)")]
            pub fn $name(x: &Bound<'_, PyAny>, axis: Arg<'_>, keepdims: Flag<'_>, dtype: Option<DTypeArg<'_>>) -> PyResult<PyTensor> {
                fold(R::$kind, &array(stringify!($name), x)?, axis, keepdims, dtype)
            }
        )*

        #[pymethods]
        impl PyTensor {
            $(
                #[doc = concat!($what, " See `ag.", stringify!($name), "`.")]
                #[pyo3(signature = (axis = None, keepdims = Flag::Is(false), dtype = None), text_signature = "($self, axis=None, keepdims=False, dtype=None)")]
                fn $name(&self, axis: Arg<'_>, keepdims: Flag<'_>, dtype: Option<DTypeArg<'_>>) -> PyResult<PyTensor> {
                    fold(R::$kind, &self.tensor(), axis, keepdims, dtype)
                }
            )*
        }

        fn register_sums(m: &Bound<'_, PyModule>) -> PyResult<()> {
            functions!(m; $($name),*);
            Ok(())
        }
    };
}

sums! {
    (sum, Sum, "The sum over axes; of integers and bools int64.", "[4.0, 6.0]"),
    (mean, Mean, "The mean over axes; of integers and bools float32.", "[2.0, 3.0]"),
    (prod, Prod, "The product over axes; of integers and bools int64.", "[3.0, 8.0]"),
}

/// Reductions without a dtype: name, kind, what they compute, an example's result for [[1, 2], [3, 4]] along axis 0.
macro_rules! extremes {
    ($(($name:ident, $kind:ident, $what:literal, $result:literal)),* $(,)?) => {
        $(
            #[doc = concat!($what, "\n\nx: a tensor or array. axis: None for all axes, an integer or a tuple; they are dropped unless keepdims. Raises ValueError for an\naxis that x does not have.\n\n>>> import agtape as ag\n>>> ag.", stringify!($name), "(ag.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0).tolist()\n", $result)]
            #[pyfunction]
            #[pyo3(signature = (x, axis = None, keepdims = Flag::Is(false)), text_signature = "(x, axis=None, keepdims=False)")]
            pub fn $name(x: &Bound<'_, PyAny>, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
                fold(R::$kind, &array(stringify!($name), x)?, axis, keepdims, None)
            }
        )*

        #[pymethods]
        impl PyTensor {
            $(
                #[doc = concat!($what, " See `ag.", stringify!($name), "`.")]
                #[pyo3(signature = (axis = None, keepdims = Flag::Is(false)), text_signature = "($self, axis=None, keepdims=False)")]
                fn $name(&self, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
                    fold(R::$kind, &self.tensor(), axis, keepdims, None)
                }
            )*
        }

        fn register_extremes(m: &Bound<'_, PyModule>) -> PyResult<()> {
            functions!(m; $($name),*);
            Ok(())
        }
    };
}

extremes! {
    (max, Max, "The largest over axes; NaN if any is. Ties split the gradient evenly; nothing to compare is a ValueError.", "[3.0, 4.0]"),
    (min, Min, "The smallest over axes; NaN if any is. Ties split the gradient evenly; nothing to compare is a ValueError.", "[1.0, 2.0]"),
    (any, Any, "Whether any element over axes is unequal to 0.", "[True, True]"),
    (all, All, "Whether all elements over axes are unequal to 0.", "[True, True]"),
}

/// Variances: Rust's name, name, the op, what it computes and an example's result for [1, 3].
macro_rules! spreads {
    ($(($name:ident, $python:literal, $call:path, $what:literal, $result:literal)),* $(,)?) => {
        $(
            #[doc = concat!($what, "\n\nx: a tensor or array. axis: None for all axes, an integer or a tuple; they are dropped unless keepdims. The divisor is n - correction\n(ddof is NumPy's name for correction). Raises ValueError for an axis that x does not have.\n\n>>> import agtape as ag\n>>> ag.", $python, "(ag.tensor([1.0, 3.0])).item()\n", $result)]
            #[pyfunction]
            #[pyo3(name = $python, signature = (x, axis = None, correction = Real::Is(0.0), keepdims = Flag::Is(false), ddof = None), text_signature = "(x, axis=None, correction=0.0, keepdims=False, ddof=None)")]
            pub fn $name(x: &Bound<'_, PyAny>, axis: Arg<'_>, correction: Real<'_>, keepdims: Flag<'_>, ddof: Option<Real<'_>>) -> PyResult<PyTensor> {
                let correction = ddof.of($python, "ddof")?.map_or_else(|| correction.of($python, "correction"), Ok)?;
                let (axes, keepdims) = (axes($python, axis.as_ref())?, keepdims.of($python, "keepdims")?);
                let x = array($python, x)?;
                Ok($call(&x, axes.as_deref(), keepdims, correction)?.into())
            }
        )*

        #[pymethods]
        impl PyTensor {
            $(
                #[doc = concat!($what, " See `ag.", $python, "`.")]
                #[pyo3(name = $python, signature = (axis = None, correction = Real::Is(0.0), keepdims = Flag::Is(false), ddof = None), text_signature = "($self, axis=None, correction=0.0, keepdims=False, ddof=None)")]
                fn $name(slf: &Bound<'_, PyTensor>, axis: Arg<'_>, correction: Real<'_>, keepdims: Flag<'_>, ddof: Option<Real<'_>>) -> PyResult<PyTensor> {
                    $name(slf.as_any(), axis, correction, keepdims, ddof)
                }
            )*
        }

        fn register_spreads(m: &Bound<'_, PyModule>) -> PyResult<()> {
            functions!(m; $($name),*);
            Ok(())
        }
    };
}

spreads! {
    (variance, "var", reduce::var, "The variance over axes; integers become float32.", "1.0"),
    (deviation, "std", reduce::std, "The standard deviation over axes; its gradient is 0 where all values are equal.", "1.0"),
}

/// Functions along one axis with a default, each also a method: what gives one tensor from a tensor and an axis.
macro_rules! along_axis {
    ($(($name:ident, $call:expr, $axis:ty, $default:expr, $text:literal, $method_text:literal, $what:literal, $given:literal, $result:literal)),* $(,)?) => {
        $(
            #[doc = concat!($what, "\n\nx: a tensor or array. Raises ValueError for an axis that x does not have.\n\n>>> import agtape as ag\n>>> ag.", stringify!($name), "(ag.tensor(", $given, ")).tolist()\n", $result)]
            #[pyfunction]
            #[pyo3(signature = (x, axis = $default), text_signature = $text)]
            pub fn $name(x: &Bound<'_, PyAny>, axis: $axis) -> PyResult<PyTensor> {
                Ok($call(&array(stringify!($name), x)?, axis.of(stringify!($name), "axis")?)?.into())
            }
        )*

        #[pymethods]
        impl PyTensor {
            $(
                #[doc = concat!($what, " See `ag.", stringify!($name), "`.")]
                #[pyo3(signature = (axis = $default), text_signature = $method_text)]
                fn $name(&self, axis: $axis) -> PyResult<PyTensor> {
                    Ok($call(&self.tensor(), axis.of(stringify!($name), "axis")?)?.into())
                }
            )*
        }

        fn register_along_axis(m: &Bound<'_, PyModule>) -> PyResult<()> {
            functions!(m; $($name),*);
            Ok(())
        }
    };
}

along_axis! {
    (softmax, rows::softmax, Int<'_>, Int::Is(-1), "(x, axis=-1)", "($self, axis=-1)", "e^x divided by its sum along the axis, without overflow; integers become float32.", "[3.0, 3.0]", "[0.5, 0.5]"),
    (log_softmax, rows::log_softmax, Int<'_>, Int::Is(-1), "(x, axis=-1)", "($self, axis=-1)", "The logarithm of softmax along the axis, without overflow.", "[[5.0]]", "[[0.0]]"),
    (cumprod, cumulative::cumprod, Option<Int<'_>>, None, "(x, axis=None)", "($self, axis=None)", "The running product along the axis (None: of all elements in order).", "[1.0, 2.0, 3.0]", "[1.0, 2.0, 6.0]"),
}

/// The running sum along the axis (None: of all elements in order); of integers and bools int64.
///
/// x: a tensor or array. dtype: converted to first. Raises ValueError for an axis that x does not have.
///
/// >>> import agtape as ag
/// >>> ag.cumsum(ag.tensor([1.0, 2.0, 3.0])).tolist()
/// [1.0, 3.0, 6.0]
#[pyfunction]
#[pyo3(signature = (x, axis = None, dtype = None))]
pub fn cumsum(x: &Bound<'_, PyAny>, axis: Option<Int<'_>>, dtype: Option<DTypeArg<'_>>) -> PyResult<PyTensor> {
    let (axis, dtype) = (axis.of("cumsum", "axis")?, dtype.of("cumsum", "dtype")?);
    let x = array("cumsum", x)?;
    Ok(match dtype {
        None => cumulative::cumsum(&x, axis, false)?.into(),
        Some(d) => cast(&cumulative::cumsum(&converted(&x, d, None)?, axis, false)?, d).into(),
    })
}

/// log(sum(e^x)) over axes, without overflow.
///
/// x: a tensor or array. axis: None for all axes, an integer or a tuple; they are dropped unless keepdims. Raises ValueError for an
/// axis that x does not have.
///
/// >>> import agtape as ag
/// >>> ag.logsumexp(ag.tensor([500.0])).item()
/// 500.0
#[pyfunction]
#[pyo3(signature = (x, axis = None, keepdims = Flag::Is(false)), text_signature = "(x, axis=None, keepdims=False)")]
pub fn logsumexp(x: &Bound<'_, PyAny>, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
    let (axes, keepdims) = (axes("logsumexp", axis.as_ref())?, keepdims.of("logsumexp", "keepdims")?);
    Ok(reduce::logsumexp(&array("logsumexp", x)?, axes.as_deref(), keepdims)?.into())
}

/// How many elements over axes are unequal to 0, as int64.
///
/// x: a tensor or array. axis: None for all axes, an integer or a tuple; they are dropped unless keepdims.
///
/// >>> import agtape as ag
/// >>> ag.count_nonzero(ag.tensor([0, 3, 4])).item()
/// 2
#[pyfunction]
#[pyo3(signature = (x, axis = None, keepdims = Flag::Is(false)), text_signature = "(x, axis=None, keepdims=False)")]
pub fn count_nonzero(x: &Bound<'_, PyAny>, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
    let x = array("count_nonzero", x)?;
    let (axes, keepdims) = (axes("count_nonzero", axis.as_ref())?, keepdims.of("count_nonzero", "keepdims")?);
    if let (Some(list), true) = (&axes, x.rank() > 0) {
        shape::axes("count_nonzero", list, x.rank())?;
    }
    let hits = binary(Ne, &x, &host_scalar(Scalar::Int(0), x.dtype()))?;
    Ok(reduce(R::Sum, &hits, axes.as_deref(), keepdims)?.into())
}

fn arg_extreme(x: &Tensor, is_max: bool, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
    let op = if is_max { "argmax" } else { "argmin" };
    let (axis, keepdims) = (one_axis(op, axis.as_ref())?, keepdims.of(op, "keepdims")?);
    Ok(reduce::arg_extreme(x, is_max, axis, keepdims)?.into())
}

/// The position of the largest along the axis (None: of all elements in order), int64; the first on ties, NaN wins.
///
/// x: a tensor or array that is not empty. Raises ValueError for an axis that x does not have, or an empty one.
///
/// >>> import agtape as ag
/// >>> ag.argmax(ag.tensor([1.0, 5.0, 2.0])).item()
/// 1
#[pyfunction]
#[pyo3(signature = (x, axis = None, keepdims = Flag::Is(false)), text_signature = "(x, axis=None, keepdims=False)")]
pub fn argmax(x: &Bound<'_, PyAny>, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
    arg_extreme(&array("argmax", x)?, true, axis, keepdims)
}

/// The position of the smallest along the axis (None: of all elements in order), int64; the first on ties, NaN wins.
///
/// x: a tensor or array that is not empty. Raises ValueError for an axis that x does not have, or an empty one.
///
/// >>> import agtape as ag
/// >>> ag.argmin(ag.tensor([3.0, 1.0, 2.0])).item()
/// 1
#[pyfunction]
#[pyo3(signature = (x, axis = None, keepdims = Flag::Is(false)), text_signature = "(x, axis=None, keepdims=False)")]
pub fn argmin(x: &Bound<'_, PyAny>, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
    arg_extreme(&array("argmin", x)?, false, axis, keepdims)
}

/// The values in order along the axis (None: all elements); stable or not, equal values keep their order.
///
/// NaN is larger than every number: last, or first if descending. x: a tensor or array. Raises ValueError for an axis that x does not
/// have.
///
/// >>> import agtape as ag
/// >>> ag.sort(ag.tensor([3.0, 1.0, 2.0])).tolist()
/// [1.0, 2.0, 3.0]
#[pyfunction]
#[pyo3(signature = (x, axis = Some(Int::Is(-1)), descending = Flag::Is(false), stable = Flag::Is(true)), text_signature = "(x, axis=-1, descending=False, stable=True)")]
pub fn sort(x: &Bound<'_, PyAny>, axis: Option<Int<'_>>, descending: Flag<'_>, stable: Flag<'_>) -> PyResult<PyTensor> {
    let (descending, _always) = (descending.of("sort", "descending")?, stable.of("sort", "stable")?);
    Ok(order::sort(&array("sort", x)?, axis.of("sort", "axis")?, descending)?.0.into())
}

/// The int64 positions that sort x along the axis (None: all elements); equal values keep their order.
///
/// NaN is larger than every number: last, or first if descending. x: a tensor or array. Raises ValueError for an axis that x does not
/// have.
///
/// >>> import agtape as ag
/// >>> ag.argsort(ag.tensor([3.0, 1.0, 2.0])).tolist()
/// [1, 2, 0]
#[pyfunction]
#[pyo3(signature = (x, axis = Some(Int::Is(-1)), descending = Flag::Is(false), stable = Flag::Is(true)), text_signature = "(x, axis=-1, descending=False, stable=True)")]
pub fn argsort(x: &Bound<'_, PyAny>, axis: Option<Int<'_>>, descending: Flag<'_>, stable: Flag<'_>) -> PyResult<PyTensor> {
    let (descending, _always) = (descending.of("argsort", "descending")?, stable.of("argsort", "stable")?);
    Ok(order::argsort(&array("argsort", x)?, axis.of("argsort", "axis")?, descending)?.into())
}

/// The k largest (or smallest) along the axis, best first, and their int64 positions.
///
/// NaN is larger than every number: the first of the largest, the last of the smallest. Equal values keep their order. x: a tensor or
/// array. Raises ValueError if the axis has fewer than k elements.
///
/// >>> import agtape as ag
/// >>> values, positions = ag.topk(ag.tensor([3.0, 1.0, 2.0]), 2)
/// >>> values.tolist(), positions.tolist()
/// ([3.0, 2.0], [0, 2])
#[pyfunction]
#[pyo3(signature = (x, k, axis = Int::Is(-1), largest = Flag::Is(true), sorted = Flag::Is(true)), text_signature = "(x, k, axis=-1, largest=True, sorted=True)")]
pub fn topk(
    x: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    axis: Int<'_>,
    largest: Flag<'_>,
    sorted: Flag<'_>,
) -> PyResult<(PyTensor, PyTensor)> {
    let (largest, sorted) = (largest.of("topk", "largest")?, sorted.of("topk", "sorted")?);
    let (values, positions) = order::topk(&array("topk", x)?, count("topk", "k", k)?, axis.of("topk", "axis")?, largest, sorted)?;
    positions.hold();
    let pair = (values.into(), positions.clone().into());
    positions.unhold();
    Ok(pair)
}

#[pymethods]
impl PyTensor {
    /// The running sum along the axis. See `ag.cumsum`.
    #[pyo3(signature = (axis = None, dtype = None))]
    fn cumsum(slf: &Bound<'_, PyTensor>, axis: Option<Int<'_>>, dtype: Option<DTypeArg<'_>>) -> PyResult<PyTensor> {
        cumsum(slf.as_any(), axis, dtype)
    }

    /// log(sum(e^x)) over axes. See `ag.logsumexp`.
    #[pyo3(signature = (axis = None, keepdims = Flag::Is(false)), text_signature = "($self, axis=None, keepdims=False)")]
    fn logsumexp(slf: &Bound<'_, PyTensor>, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
        logsumexp(slf.as_any(), axis, keepdims)
    }

    /// How many elements are unequal to 0. See `ag.count_nonzero`.
    #[pyo3(signature = (axis = None, keepdims = Flag::Is(false)), text_signature = "($self, axis=None, keepdims=False)")]
    fn count_nonzero(slf: &Bound<'_, PyTensor>, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
        count_nonzero(slf.as_any(), axis, keepdims)
    }

    /// The position of the largest. See `ag.argmax`.
    #[pyo3(signature = (axis = None, keepdims = Flag::Is(false)), text_signature = "($self, axis=None, keepdims=False)")]
    fn argmax(&self, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
        arg_extreme(&self.tensor(), true, axis, keepdims)
    }

    /// The position of the smallest. See `ag.argmin`.
    #[pyo3(signature = (axis = None, keepdims = Flag::Is(false)), text_signature = "($self, axis=None, keepdims=False)")]
    fn argmin(&self, axis: Arg<'_>, keepdims: Flag<'_>) -> PyResult<PyTensor> {
        arg_extreme(&self.tensor(), false, axis, keepdims)
    }

    /// The values in order along the axis, as a new tensor. See `ag.sort`.
    #[pyo3(signature = (axis = Some(Int::Is(-1)), descending = Flag::Is(false), stable = Flag::Is(true)), text_signature = "($self, axis=-1, descending=False, stable=True)")]
    fn sort(slf: &Bound<'_, PyTensor>, axis: Option<Int<'_>>, descending: Flag<'_>, stable: Flag<'_>) -> PyResult<PyTensor> {
        sort(slf.as_any(), axis, descending, stable)
    }

    /// The positions that sort along the axis. See `ag.argsort`.
    #[pyo3(signature = (axis = Some(Int::Is(-1)), descending = Flag::Is(false), stable = Flag::Is(true)), text_signature = "($self, axis=-1, descending=False, stable=True)")]
    fn argsort(slf: &Bound<'_, PyTensor>, axis: Option<Int<'_>>, descending: Flag<'_>, stable: Flag<'_>) -> PyResult<PyTensor> {
        argsort(slf.as_any(), axis, descending, stable)
    }

    /// The k largest along the axis and their positions. See `ag.topk`.
    #[pyo3(signature = (k, axis = Int::Is(-1), largest = Flag::Is(true), sorted = Flag::Is(true)), text_signature = "($self, k, axis=-1, largest=True, sorted=True)")]
    fn topk(
        slf: &Bound<'_, PyTensor>,
        k: &Bound<'_, PyAny>,
        axis: Int<'_>,
        largest: Flag<'_>,
        sorted: Flag<'_>,
    ) -> PyResult<(PyTensor, PyTensor)> {
        topk(slf.as_any(), k, axis, largest, sorted)
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_sums(m)?;
    register_extremes(m)?;
    register_spreads(m)?;
    register_along_axis(m)?;
    functions!(m; cumsum, logsumexp, count_nonzero, argmax, argmin, sort, argsort, topk);
    Ok(())
}
