//! Reads: values as NumPy arrays that keep their storage, and text.
use super::tensor::compute;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Storage, Tensor, Value, pools, record_version};
use crate::ops::unary::cast;
use crate::plan::{evaluate, read_bytes};
use numpy::npyffi::{NpyTypes, PY_ARRAY_API, get_type_object, npy_intp};
use numpy::{Element, PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::sync::Arc;

/// What an exported array holds: its storage is neither reused nor freed while it lives.
#[pyclass(frozen)]
struct Export {
    _storage: Arc<Storage>,
}

/// The value of a tensor, evaluated.
pub fn value(py: Python<'_>, t: &Tensor) -> PyResult<Value> {
    // A held version: whoever else computes it meanwhile must not let it go before it is read.
    t.hold();
    let found = compute(py, || -> Result<Value> {
        evaluate(std::slice::from_ref(t))?;
        t.computed()
    });
    t.unhold();
    found
}

/// NumPy's name of the type; of bfloat16, which it lacks, that of its bits.
fn descr(py: Python<'_>, dtype: DType) -> Bound<'_, PyArrayDescr> {
    match dtype {
        DType::Bool => bool::get_dtype(py),
        DType::U8 => u8::get_dtype(py),
        DType::I32 => i32::get_dtype(py),
        DType::I64 => i64::get_dtype(py),
        DType::F16 => half::f16::get_dtype(py),
        DType::BF16 => u16::get_dtype(py),
        DType::F32 => f32::get_dtype(py),
        DType::F64 => f64::get_dtype(py),
    }
}

/// A read-only array of bytes that were read from a device.
fn downloaded<'py>(py: Python<'py>, shape: &[usize], dtype: DType, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let flat = py.import("numpy")?.call_method1("frombuffer", (PyBytes::new(py, bytes), descr(py, dtype)))?;
    flat.call_method1("reshape", (PyTuple::new(py, shape)?,))
}

/// A read-only array over the tensor's storage; of a device's memory, a copy. bfloat16 becomes float32, which holds it exactly.
pub fn numpy<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    if t.dtype() != DType::BF16 {
        return array(py, t);
    }
    if t.device().is_none_or(|device| device.is_cpu()) {
        return array(py, &cast(t, DType::F32));
    }
    let value = value(py, t)?;
    // Here, not on the device: it moves half as much, and a tensor that the device holds is not too large to be read.
    let bytes: Vec<u8> = compute(py, || read_bytes(&value, 2))?
        .chunks_exact(2)
        .flat_map(|half| (u32::from(u16::from_ne_bytes([half[0], half[1]])) << 16).to_ne_bytes())
        .collect();
    downloaded(py, t.shape(), DType::F32, &bytes)
}

/// As `numpy`, but of bfloat16 the bits.
pub fn array<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let value = value(py, t)?;
    if !value.storage.device().is_cpu() {
        let bytes = compute(py, || read_bytes(&value, t.dtype().size_bytes()))?;
        return downloaded(py, t.shape(), t.dtype(), &bytes);
    }
    let size = t.dtype().size_bytes();
    let ptr = {
        let pools = pools(value.storage.device()).lock();
        let base = value.storage.ptr(&pools)?;
        // SAFETY: the offset of a value lies inside its storage.
        unsafe { base.add(value.layout.offset * size) }
    };
    let mut dims: Vec<npy_intp> = value.layout.shape.iter().map(|&d| d as npy_intp).collect();
    let mut strides: Vec<npy_intp> = value.layout.strides.iter().map(|&s| s as npy_intp * size as npy_intp).collect();
    let base = Bound::new(py, Export { _storage: value.storage.clone() })?;
    // SAFETY: the memory holds elements of this dtype at these strides and lives as long as the base object, which the array owns;
    // the array is read-only, so nobody writes to what other values may share.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            descr(py, t.dtype()).into_dtype_ptr(),
            dims.len() as i32,
            dims.as_mut_ptr(),
            strides.as_mut_ptr(),
            ptr.cast(),
            0,
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base.into_ptr());
        // NumPy makes an array without flags read-only.
        Ok(array)
    }
}

/// NumPy's text with the dtype where it is not the default one, and whether a gradient is wanted.
pub fn repr(py: Python<'_>, t: &Tensor) -> PyResult<String> {
    let version = record_version(t, None);
    let array = numpy(py, &version)?;
    let kwargs = pyo3::types::PyDict::new(py);
    kwargs.set_item("separator", ", ")?;
    kwargs.set_item("prefix", "tensor(")?;
    let text: String = py.import("numpy")?.call_method("array2string", (array,), Some(&kwargs))?.extract()?;
    let mut out = format!("tensor({text}");
    if t.elems() == 0 {
        let sizes: Vec<String> = t.shape().iter().map(usize::to_string).collect();
        let comma = if sizes.len() == 1 { "," } else { "" };
        out += &format!(", shape=({}{comma})", sizes.join(", "));
    }
    if !matches!(t.dtype(), DType::F32 | DType::I64 | DType::Bool) {
        out += &format!(", dtype={}", t.dtype());
    }
    if t.requires_grad() {
        out += ", requires_grad=True";
    }
    Ok(out + ")")
}
