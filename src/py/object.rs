//! What makes a tensor a good Python object: conversions, copies, pickling, formatting, values set in place.
// PyO3's generated wrappers are unsafe functions; inside macro_rules their hygiene hides the lint's own exemption.
#![allow(unsafe_op_in_unsafe_fn)]
use super::arguments::{Checked, array, number, operand, wrong_type};
use super::convert::{DTypeArg, converted, device_given, device_of, dtype_given, from_array, on};
use super::dtype::PyDType;
use super::export;
use super::flags::{Flag, Word};
use super::tensor::{PyTensor, compute};
use crate::device::Device;
use crate::dtype::DType;
use crate::graph::{Tensor, Variable, record_version};
use crate::ops::create::full;
use crate::ops::unary::cast;
use crate::ops::view::{broadcast_to, copy as row_major_copy};
use crate::plan::evaluate;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use std::sync::Arc;

/// x in another dtype; its gradient goes back in x's dtype.
///
/// x: a tensor or array of any shape. copy: True (the default) or False; values never change, so both may share memory. Raises TypeError
/// for an unknown dtype.
///
/// >>> import agtape as ag
/// >>> ag.astype(ag.tensor([1.7]), "int64").tolist()
/// [1]
#[pyfunction]
#[pyo3(signature = (x, dtype, copy = Flag::Is(true), device = None), text_signature = "(x, dtype, copy=True, device=None)")]
pub fn astype(
    x: &Bound<'_, PyAny>,
    dtype: DTypeArg<'_>,
    copy: Flag<'_>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyTensor> {
    let (dtype, _values_never_change) = (dtype.of("astype", "dtype")?, copy.of("astype", "copy")?);
    moved(&array("astype", x)?, dtype, device)
}

/// The same value outside every tape: a constant to what is recorded from it.
///
/// >>> import agtape as ag
/// >>> ag.detach(ag.param([1.0])).requires_grad
/// False
#[pyfunction]
pub fn detach(x: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    Ok(record_version(&array("detach", x)?, None).into())
}

/// In another type, and on a device if one is given.
fn moved(t: &Tensor, dtype: DType, device: Option<&Bound<'_, PyAny>>) -> PyResult<PyTensor> {
    let device = device.map(|d| device_given("astype", Some(d))).transpose()?;
    Ok(converted(t, dtype, device)?.into())
}

/// Methods that convert to a dtype: name, dtype, its name.
macro_rules! conversions {
    ($(($name:ident, $dtype:ident, $what:literal)),* $(,)?) => {
        #[pymethods]
        impl PyTensor {
            $(
                #[doc = concat!("As ", $what, ". See `ag.astype`.")]
                #[pyo3(name = $what)]
                fn $name(&self) -> PyResult<PyTensor> {
                    moved(&self.tensor(), DType::$dtype, None)
                }
            )*
        }
    };
}

conversions! {
    (to_float, F32, "float"),
    (to_double, F64, "double"),
    (to_half, F16, "half"),
    (to_bfloat16, BF16, "bfloat16"),
    (to_int, I32, "int"),
    (to_long, I64, "long"),
    (to_bool, Bool, "bool"),
}

/// Makes a tensor again from what a pickle holds.
#[pyfunction]
pub fn rebuild(values: &Bound<'_, PyAny>, dtype: DTypeArg<'_>, requires_grad: bool) -> PyResult<PyTensor> {
    let variable = requires_grad.then(|| Arc::new(Variable::new(true)));
    Ok(from_array(values, Some(dtype.of("rebuild", "dtype")?), variable, Some(device_of(None)?))?.into())
}

impl PyTensor {
    fn at(slf: Bound<'_, PyTensor>, device: Device) -> PyResult<Bound<'_, PyTensor>> {
        let t = slf.get().tensor();
        if t.device() == Some(device) { Ok(slf) } else { Bound::new(slf.py(), PyTensor::from(on(t, device)?)) }
    }

    /// A leaf that shares the value, which never changes.
    fn duplicate(&self) -> PyTensor {
        let variable = self.variable().map(|v| Arc::new(Variable::new(v.requires_grad())));
        record_version(&self.tensor(), variable).into()
    }

    fn wants_grad(&self) -> bool {
        self.variable().is_some_and(|v| v.requires_grad())
    }

    /// Takes a number for every element.
    fn fill(slf: &Bound<'_, PyTensor>, op: &'static str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.get().check_in_place(op)?;
        let t = slf.get().tensor();
        let value = number(op, "value", value)?;
        PyTensor::update(slf, full(op, t.shape(), value, t.dtype())?)
    }
}

#[pymethods]
impl PyTensor {
    /// In another dtype. See `ag.astype`.
    #[pyo3(signature = (dtype, copy = Flag::Is(true), device = None), text_signature = "($self, dtype, copy=True, device=None)")]
    fn astype(&self, dtype: DTypeArg<'_>, copy: Flag<'_>, device: Option<&Bound<'_, PyAny>>) -> PyResult<PyTensor> {
        let (dtype, _values_never_change) = (dtype.of("astype", "dtype")?, copy.of("astype", "copy")?);
        moved(&self.tensor(), dtype, device)
    }

    /// In another dtype, on another device, or like another tensor in both: any order, as PyTorch's `to`. Gradients go back.
    ///
    /// Returns itself if nothing changes. Raises TypeError for an unknown dtype, ValueError for an unknown device, DeviceError for one that
    /// this machine lacks.
    #[pyo3(signature = (*args, dtype = None, device = None, copy = Flag::Is(false)), text_signature = "($self, *args, dtype=None, device=None, copy=False)")]
    fn to<'py>(
        slf: Bound<'py, PyTensor>,
        args: &Bound<'py, PyTuple>,
        dtype: Option<DTypeArg<'_>>,
        device: Option<&Bound<'_, PyAny>>,
        copy: Flag<'_>,
    ) -> PyResult<Bound<'py, PyTensor>> {
        let t = slf.get().tensor();
        let (mut dtype, copy) = (dtype.of("to", "dtype")?.unwrap_or(t.dtype()), copy.of("to", "copy")?);
        let mut target = device.map(|d| device_given("to", Some(d))).transpose()?.or(t.device());
        for given in args.iter() {
            match (given.cast::<PyTensor>(), given.extract::<String>()) {
                (Ok(like), _) => {
                    let like = like.get().tensor();
                    (dtype, target) = (like.dtype(), like.device());
                }
                (_, Ok(name)) if DType::parse(&name).is_err() => target = Some(device_given("to", Some(&given))?),
                _ => dtype = dtype_given("to", "the dtype", &given)?,
            }
        }
        if dtype == t.dtype() && target == t.device() {
            return if copy { Bound::new(slf.py(), PyTensor::from(row_major_copy(&t))) } else { Ok(slf) };
        }
        Bound::new(slf.py(), PyTensor::from(converted(&t, dtype, target)?))
    }

    /// On the CPU: itself if it is there.
    fn cpu(slf: Bound<'_, PyTensor>) -> PyResult<Bound<'_, PyTensor>> {
        PyTensor::at(slf, Device::CPU)
    }

    /// A row-major copy; gradients flow through it.
    fn copy(&self) -> PyTensor {
        row_major_copy(&self.tensor()).into()
    }

    /// A row-major copy, by PyTorch's name.
    fn clone(&self) -> PyTensor {
        row_major_copy(&self.tensor()).into()
    }

    /// Itself: values are read with any strides.
    fn contiguous(slf: Bound<'_, PyTensor>) -> Bound<'_, PyTensor> {
        slf
    }

    /// Sets every element to 0 and returns itself. Raises RuntimeError on a leaf that wants a gradient while a tape records.
    fn zero_(slf: Bound<'_, PyTensor>) -> PyResult<Bound<'_, PyTensor>> {
        PyTensor::fill(&slf, "zero_", pyo3::types::PyInt::new(slf.py(), 0).as_any())?;
        Ok(slf)
    }

    /// Sets every element to a number and returns itself. Raises RuntimeError on a leaf that wants a gradient while a tape records.
    fn fill_<'py>(slf: Bound<'py, PyTensor>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTensor>> {
        PyTensor::fill(&slf, "fill_", value)?;
        Ok(slf)
    }

    /// Takes another tensor's values, broadcast and converted, and returns itself. Raises RuntimeError on a leaf that wants a gradient
    /// while a tape records.
    fn copy_<'py>(slf: Bound<'py, PyTensor>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTensor>> {
        let me = slf.get();
        me.check_in_place("copy_")?;
        let t = me.tensor();
        let value = cast(&operand("copy_", value)?.beside("copy_", t.dtype())?, t.dtype());
        PyTensor::update(&slf, row_major_copy(&broadcast_to(&value, t.shape())?))?;
        Ok(slf)
    }

    fn __copy__(&self) -> PyTensor {
        self.duplicate()
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> PyTensor {
        let new = self.duplicate();
        if let (Some(to), Some(grad)) = (new.variable(), self.variable().and_then(|v| v.grad())) {
            to.set_grad(Some(record_version(&grad, None)));
            to.set_grad_on_host(self.variable().is_some_and(|v| v.is_grad_on_host()));
        }
        new
    }

    /// NumPy's array (bfloat16 as float32, which holds it exactly), the dtype, and whether it is a leaf that wants a gradient.
    fn __reduce__<'py>(slf: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let t = slf.get().tensor();
        let args = (export::numpy(py, &t)?, PyDType(t.dtype()), slf.get().wants_grad());
        (py.import("agtape._core")?.getattr("rebuild")?, args).into_pyobject(py)
    }

    fn __format__(&self, py: Python<'_>, spec: &str) -> PyResult<String> {
        let t = self.tensor();
        if spec.is_empty() {
            return export::repr(py, &t);
        }
        if t.elems() != 1 {
            return Err(PyTypeError::new_err(format!(
                "format: {spec:?} is for one number; the tensor has shape {:?}",
                t.shape()
            )));
        }
        export::numpy(py, &t)?.call_method0("item")?.call_method1("__format__", (spec,))?.extract()
    }

    /// NumPy leaves operators with arrays on the left to the tensor.
    #[classattr]
    fn __array_ufunc__(py: Python<'_>) -> Py<PyAny> {
        py.None()
    }

    #[classattr]
    fn __array_priority__() -> f64 {
        1000.0
    }

    /// The array API's namespace: the package.
    #[pyo3(signature = (*, api_version = None))]
    fn __array_namespace__<'py>(&self, py: Python<'py>, api_version: Option<Word<'py>>) -> PyResult<Bound<'py, PyAny>> {
        let versions = [("2021.12", ()), ("2022.12", ()), ("2023.12", ()), ("2024.12", ())];
        api_version.map_or(Ok(()), |word| word.among("__array_namespace__", "api_version", &versions))?;
        Ok(py.import("agtape")?.into_any())
    }

    /// The array API's `to_device`: itself if it is there.
    #[pyo3(signature = (device, /, *, stream = None))]
    fn to_device<'py>(
        slf: Bound<'py, PyTensor>,
        device: &Bound<'py, PyAny>,
        stream: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTensor>> {
        if let Some(stream) = stream {
            return Err(PyValueError::new_err(format!(
                "to_device: got stream {stream:?}; expected None: devices have one queue each"
            )));
        }
        PyTensor::at(slf, device_given("to_device", Some(device))?)
    }
}

/// The tensors in an argument, also inside nested containers; whether it is a tensor or a container.
fn gather(obj: &Bound<'_, PyAny>, found: &mut Vec<Tensor>) -> PyResult<bool> {
    if let Ok(t) = obj.cast::<PyTensor>() {
        found.push(t.get().tensor());
    } else if let Ok(list) = obj.cast::<PyList>() {
        list.iter().try_for_each(|o| gather(&o, found).map(drop))?;
    } else if let Ok(tuple) = obj.cast::<PyTuple>() {
        tuple.iter().try_for_each(|o| gather(&o, found).map(drop))?;
    } else if let Ok(dict) = obj.cast::<PyDict>() {
        dict.values().iter().try_for_each(|o| gather(&o, found).map(drop))?;
    } else if obj.is_none() || obj.is_instance_of::<PyString>() {
        return Ok(false);
    } else {
        let (leaves, _build): (Bound<'_, PyList>, Bound<'_, PyAny>) =
            obj.py().import("agtape.tree")?.call_method1("flatten", (obj,))?.extract()?;
        for leaf in leaves.iter() {
            if leaf.is(obj) {
                return Ok(false);
            }
            gather(&leaf, found)?;
        }
    }
    Ok(true)
}

/// Computes the tensors given, also those inside nested lists, tuples, dicts and dataclasses; downloads nothing.
///
/// Raises TypeError for an argument that is neither a tensor nor a container, and what computing them raises, such as IndexError for an
/// index out of range.
///
/// >>> import agtape as ag
/// >>> x = ag.tensor([1.0]) + 1
/// >>> ag.eval(x, [x * 2, {"y": x * 3}])
#[pyfunction]
#[pyo3(signature = (*tensors))]
pub fn eval(tensors: &Bound<'_, PyTuple>) -> PyResult<()> {
    let mut found = Vec::new();
    for given in tensors {
        if !gather(&given, &mut found)? {
            return Err(wrong_type("eval", &given, "tensors, or lists, tuples, dicts or dataclasses of them"));
        }
    }
    compute(tensors.py(), || evaluate(&found))
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; astype, detach, rebuild, eval);
    Ok(())
}
