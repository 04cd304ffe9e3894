//! What an op is given: tensors, and Python numbers, which take the type of the tensor beside them if it holds them.
use super::arguments::digits;
use super::convert::{from_array, is_array, scalar};
use super::tensor::PyTensor;
use crate::backend::kind::BinaryKind::{self, *};
use crate::dtype::{DType, Scalar, misfit};
use crate::graph::Tensor;
use crate::ops::binary::{binary_of, host_scalar};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

/// An operand of an op.
pub enum Operand {
    /// A tensor, or an array that was copied into one.
    Tensor(Tensor),
    /// A Python number: weak in promotion.
    Scalar(Scalar),
    /// An integer beyond int64.
    Big(Box<Big>),
}

/// An integer that no integer type holds.
pub struct Big {
    /// As a float, if one holds it.
    float: Option<f64>,
    is_negative: bool,
    digits: String,
}

/// The end of an integer type that a number lies beyond.
#[derive(Clone, Copy)]
pub struct End {
    at: i64,
    is_low: bool,
    dtype: DType,
}

impl<'a, 'py> FromPyObject<'a, 'py> for Operand {
    type Error = PyErr;

    fn extract(obj: Borrowed<'a, 'py, PyAny>) -> PyResult<Operand> {
        if let Ok(t) = obj.cast::<PyTensor>() {
            return Ok(Operand::Tensor(t.get().tensor()));
        }
        if let Some(number) = Operand::number(&obj)? {
            return Ok(number);
        }
        if obj.is_instance_of::<PyString>() || obj.is_none() || !is_array(&obj)? {
            return Err(PyTypeError::new_err(format!("expected a tensor, an array or a number, got {}", obj.get_type().name()?)));
        }
        Ok(Operand::Tensor(from_array(&obj, None, None, None)?))
    }
}

impl Operand {
    /// A number of Python's; `None` for anything else.
    pub fn number(obj: &Bound<'_, PyAny>) -> PyResult<Option<Operand>> {
        match scalar(obj) {
            Ok(found) => Ok(found.map(Operand::Scalar)),
            Err(error) => obj.cast::<PyInt>().map_or(Err(error), |i| Ok(Some(Operand::integer(i)))),
        }
    }

    /// An integer of Python's, of any size.
    pub fn integer(number: &Bound<'_, PyInt>) -> Operand {
        if let Ok(i) = number.extract() {
            return Operand::Scalar(Scalar::Int(i));
        }
        // By Python's own rule: a subclass may have another one.
        let float = number.py().get_type::<PyInt>().call_method1("__float__", (number,));
        Operand::Big(Box::new(Big {
            float: float.and_then(|x| x.extract()).ok(),
            is_negative: number.lt(0).unwrap_or(false),
            digits: digits(number.as_any()),
        }))
    }

    /// Its shape: a number has no axes.
    pub fn shape(&self) -> &[usize] {
        if let Operand::Tensor(t) = self { t.shape() } else { &[] }
    }

    /// As a tensor beside a partner of the given dtype, which a Python number adapts to; an error for an integer that it does not hold.
    pub fn beside(self, op: &str, partner: DType) -> PyResult<Tensor> {
        match self {
            Operand::Tensor(t) => Ok(t),
            Operand::Scalar(s) => {
                let dtype = partner.promote_weak(s.weak_dtype());
                if s.fits(dtype) { Ok(host_scalar(s, dtype)) } else { Err(refused(op, s, dtype)) }
            }
            Operand::Big(big) => match big.float {
                Some(x) if partner.is_float() => Ok(host_scalar(Scalar::Float(x), partner)),
                _ if partner.is_float() => Err(refused(op, big.digits, DType::F64)),
                _ => Err(refused(op, big.digits, partner.promote_weak(DType::I64))),
            },
        }
    }

    /// As a tensor by itself: Python floats are float32, ints int64.
    pub fn alone(self, op: &str) -> PyResult<Tensor> {
        // Beside bools every number has the type that it has alone.
        self.beside(op, DType::Bool)
    }

    /// Two operands of one op; a Python number adapts to the other.
    pub fn pair(op: &str, a: Operand, b: Operand) -> PyResult<(Tensor, Tensor)> {
        Ok(match (a, b) {
            (Operand::Tensor(a), b) => {
                let b = b.beside(op, a.dtype())?;
                (a, b)
            }
            (a, Operand::Tensor(b)) => (a.beside(op, b.dtype())?, b),
            (a, b) => (a.alone(op)?, b.alone(op)?),
        })
    }

    /// Two operands of an op that computes in floats: an integer that the other's type does not hold is one as well.
    pub fn pair_of_floats(op: &str, a: Operand, b: Operand) -> PyResult<(Tensor, Tensor)> {
        let a = if let Operand::Tensor(t) = &b { a.widened(t.dtype()) } else { a };
        let b = if let Operand::Tensor(t) = &a { b.widened(t.dtype()) } else { b };
        Operand::pair(op, a, b)
    }

    /// A float instead of an integer that a partner's type does not hold.
    fn widened(self, partner: DType) -> Operand {
        match (self.beyond(partner), &self) {
            (Some(_), Operand::Scalar(s)) => Operand::Scalar(Scalar::Float(s.as_f64())),
            (Some(_), Operand::Big(big)) => big.float.map_or(self, |x| Operand::Scalar(Scalar::Float(x))),
            _ => self,
        }
    }

    /// Whether it is not 0, as a bool beside tensors of truth values.
    pub fn truth(self) -> Operand {
        match self {
            Operand::Scalar(s) => Operand::Scalar(Scalar::Bool(s.as_f64() != 0.0)),
            Operand::Big(_) => Operand::Scalar(Scalar::Bool(true)),
            tensor => tensor,
        }
    }

    /// A bound of values of the given dtype: an integer beyond the type bounds like its end.
    pub fn bound(self, op: &str, of: DType) -> PyResult<Tensor> {
        match self.beyond(of) {
            Some(end) => Ok(end.tensor()),
            None => self.beside(op, of),
        }
    }

    /// The end of the integer type beside a partner which the number lies beyond; `None` if that type holds it, or for what is no integer.
    fn beyond(&self, partner: DType) -> Option<End> {
        let dtype = partner.promote_weak(DType::I64);
        let (low, high) = dtype.ends()?;
        let is_low = match self {
            Operand::Scalar(Scalar::Int(i)) if *i < low => true,
            Operand::Scalar(Scalar::Int(i)) if *i > high => false,
            Operand::Big(big) => big.is_negative,
            _ => return None,
        };
        Some(End { at: if is_low { low } else { high }, is_low, dtype })
    }
}

impl End {
    fn tensor(self) -> Tensor {
        host_scalar(Scalar::Int(self.at), self.dtype)
    }

    /// The comparison with the end that holds whenever the given one holds with what lies beyond.
    fn comparison(self, kind: BinaryKind) -> BinaryKind {
        match (self.is_low, kind) {
            (false, Eq | Gt | Ge) => Gt,
            (false, _) => Le,
            (true, Eq | Lt | Le) => Lt,
            (true, _) => Ge,
        }
    }
}

fn refused(op: &str, number: impl std::fmt::Display, dtype: DType) -> PyErr {
    PyValueError::new_err(format!("{op}: {}", misfit("integer", number, dtype)))
}

/// An elementwise op of two operands; a Python number adapts to the tensor beside it. Comparisons are by value, quotients and angles
/// those of floats, whatever integer is given; every other op refuses one that the tensor's type does not hold.
pub fn apply(op: &str, kind: BinaryKind, a: Operand, b: Operand) -> PyResult<Tensor> {
    let (a, b) = match (a, b) {
        (Operand::Tensor(a), Operand::Tensor(b)) => (a, b),
        (a, b) if kind.gives_bool() => match (a, b) {
            (Operand::Tensor(x), number) => return compared(op, kind, x, number),
            (number, Operand::Tensor(x)) => return compared(op, kind.swapped(), x, number),
            (a, b) => Operand::pair(op, a, b)?,
        },
        (a, b) if matches!(kind, Div | Arctan2) => Operand::pair_of_floats(op, a, b)?,
        (a, b) => Operand::pair(op, a, b)?,
    };
    Ok(binary_of(kind, a, b)?)
}

/// A tensor compared with a number.
fn compared(op: &str, kind: BinaryKind, x: Tensor, number: Operand) -> PyResult<Tensor> {
    let (kind, other) = match number.beyond(x.dtype()) {
        Some(end) => (end.comparison(kind), end.tensor()),
        None => (kind, number.beside(op, x.dtype())?),
    };
    Ok(binary_of(kind, x, other)?)
}
