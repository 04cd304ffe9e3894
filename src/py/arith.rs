//! Operators of the Python tensor: arithmetic, comparison, logic, and their in-place forms.
// PyO3's generated wrappers are unsafe functions; inside macro_rules their hygiene hides the lint's own exemption.
#![allow(unsafe_op_in_unsafe_fn)]
use super::convert::Operand;
use super::tensor::PyTensor;
use crate::backend::kind::BinaryKind::{self, *};
use crate::backend::kind::UnaryKind as U;
use crate::dtype::DType;
use crate::ops::binary::{binary, select};
use crate::ops::matmul::matmul;
use crate::ops::unary::unary;
use pyo3::class::basic::CompareOp;
use pyo3::prelude::*;

/// `self op other`; a Python number adapts to the tensor's dtype.
fn forward(kind: BinaryKind, a: &PyTensor, b: Operand) -> PyResult<PyTensor> {
    let a = a.tensor();
    let b = b.beside(a.dtype());
    Ok(binary(kind, &a, &b)?.into())
}

/// `other op self`.
fn reflected(kind: BinaryKind, a: &PyTensor, b: Operand) -> PyResult<PyTensor> {
    let a = a.tensor();
    let b = b.beside(a.dtype());
    Ok(binary(kind, &b, &a)?.into())
}

/// `self op= other`: the same object under a new version.
fn in_place(name: &'static str, kind: BinaryKind, slf: &PyTensor, b: Operand) -> PyResult<()> {
    slf.check_in_place(name)?;
    let a = slf.tensor();
    let b = b.beside(a.dtype());
    slf.update(binary(kind, &a, &b)?)
}

/// The operators of one binary kind: plain, reflected and in-place.
macro_rules! operators {
    ($(($kind:ident, $name:literal, $forward:ident, $reflected:ident, $in_place:ident)),* $(,)?) => {
        #[pymethods]
        impl PyTensor {
            $(
                fn $forward(&self, other: Operand) -> PyResult<PyTensor> {
                    forward($kind, self, other)
                }

                fn $reflected(&self, other: Operand) -> PyResult<PyTensor> {
                    reflected($kind, self, other)
                }

                fn $in_place(&self, other: Operand) -> PyResult<()> {
                    in_place($name, $kind, self, other)
                }
            )*

            fn __pow__(&self, other: Operand, modulo: Option<Bound<'_, PyAny>>) -> PyResult<PyTensor> {
                no_modulo(modulo)?;
                power(self, other)
            }

            fn __rpow__(&self, other: Operand, modulo: Option<Bound<'_, PyAny>>) -> PyResult<PyTensor> {
                no_modulo(modulo)?;
                reflected(Pow, self, other)
            }

            fn __ipow__(&self, other: Operand, _modulo: Option<Bound<'_, PyAny>>) -> PyResult<()> {
                in_place("**=", Pow, self, other)
            }

            fn __matmul__(&self, other: Operand) -> PyResult<PyTensor> {
                let a = self.tensor();
                let b = other.beside(a.dtype());
                Ok(matmul(&a, &b)?.into())
            }

            fn __rmatmul__(&self, other: Operand) -> PyResult<PyTensor> {
                let b = self.tensor();
                let a = other.beside(b.dtype());
                Ok(matmul(&a, &b)?.into())
            }

            fn __neg__(&self) -> PyResult<PyTensor> {
                Ok(unary(U::Neg, &self.tensor())?.into())
            }

            fn __pos__(&self) -> PyTensor {
                self.tensor().into()
            }

            fn __abs__(&self) -> PyResult<PyTensor> {
                Ok(unary(U::Abs, &self.tensor())?.into())
            }

            fn __invert__(&self) -> PyResult<PyTensor> {
                Ok(unary(U::BitNot, &self.tensor())?.into())
            }

            fn __richcmp__<'py>(&self, py: Python<'py>, other: Bound<'py, PyAny>, op: CompareOp) -> PyResult<Bound<'py, PyAny>> {
                let Ok(other) = other.extract::<Operand>() else {
                    return Ok(py.NotImplemented().into_bound(py));
                };
                let kind = match op {
                    CompareOp::Eq => Eq,
                    CompareOp::Ne => Ne,
                    CompareOp::Lt => Lt,
                    CompareOp::Le => Le,
                    CompareOp::Gt => Gt,
                    CompareOp::Ge => Ge,
                };
                Ok(Bound::new(py, forward(kind, self, other)?)?.into_any())
            }
        }
    };
}

operators! {
    (Add, "+=", __add__, __radd__, __iadd__),
    (Sub, "-=", __sub__, __rsub__, __isub__),
    (Mul, "*=", __mul__, __rmul__, __imul__),
    (Div, "/=", __truediv__, __rtruediv__, __itruediv__),
    (FloorDiv, "//=", __floordiv__, __rfloordiv__, __ifloordiv__),
    (Rem, "%=", __mod__, __rmod__, __imod__),
    (And, "&=", __and__, __rand__, __iand__),
    (Or, "|=", __or__, __ror__, __ior__),
    (Xor, "^=", __xor__, __rxor__, __ixor__),
    (Shl, "<<=", __lshift__, __rlshift__, __ilshift__),
    (Shr, ">>=", __rshift__, __rrshift__, __irshift__),
}

fn no_modulo(modulo: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    match modulo {
        None => Ok(()),
        Some(_) => Err(pyo3::exceptions::PyTypeError::new_err("pow: the three-argument form is not defined for tensors")),
    }
}

/// x ** b; small fixed exponents are cheaper and exact as products and roots.
pub fn power(a: &PyTensor, b: Operand) -> PyResult<PyTensor> {
    let x = a.tensor();
    if let Operand::Scalar(s) = &b
        && x.dtype().is_float()
    {
        if s.as_f64() == 2.0 {
            return Ok(unary(U::Square, &x)?.into());
        }
        if s.as_f64() == 0.5 {
            return Ok(unary(U::Sqrt, &x)?.into());
        }
    }
    forward(Pow, a, b)
}

/// `where` with numbers that adapt.
pub fn select_any(condition: Operand, a: Operand, b: Operand) -> PyResult<PyTensor> {
    let condition = condition.alone();
    let condition = if condition.dtype() == DType::Bool {
        condition
    } else {
        binary(Ne, &condition, &crate::ops::binary::scalar(0.0, condition.dtype()))?
    };
    let (a, b) = Operand::pair(a, b);
    Ok(select(&condition, &a, &b)?.into())
}
