//! dtype objects: `ag.float32` and its kind.
use super::convert::dtype_given;
use super::error::is_misfit;
use crate::dtype::DType;
use pyo3::prelude::*;

/// An element type; equal to its name and to NumPy's dtype of that name.
#[pyclass(name = "dtype", module = "agtape", frozen)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    /// NumPy's name.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Bytes an element takes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size_bytes()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match dtype_given("dtype", "other", other) {
            Ok(dtype) => Ok(dtype == self.0),
            Err(e) if is_misfit(other.py(), &e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn __ne__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(!self.__eq__(other)?)
    }

    fn __hash__(&self) -> isize {
        self.0 as isize
    }

    fn __repr__(&self) -> String {
        format!("agtape.{}", self.0.name())
    }

    fn __str__(&self) -> &'static str {
        self.0.name()
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (&'static str,))> {
        let make = slf.py().import("agtape._core")?.getattr("dtype_of")?;
        Ok((make.unbind(), (slf.get().0.name(),)))
    }
}

/// The dtype object for a name or another library's dtype. op, name: of a function and of its argument, for errors.
#[pyfunction]
#[pyo3(signature = (dtype, op = "dtype", name = "dtype"))]
pub fn dtype_of(dtype: &Bound<'_, PyAny>, op: &str, name: &str) -> PyResult<PyDType> {
    dtype_given(op, name, dtype).map(PyDType)
}
