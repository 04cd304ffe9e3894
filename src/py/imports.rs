//! Arrays of other libraries as tensors: copied, or with `copy=False` in the memory that they have.
use super::arguments::Checked;
use super::convert::{DTypeArg, array_dtype, converted, device_given, is_array, new_leaf};
use super::creation::leaf;
use super::flags::Flag;
use super::tensor::PyTensor;
use crate::device::Device;
use crate::dtype::DType;
use crate::graph::{Tensor, Value, borrowed_storage, log_leaf};
use crate::layout::Layout;
use crate::ops::view::copy as row_major_copy;
use crate::shape::check_size;
use numpy::{PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ptr::NonNull;

/// The error of a `copy=False` that cannot be.
fn needs_copy(op: &str, why: &str) -> PyErr {
    PyValueError::new_err(format!("{op}: copy=False, but {why}; expected an array that needs no copy, or copy=None"))
}

/// An adapter cannot use the host's memory as it is.
pub fn refuse_adapter(op: &str, device: Device) -> PyResult<()> {
    if device.is_cpu() { Ok(()) } else { Err(needs_copy(op, &format!("the data must go to {device}"))) }
}

/// A leaf in the memory of a NumPy array, which it keeps alive and never writes to. `as_dtype`: what the elements are, if not what NumPy says.
pub fn borrow(op: &'static str, array: &Bound<'_, PyAny>, as_dtype: Option<DType>) -> PyResult<Tensor> {
    let array = array.cast::<PyUntypedArray>().map_err(|_| needs_copy(op, "the data is no array"))?;
    let descr = array.dtype();
    let dtype = as_dtype
        .map_or_else(|| array_dtype(array), |dtype| Ok(Some(dtype)))?
        .filter(|_| descr.getattr("isnative").and_then(|n| n.extract()).unwrap_or(false));
    let Some(dtype) = dtype else {
        return Err(needs_copy(op, &format!("an array of dtype {descr} must be converted")));
    };
    let size = dtype.size_bytes() as isize;
    let is_aligned: bool = array.getattr("flags")?.getattr("aligned")?.extract()?;
    if !is_aligned || array.strides().iter().any(|s| s % size != 0) {
        return Err(needs_copy(op, "the array's elements are not aligned"));
    }
    check_size(op, array.shape())?;
    if array.len() == 0 {
        return new_leaf(array.shape(), dtype, &[], None, Some(Device::CPU));
    }
    let (mut low, mut high) = (0, size);
    for (&dim, &stride) in array.shape().iter().zip(array.strides()) {
        let reach = (dim as isize - 1) * stride;
        if reach < 0 { low += reach } else { high += reach }
    }
    let layout = Layout {
        shape: array.shape().into(),
        strides: array.strides().iter().map(|s| s / size).collect(),
        offset: (-low / size) as usize,
    };
    // SAFETY: only the address is taken.
    let first = unsafe { array.cast_unchecked::<PyArrayDyn<u8>>().data() };
    let Some(first) = NonNull::new(first.wrapping_offset(low)) else { return Err(needs_copy(op, "the array has no memory")) };
    let owner = Box::new(array.clone().into_any().unbind());
    // SAFETY: the array, which the storage owns, keeps all the bytes between its lowest and its highest element readable.
    let storage = unsafe { borrowed_storage(first, (high - low) as usize, owner) }?;
    let leaf = Tensor::leaf(Value::new(storage, layout), dtype, None);
    // SAFETY: as above; the storage is alive.
    log_leaf(&leaf, &[], || unsafe { std::slice::from_raw_parts(first.as_ptr().cast_const(), (high - low) as usize) });
    Ok(leaf)
}

/// A tensor as it is (in another dtype if asked for), anything else as `ag.tensor` makes it.
///
/// copy: True for a copy in any case; False for an array's own memory, which must not change afterwards (what is computed from it then is
/// undefined), or ValueError where a copy would be needed.
///
/// >>> import agtape as ag
/// >>> x = ag.tensor([1.0])
/// >>> ag.asarray(x) is x
/// True
#[pyfunction]
#[pyo3(signature = (obj, dtype = None, device = None, copy = None))]
pub fn asarray<'py>(
    obj: &Bound<'py, PyAny>,
    dtype: Option<DTypeArg<'_>>,
    device: Option<&Bound<'_, PyAny>>,
    copy: Option<Flag<'_>>,
) -> PyResult<Bound<'py, PyTensor>> {
    let (py, copy) = (obj.py(), copy.of("asarray", "copy")?);
    let Ok(given) = obj.cast::<PyTensor>() else {
        if copy != Some(false) {
            return Bound::new(py, leaf("asarray", obj, dtype, device, false)?);
        }
        refuse_adapter("asarray", device_given("asarray", device)?)?;
        if !is_array(obj)? {
            return Err(needs_copy("asarray", &format!("{} must be converted", obj.get_type().name()?)));
        }
        let t = borrow("asarray", &py.import("numpy")?.call_method1("asarray", (obj,))?, None)?;
        return match dtype.of("asarray", "dtype")? {
            Some(d) if d != t.dtype() => Err(needs_copy("asarray", &format!("{} must be converted to {d}", t.dtype()))),
            _ => Bound::new(py, PyTensor::from(t)),
        };
    };
    let t = given.get().tensor();
    let dtype = dtype.of("asarray", "dtype")?.unwrap_or(t.dtype());
    if let Some(target) = device.map(|d| device_given("asarray", Some(d))).transpose()?
        && t.device() != Some(target)
    {
        return match copy {
            Some(false) => Err(needs_copy("asarray", &format!("the tensor is not on {target}"))),
            _ => Bound::new(py, PyTensor::from(converted(&t, dtype, Some(target))?)),
        };
    }
    match dtype {
        dtype if dtype != t.dtype() && copy == Some(false) => {
            Err(needs_copy("asarray", &format!("{} must be converted to {dtype}", t.dtype())))
        }
        dtype if dtype != t.dtype() => Bound::new(py, PyTensor::from(converted(&t, dtype, None)?)),
        _ if copy == Some(true) => Bound::new(py, PyTensor::from(row_major_copy(&t))),
        _ => Ok(given.clone()),
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; asarray);
    Ok(())
}
