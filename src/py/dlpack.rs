//! DLPack both ways, through NumPy's capsules. bfloat16, which NumPy lacks, passes it as 16 bits: the capsule says the type that it has.
use super::arguments::{Checked, wrong_type};
use super::convert::{device_given, new_leaf};
use super::creation::leaf;
use super::export;
use super::flags::Flag;
use super::imports::{borrow, refuse_adapter};
use super::tensor::PyTensor;
use crate::dtype::DType;
use crate::graph::record_version;
use numpy::{PyReadonlyArrayDyn, PyUntypedArray};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::{CStr, c_void};

/// What DLPack asks for: device type and number.
type DLPackDevice = (i32, i32);

/// DLPack's type of an element: kind, bits, and numbers side by side.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct ElementType {
    code: u8,
    bits: u8,
    lanes: u16,
}

const UINT16: ElementType = ElementType { code: 1, bits: 16, lanes: 1 };
const BFLOAT16: ElementType = ElementType { code: 4, bits: 16, lanes: 1 };

/// The beginning of DLPack's tensor.
#[repr(C)]
struct TensorHead {
    data: *mut c_void,
    device: [i32; 2],
    axes: i32,
    element: ElementType,
}

/// The beginning of what a capsule of version 1 holds.
#[repr(C)]
struct VersionedHead {
    version: [u32; 2],
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: TensorHead,
}

/// Lets an unused capsule say another type of elements, if it says the first.
fn rename(capsule: &Bound<'_, PyAny>, from: ElementType, to: ElementType) -> bool {
    let held = |name: &CStr| -> Option<*mut c_void> {
        // SAFETY: the interpreter is attached; the pointer is asked for only if the capsule is one of this name.
        unsafe {
            let is_named = pyo3::ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1;
            is_named.then(|| pyo3::ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()))
        }
    };
    // SAFETY: an unused capsule of either name holds the struct that DLPack says, which belongs to whoever has the capsule; after another
    // major version than 1 its tensor may lie elsewhere.
    unsafe {
        let tensor = match (held(c"dltensor"), held(c"dltensor_versioned").map(<*mut c_void>::cast::<VersionedHead>)) {
            (Some(tensor), _) => tensor.cast::<TensorHead>(),
            (_, Some(versioned)) if (*versioned).version[0] == 1 => &raw mut (*versioned).tensor,
            _ => return false,
        };
        let is_it = (*tensor).element == from;
        if is_it {
            (*tensor).element = to;
        }
        is_it
    }
}

/// A capsule for one consumer, and the device it came from.
#[pyclass(frozen)]
struct Carrier {
    capsule: Py<PyAny>,
    device: Py<PyAny>,
}

#[pymethods]
impl Carrier {
    #[pyo3(signature = (**_wishes))]
    fn __dlpack__(&self, py: Python<'_>, _wishes: Option<Bound<'_, PyDict>>) -> Py<PyAny> {
        self.capsule.clone_ref(py)
    }

    fn __dlpack_device__(&self, py: Python<'_>) -> Py<PyAny> {
        self.device.clone_ref(py)
    }
}

/// Another library's bfloat16 as NumPy's 16 bits, in the memory that it has; `None` for other types.
fn bits_of<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = x.py();
    let wishes = PyDict::new(py);
    wishes.set_item("max_version", (1, 0))?;
    let capsule = match x.call_method("__dlpack__", (), Some(&wishes)) {
        // Before version 1.0 there was nothing to wish for.
        Err(e) if e.is_instance_of::<PyTypeError>(py) => x.call_method0("__dlpack__")?,
        given => given?,
    };
    if !rename(&capsule, BFLOAT16, UINT16) {
        return Ok(None);
    }
    let carrier = Carrier { capsule: capsule.unbind(), device: x.call_method0("__dlpack_device__")?.unbind() };
    py.import("numpy")?.call_method1("from_dlpack", (carrier,)).map(Some).map_err(|e| not_read(x, e))
}

/// A NumPy array of what another library holds, and the type of its elements if that is not the array's.
fn array_of<'py>(x: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Option<DType>)> {
    if x.cast::<PyUntypedArray>().is_ok() {
        return Ok((x.clone(), None));
    }
    let error = match x.py().import("numpy")?.call_method1("from_dlpack", (x,)) {
        Ok(array) => return Ok((array, None)),
        Err(error) => error,
    };
    match error.is_instance_of::<PyRuntimeError>(x.py()).then(|| bits_of(x)).transpose()?.flatten() {
        Some(array) => Ok((array, Some(DType::BF16))),
        None => Err(not_read(x, error)),
    }
}

/// NumPy says what it cannot read in a `RuntimeError` without a name.
fn not_read(x: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyRuntimeError>(x.py()) {
        return error;
    }
    let why = error.value(x.py()).to_string();
    wrong_type(
        "from_dlpack",
        x,
        &format!("booleans, integers or floats up to 64 bits on the CPU ({})", why.trim_end_matches('.')),
    )
}

/// A leaf with a copy of an array of 16 bits as bfloat16.
fn copied_bits(array: &Bound<'_, PyAny>, device: Option<&Bound<'_, PyAny>>) -> PyResult<PyTensor> {
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let flat = array.py().import("numpy")?.call_method1("ascontiguousarray", (array,))?;
    let flat = flat.extract::<PyReadonlyArrayDyn<'_, u16>>()?;
    let bits = flat.as_slice().map_err(|e| PyValueError::new_err(e.to_string()))?;
    // SAFETY: numbers without padding are bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bits.as_ptr().cast::<u8>(), size_of_val(bits)) };
    Ok(new_leaf(&shape, DType::BF16, bytes, None, Some(device_given("from_dlpack", device)?))?.into())
}

/// A tensor with a copy of another library's array, by DLPack; with copy=False in the array's own memory.
///
/// x: an object with `__dlpack__`, on the CPU. copy: False raises ValueError where a copy would be needed; the memory must not change
/// afterwards: what is computed from it then is undefined. The tensor keeps the array alive and never writes to it.
///
/// >>> import agtape as ag, numpy as np
/// >>> ag.from_dlpack(np.arange(3.0)).tolist()
/// [0.0, 1.0, 2.0]
#[pyfunction]
#[pyo3(signature = (x, device = None, copy = None))]
pub fn from_dlpack(x: &Bound<'_, PyAny>, device: Option<&Bound<'_, PyAny>>, copy: Option<Flag<'_>>) -> PyResult<PyTensor> {
    let copy = copy.of("from_dlpack", "copy")?;
    if !x.hasattr("__dlpack__")? {
        return Err(wrong_type("from_dlpack", x, "an object with __dlpack__"));
    }
    if let Ok(t) = x.cast::<PyTensor>() {
        return match copy {
            Some(false) => Ok(record_version(&t.get().tensor(), None).into()),
            _ => leaf("from_dlpack", x, None, device, false),
        };
    }
    let (array, dtype) = array_of(x)?;
    match (copy, dtype) {
        (Some(false), _) => {
            refuse_adapter("from_dlpack", device_given("from_dlpack", device)?)?;
            Ok(borrow("from_dlpack", &array, dtype)?.into())
        }
        (_, None) => leaf("from_dlpack", &array, None, device, false),
        (_, Some(_)) => copied_bits(&array, device),
    }
}

#[pymethods]
impl PyTensor {
    /// The values for another library, read-only where its version of DLPack can say so, else a copy.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(i64, i64)>,
        dl_device: Option<DLPackDevice>,
        copy: Option<Flag<'_>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() || dl_device.is_some_and(|d| d != (1, 0)) {
            return Err(PyValueError::new_err(format!(
                "__dlpack__: got stream {stream:?} and device {dl_device:?}; expected None and the CPU, (1, 0)"
            )));
        }
        let copy = copy.of("__dlpack__", "copy")?;
        let t = record_version(&self.tensor(), None);
        let array = export::array(py, &t)?;
        let kwargs = PyDict::new(py);
        let capsule = match max_version {
            Some(version) if version.0 >= 1 && copy != Some(true) => {
                kwargs.set_item("max_version", version)?;
                array.call_method("__dlpack__", (), Some(&kwargs))?
            }
            _ if copy == Some(false) => {
                let message = "__dlpack__: copy=False needs max_version of at least (1, 0), which can say read-only";
                return Err(PyValueError::new_err(message));
            }
            _ => array.call_method0("copy")?.call_method0("__dlpack__")?,
        };
        if t.dtype() == DType::BF16 && !rename(&capsule, UINT16, BFLOAT16) {
            return Err(PyRuntimeError::new_err("__dlpack__: NumPy made a capsule that has no place for bfloat16"));
        }
        Ok(capsule)
    }

    /// DLPack's name of the CPU.
    fn __dlpack_device__(&self) -> DLPackDevice {
        (1, 0)
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; from_dlpack);
    Ok(())
}
