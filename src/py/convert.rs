//! Conversions between Python objects and the core: numbers, NumPy arrays, dtypes and shapes.
use super::arguments::{Checked, digits, wrong_type};
use super::error::is_misfit;
use crate::device::{Device, auto_device, default_device};
use crate::dtype::{DType, Scalar};
use crate::graph::{Spec, Tensor, Value, Variable, log_leaf, new_storage};
use crate::layout::Layout;
use crate::ops::transfer::{check_dtype, to_device};
use crate::ops::unary::cast;
use crate::plan::write_bytes;
use crate::shape::check_size;
use numpy::{PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use std::sync::Arc;

/// A Python number, not one of NumPy's (those have a dtype of their own).
pub fn scalar(obj: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if obj.is_exact_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(obj.extract()?)));
    }
    if obj.is_instance_of::<PyBool>() {
        return Ok(Some(Scalar::Bool(obj.extract()?)));
    }
    if obj.is_exact_instance_of::<PyInt>() {
        return Ok(Some(Scalar::Int(
            obj.extract().map_err(|_| PyValueError::new_err(format!("the integer {} does not fit into int64", digits(obj))))?,
        )));
    }
    Ok(None)
}

/// Whether NumPy would take it for an array or a number of its own.
pub fn is_array(obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(obj.cast::<PyUntypedArray>().is_ok() || obj.hasattr("__array__")? || obj.hasattr("__array_interface__")?)
}

/// The dtype of a NumPy array.
pub fn array_dtype(array: &Bound<'_, PyUntypedArray>) -> PyResult<Option<DType>> {
    let descr = array.dtype();
    Ok(match (descr.kind(), descr.itemsize()) {
        (b'b', _) => Some(DType::Bool),
        (b'u', 1) => Some(DType::U8),
        (b'i', 4) => Some(DType::I32),
        (b'i', 8) => Some(DType::I64),
        (b'f', 2) => Some(DType::F16),
        (b'f', 4) => Some(DType::F32),
        (b'f', 8) => Some(DType::F64),
        _ if descr.getattr("name")?.extract::<String>()? == "bfloat16" => Some(DType::BF16),
        _ => None,
    })
}

/// Refuses integers that the type they become cannot hold: Python's own in a dtype asked for, and unsigned ones beyond int64.
fn check_range(array: &Bound<'_, PyAny>, to: DType) -> PyResult<()> {
    let Some((low, high)) = to.ends() else { return Ok(()) };
    if array.getattr("size")?.extract::<usize>()? == 0 {
        return Ok(());
    }
    for end in ["min", "max"] {
        let value = array.call_method0(end)?;
        if value.lt(low)? || value.gt(high)? {
            return Err(PyValueError::new_err(format!(
                "tensor: the integer {value} does not fit into {to}; expected {low} to {high}"
            )));
        }
    }
    Ok(())
}

/// What NumPy makes of an object.
fn host_array<'py>(obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = obj.py();
    py.import("numpy")?.call_method1("asarray", (obj,)).map_err(|e| match is_misfit(py, &e) {
        true => PyTypeError::new_err(format!(
            "tensor: cannot make an array of {}: {}; expected an array, a number or nested sequences of equal lengths",
            obj.get_type(),
            e.value(py).to_string().trim_end_matches('.')
        )),
        false => e,
    })
}

/// The error for an array whose elements no tensor can hold.
fn no_dtype(obj: &Bound<'_, PyAny>, array: &Bound<'_, PyUntypedArray>) -> PyErr {
    let dtype = array.dtype();
    match dtype.kind() {
        b'O' if obj.cast::<PyUntypedArray>().is_err() => {
            wrong_type("tensor", obj, "an array, a number or nested sequences of numbers")
        }
        _ => PyTypeError::new_err(format!(
            "tensor: cannot hold an array of dtype {dtype}; expected booleans, integers or floats up to 64 bits"
        )),
    }
}

/// Copies an array or a nested sequence into a new leaf on a device (`None`: where its readers are). Arrays keep their dtype; Python's
/// floats become float32 unless a dtype is given, which they are rounded to once.
pub fn from_array(
    obj: &Bound<'_, PyAny>,
    dtype: Option<DType>,
    variable: Option<Arc<Variable>>,
    device: Option<Device>,
) -> PyResult<Tensor> {
    let py = obj.py();
    let np = py.import("numpy")?;
    let is_typed = is_array(obj)?;
    let mut array = host_array(obj)?;
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    let small = |name: &str| -> PyResult<bool> { Ok(array.getattr("dtype")?.getattr("name")?.extract::<String>()? == name) };
    if kind == "i" && !is_typed {
        dtype.map_or(Ok(()), |to| check_range(&array, to))?;
    }
    if kind == "f" && !is_typed && dtype.is_none() {
        array = array.call_method1("astype", ("float32",))?;
    } else if small("int8")? || small("int16")? || small("uint16")? {
        array = array.call_method1("astype", ("int32",))?;
    } else if small("uint32")? || small("uint64")? {
        check_range(&array, DType::I64)?;
        array = array.call_method1("astype", ("int64",))?;
    }
    let descr = array.getattr("dtype")?;
    if !descr.getattr("isnative")?.extract::<bool>()? {
        array = array.call_method1("astype", (descr.call_method1("newbyteorder", ("=",))?,))?;
    }
    let array = np.call_method1("ascontiguousarray", (&array,))?.call_method1("reshape", (array.getattr("shape")?,))?;
    let array = array.cast_into::<PyUntypedArray>().map_err(PyErr::from)?;
    let Some(given) = array_dtype(&array)? else {
        return Err(no_dtype(obj, &array));
    };
    let shape: Vec<usize> = array.shape().to_vec();
    let bytes = array.len() * given.size_bytes();
    // SAFETY: the array is C-contiguous, so its data pointer spans `bytes`, and it is held until they are copied.
    let data = unsafe { std::slice::from_raw_parts(array.cast_unchecked::<PyArrayDyn<u8>>().data().cast_const(), bytes) };
    let convert = dtype.filter(|d| *d != given);
    let Some(dtype) = convert else { return new_leaf(&shape, given, data, variable, device) };
    let leaf = new_leaf(&shape, given, data, None, Some(Device::CPU))?;
    let wanted = cast(&leaf, dtype);
    super::tensor::compute(py, || crate::plan::evaluate(std::slice::from_ref(&wanted)))?;
    let value = wanted.computed()?;
    if let Some(device) = device.filter(|d| !d.is_cpu()) {
        return new_leaf(&shape, dtype, &crate::plan::read_bytes(&value, dtype.size_bytes())?, variable, Some(device));
    }
    let made = Tensor::leaf(value, dtype, variable);
    if device.is_none() {
        made.node.placing.set_guest();
    }
    log_leaf(&made, &[wanted], || []);
    Ok(made)
}

/// A leaf with these bytes, row-major.
pub fn new_leaf(
    shape: &[usize],
    dtype: DType,
    data: &[u8],
    variable: Option<Arc<Variable>>,
    device: Option<Device>,
) -> PyResult<Tensor> {
    let at = device.unwrap_or(Device::CPU);
    check_dtype(at, dtype)?;
    check_size("tensor", shape)?;
    let storage = new_storage(at, &Spec::new(shape, dtype))?;
    write_bytes(&storage, data)?;
    let leaf = Tensor::leaf(Value::new(storage, Layout::contiguous(shape)), dtype, variable);
    if device.is_none() {
        leaf.node.placing.set_guest();
    }
    log_leaf(&leaf, &[], || data);
    Ok(leaf)
}

/// A dtype given as a name, a NumPy dtype or scalar type, one of ours, or Python's bool, int, float.
pub enum DTypeArg<'py> {
    /// One of ours, or its name.
    Is(DType),
    /// Something else, to be looked at where the op is known.
    Other(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for DTypeArg<'py> {
    type Error = PyErr;

    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<DTypeArg<'py>> {
        Ok(plain_dtype(&obj).map_or_else(|| DTypeArg::Other(obj.to_owned()), DTypeArg::Is))
    }
}

impl Checked for DTypeArg<'_> {
    type Value = DType;

    fn of(&self, op: &str, name: &str) -> PyResult<DType> {
        match self {
            DTypeArg::Is(dtype) => Ok(*dtype),
            DTypeArg::Other(obj) => dtype_given(op, name, obj),
        }
    }
}

/// The dtype that one of ours, its name or a type of Python's says.
fn plain_dtype(obj: &Bound<'_, PyAny>) -> Option<DType> {
    let py = obj.py();
    if let Ok(d) = obj.cast::<super::dtype::PyDType>() {
        return Some(d.get().0);
    }
    if let Ok(name) = obj.cast::<PyString>() {
        return DType::parse(name.to_str().ok()?).ok();
    }
    let of_python =
        [(py.get_type::<PyFloat>(), DType::F32), (py.get_type::<PyBool>(), DType::Bool), (py.get_type::<PyInt>(), DType::I64)];
    of_python.into_iter().find(|(kind, _)| obj.is(kind)).map(|(_, dtype)| dtype)
}

/// The dtype that an argument of `op` says.
pub fn dtype_given(op: &str, name: &str, obj: &Bound<'_, PyAny>) -> PyResult<DType> {
    if let Some(dtype) = plain_dtype(obj) {
        return Ok(dtype);
    }
    let names = DType::ALL.map(DType::name).join(", ");
    if let Ok(word) = obj.cast::<PyString>() {
        let word = word.to_string_lossy();
        return Err(PyTypeError::new_err(format!("{op}: {name} is '{word}'; expected one of {names}")));
    }
    let wrong = || wrong_type(op, obj, &format!("a name such as 'float32', a NumPy dtype or an agtape dtype for {name}"));
    // NumPy reads None as float64.
    if obj.is_none() {
        return Err(wrong());
    }
    let descr = obj.py().import("numpy")?.call_method1("dtype", (obj,));
    let descr = descr.map_err(|e| if is_misfit(obj.py(), &e) { wrong() } else { e })?;
    let word: String = descr.getattr("name")?.extract()?;
    DType::parse(&word).map_err(|_| PyTypeError::new_err(format!("{op}: {name} is {word}; expected one of {names}")))
}

/// The device with a name; the default one for `None`.
pub fn device_of(name: Option<&str>) -> PyResult<Device> {
    match name {
        None => Ok(default_device()),
        Some("auto") => Ok(auto_device()),
        Some(name) => {
            let device = Device::parse(name)?;
            super::devices::check_present(device)?;
            Ok(device)
        }
    }
}

/// The device that an argument of `op` names; the default one for `None`.
pub fn device_given(op: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Device> {
    let Some(given) = given else { return device_of(None) };
    let Ok(name) = given.cast::<PyString>() else {
        let kind = given.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{op}: device is of type {kind}; expected a name such as \"cpu\", or None")));
    };
    device_of(Some(name.to_str()?)).map_err(|error| {
        if !error.is_instance_of::<PyValueError>(given.py()) {
            return error;
        }
        let text = error.value(given.py()).to_string();
        PyValueError::new_err(format!("{op}: {}", text.strip_prefix("device: ").unwrap_or(&text)))
    })
}

/// A tensor in another type and on a device (`None`: its own). float64 is made where it is possible: on the CPU.
pub fn converted(t: &Tensor, dtype: DType, device: Option<Device>) -> PyResult<Tensor> {
    let Some(to) = device.or(t.device()) else { return Ok(cast(t, dtype)) };
    check_dtype(to, dtype)?;
    // An array that follows its readers may be of a type that only the CPU has.
    let is_wide_guest = t.device().is_none() && t.dtype() == DType::F64;
    let t = &if is_wide_guest { to_device(t, Device::CPU)? } else { t.clone() };
    match dtype {
        DType::F64 => Ok(cast(&to_device(t, to)?, dtype)),
        _ => on(cast(t, dtype), to),
    }
}

/// A new tensor on a device: what is not computed yet is computed there.
pub fn on(t: Tensor, device: Device) -> PyResult<Tensor> {
    check_dtype(device, t.dtype())?;
    Ok(to_device(&t, device)?)
}
