//! dtype objects: `ag.float32` and its kind.
use super::convert::DTypeArg;
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

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.extract::<DTypeArg>().is_ok_and(|d| d.0 == self.0)
    }

    fn __ne__(&self, other: &Bound<'_, PyAny>) -> bool {
        !self.__eq__(other)
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

/// The dtype object for a name or another library's dtype.
#[pyfunction]
pub fn dtype_of(dtype: DTypeArg) -> PyDType {
    PyDType(dtype.0)
}
