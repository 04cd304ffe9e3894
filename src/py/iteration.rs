//! Going through a tensor: its rows one by one, from either end, and whether it holds a value.
use super::arguments::{check_count, operand};
use super::export;
use super::operand::{Operand, apply};
use super::tensor::{PyTensor, wrap_all};
use crate::backend::kind::BinaryKind::Eq;
use crate::backend::kind::ReduceKind::Any;
use crate::graph::Tensor;
use crate::ops::indexing::{Index, getitem};
use crate::ops::reduce::reduce;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Iterates over the first axis.
#[pyclass(module = "agtape._core")]
pub struct Rows {
    /// Held as Python holds it: what is read of one row must not let the others go.
    of: PyTensor,
    at: usize,
}

#[pymethods]
impl Rows {
    fn __iter__(slf: Bound<'_, Rows>) -> Bound<'_, Rows> {
        slf
    }

    fn __next__(&mut self) -> PyResult<Option<PyTensor>> {
        let of = self.of.tensor();
        if self.at >= of.shape()[0] {
            return Ok(None);
        }
        let row = getitem(&of, &[Index::Int(self.at as i64)])?;
        self.at += 1;
        Ok(Some(row.into()))
    }
}

#[pymethods]
impl PyTensor {
    fn __iter__(&self) -> PyResult<Rows> {
        let of = self.tensor();
        if of.rank() == 0 {
            return Err(PyTypeError::new_err("iteration over a tensor without axes"));
        }
        Ok(Rows { of: of.into(), at: 0 })
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let of = self.tensor();
        let Some(&n) = of.shape().first() else {
            return Err(PyTypeError::new_err("iteration over a tensor without axes"));
        };
        check_count("reversed", "axis 0", n)?;
        let rows = (0..n as i64).rev().map(|i| getitem(&of, &[Index::Int(i)])).collect::<crate::error::Result<Vec<Tensor>>>()?;
        let rows = wrap_all(rows);
        PyList::new(py, rows)?.call_method0("__iter__")
    }

    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let x = self.tensor();
        let hits = apply("contains", Eq, Operand::Tensor(x), operand("contains", value)?)?;
        let any = reduce(Any, &hits, None, false)?;
        export::numpy(py, &any)?.call_method0("item")?.extract()
    }
}

/// Adds this file's class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Rows>()
}
