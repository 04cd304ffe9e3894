//! Operators of the Python tensor: arithmetic, comparison, logic, and their in-place forms.
// PyO3's generated wrappers are unsafe functions; inside macro_rules their hygiene hides the lint's own exemption.
#![allow(unsafe_op_in_unsafe_fn)]
use super::arguments::digits;
use super::convert::{Operand, from_array};
use super::error::{is_misfit, named};
use super::tensor::PyTensor;
use crate::backend::kind::BinaryKind::{self, *};
use crate::backend::kind::UnaryKind as U;
use crate::dtype::{DType, Scalar};
use crate::graph::Tensor;
use crate::ops::binary::{binary, binary_of, select};
use crate::ops::matmul::matmul;
use crate::ops::unary::unary;
use pyo3::class::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyTuple};

/// The other side of an operator. What Python would go on to misread (a string repeated, a list joined) is taken here and refused.
enum Other {
    Operand(Operand),
    /// An integer beyond int64, if a float holds it, and its digits: a number beside floats.
    Big(Option<f64>, String),
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
        match Operand::extract(obj) {
            Ok(operand) => Ok(Other::Operand(operand)),
            Err(_) if obj.is_instance_of::<PyInt>() => Ok(Other::Big(beyond(&obj), digits(&obj))),
            // It may know what to do with a tensor itself.
            Err(error) if error.is_instance_of::<PyTypeError>(obj.py()) => Err(error),
            Err(error) => Ok(Other::Raised(error)),
        }
    }
}

/// An integer as a float, by Python's own rule: a subclass may have another one.
fn beyond(obj: &Bound<'_, PyAny>) -> Option<f64> {
    let float = obj.py().get_type::<PyInt>().call_method1("__float__", (obj,));
    float.and_then(|x| x.extract()).ok()
}

impl Other {
    /// As a tensor beside a partner of the given dtype.
    fn beside(self, op: &str, partner: DType) -> PyResult<Tensor> {
        match self {
            Other::Operand(operand) => Ok(operand.beside(partner)),
            Other::Big(Some(x), _) if partner.is_float() => Ok(Operand::Scalar(Scalar::Float(x)).beside(partner)),
            Other::Big(_, digits) => {
                let holds = if partner.is_float() { DType::F64 } else { DType::I64 };
                Err(PyValueError::new_err(format!(
                    "{op}: the integer {digits} does not fit into {holds}; expected one that does"
                )))
            }
            Other::Raised(error) => Err(Python::attach(|py| named(op, py, error))),
            Other::Refused(name) => {
                Err(PyTypeError::new_err(format!("{op}: expected a tensor, an array or a number, got {name}")))
            }
        }
    }
}

/// `self op other`; a Python number adapts to the tensor's dtype.
fn forward(kind: BinaryKind, a: &PyTensor, b: Other) -> PyResult<PyTensor> {
    let a = a.tensor();
    let b = b.beside(kind.name(), a.dtype())?;
    Ok(binary_of(kind, a, b)?.into())
}

/// `other op self`.
fn reflected(kind: BinaryKind, a: &PyTensor, b: Other) -> PyResult<PyTensor> {
    let a = a.tensor();
    let b = b.beside(kind.name(), a.dtype())?;
    Ok(binary_of(kind, b, a)?.into())
}

/// `self op= other`: the same object under a new version.
fn in_place(name: &'static str, kind: BinaryKind, slf: &Bound<'_, PyTensor>, b: Other) -> PyResult<()> {
    slf.get().check_in_place(name)?;
    let a = slf.get().tensor();
    let b = b.beside(name, a.dtype())?;
    let y = binary(kind, &a, &b)?;
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
    let condition = condition.alone();
    let condition = if condition.dtype() == DType::Bool {
        condition
    } else {
        binary(Ne, &condition, &crate::ops::binary::scalar(0.0, condition.dtype()))?
    };
    let (a, b) = Operand::pair(a, b);
    Ok(select(&condition, &a, &b)?.into())
}
