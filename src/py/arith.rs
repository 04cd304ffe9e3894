//! Operators of the Python tensor: arithmetic, comparison, logic, and their in-place forms.
// PyO3's generated wrappers are unsafe functions; inside macro_rules their hygiene hides the lint's own exemption.
#![allow(unsafe_op_in_unsafe_fn)]
use super::convert::from_array;
use super::error::{is_misfit, named};
use super::operand::{Operand, apply};
use super::tensor::PyTensor;
use crate::backend::kind::BinaryKind::{self, *};
use crate::backend::kind::UnaryKind as U;
use crate::dtype::DType;
use crate::graph::Tensor;
use crate::ops::binary::{binary, select};
use crate::ops::matmul::matmul;
use crate::ops::unary::unary;
use pyo3::class::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyTuple};

/// The other side of an operator. What Python would go on to misread (a string repeated, a list joined) is taken here and refused.
enum Other {
    Operand(Operand),
    /// The name of a type that is no operand.
    Refused(String),
    /// What was raised when it was asked for values. Python would go on as if it were no operand.
    Raised(PyErr),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Other {
    type Error = PyErr;

    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Other> {
        if obj.is_instance_of::<PyString>() || obj.is_instance_of::<PyBytes>() {
            return Ok(Other::Refused(obj.get_type().name()?.to_string()));
        }
        if obj.is_instance_of::<PyList>() || obj.is_instance_of::<PyTuple>() {
            let found = from_array(&obj, None, None, None);
            return Ok(found.map_or_else(Other::Raised, |t| Other::Operand(Operand::Tensor(t))));
        }
        match (Operand::extract(obj), obj.cast::<PyInt>()) {
            (Ok(operand), _) => Ok(Other::Operand(operand)),
            (Err(_), Ok(number)) => Ok(Other::Operand(Operand::integer(&number))),
            // It may know what to do with a tensor itself; what is NumPy's does not.
            (Err(error), _) if error.is_instance_of::<PyTypeError>(obj.py()) && !obj.hasattr("__array_interface__")? => {
                Err(error)
            }
            (Err(error), _) => Ok(Other::Raised(error)),
        }
    }
}

impl Other {
    fn operand(self, op: &str) -> PyResult<Operand> {
        match self {
            Other::Operand(operand) => Ok(operand),
            Other::Raised(error) => Err(Python::attach(|py| named(op, py, error))),
            Other::Refused(name) => {
                Err(PyTypeError::new_err(format!("{op}: expected a tensor, an array or a number, got {name}")))
            }
        }
    }

    /// As a tensor beside a partner of the given dtype.
    fn beside(self, op: &str, partner: DType) -> PyResult<Tensor> {
        self.operand(op)?.beside(op, partner)
    }
}

/// `self op other`; a Python number adapts to the tensor's dtype.
fn forward(kind: BinaryKind, a: &PyTensor, b: Other) -> PyResult<PyTensor> {
    Ok(apply(kind.name(), kind, Operand::Tensor(a.tensor()), b.operand(kind.name())?)?.into())
}

/// `other op self`.
fn reflected(kind: BinaryKind, a: &PyTensor, b: Other) -> PyResult<PyTensor> {
    Ok(apply(kind.name(), kind, b.operand(kind.name())?, Operand::Tensor(a.tensor()))?.into())
}

/// `self op= other`: the same object under a new version.
fn in_place(name: &'static str, kind: BinaryKind, slf: &Bound<'_, PyTensor>, b: Other) -> PyResult<()> {
    slf.get().check_in_place(name)?;
    let a = slf.get().tensor();
    let y = apply(name, kind, Operand::Tensor(a.clone()), b.operand(name)?)?;
    if y.shape() != a.shape() {
        let message = format!(
            "{name}: the result has shape {:?}, the tensor {:?}; expected a value that broadcasts to the tensor's shape",
            y.shape(),
            a.shape()
        );
        return Err(PyValueError::new_err(message));
    }
    PyTensor::update(slf, y)
}

/// The operators of one binary kind: plain, reflected and in-place.
macro_rules! operators {
    ($(($kind:ident, $name:literal, $forward:ident, $reflected:ident, $in_place:ident)),* $(,)?) => {
        #[pymethods]
        impl PyTensor {
            $(
                fn $forward(&self, other: Other) -> PyResult<PyTensor> {
                    forward($kind, self, other)
                }

                fn $reflected(&self, other: Other) -> PyResult<PyTensor> {
                    reflected($kind, self, other)
                }

                fn $in_place(slf: &Bound<'_, PyTensor>, other: Other) -> PyResult<()> {
                    in_place($name, $kind, slf, other)
                }
            )*

            fn __pow__(&self, other: Other, modulo: Option<Bound<'_, PyAny>>) -> PyResult<PyTensor> {
                no_modulo(modulo)?;
                power_of(self, other)
            }

            fn __rpow__(&self, other: Other, modulo: Option<Bound<'_, PyAny>>) -> PyResult<PyTensor> {
                no_modulo(modulo)?;
                reflected(Pow, self, other)
            }

            fn __ipow__(slf: &Bound<'_, PyTensor>, other: Other, _modulo: Option<Bound<'_, PyAny>>) -> PyResult<()> {
                in_place("**=", Pow, slf, other)
            }

            fn __matmul__(&self, other: Other) -> PyResult<PyTensor> {
                let a = self.tensor();
                let b = other.beside("matmul", a.dtype())?;
                Ok(matmul(&a, &b)?.into())
            }

            fn __rmatmul__(&self, other: Other) -> PyResult<PyTensor> {
                let b = self.tensor();
                let a = other.beside("matmul", b.dtype())?;
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
                let other = match other.extract::<Other>() {
                    Ok(Other::Raised(error)) if !is_misfit(py, &error) => return Err(error),
                    Err(_) | Ok(Other::Refused(_) | Other::Raised(_)) => return Ok(py.NotImplemented().into_bound(py)),
                    Ok(other) => other,
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
    power_of(a, Other::Operand(b))
}

fn power_of(a: &PyTensor, b: Other) -> PyResult<PyTensor> {
    let x = a.tensor();
    if let Other::Operand(Operand::Scalar(s)) = &b
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
    let condition = condition.alone("where")?;
    let condition = if condition.dtype() == DType::Bool {
        condition
    } else {
        binary(Ne, &condition, &crate::ops::binary::scalar(0.0, condition.dtype()))?
    };
    let (a, b) = Operand::pair("where", a, b)?;
    Ok(select(&condition, &a, &b)?.into())
}
