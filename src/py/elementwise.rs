//! Elementwise functions and methods of the Python module: one line each in two tables, and those with arguments of their own.
// PyO3's generated wrappers are unsafe functions; inside macro_rules their hygiene hides the lint's own exemption.
#![allow(unsafe_op_in_unsafe_fn)]
use super::arguments::{Checked, Int, Real, array, operand};
use super::arith::{power, select_any};
use super::flags::Word;
use super::operand::{Operand, apply};
use super::tensor::PyTensor;
use crate::backend::kind::BinaryKind as B;
use crate::backend::kind::UnaryKind as U;
use crate::dtype::DType;
use crate::ops::binary::{binary, div, mul, scalar, select};
use crate::ops::movement::{broadcast_all, stack};
use crate::ops::reduce::logsumexp;
use crate::ops::unary::{cast, round_to_tens, unary};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Functions of one tensor, each also a method: name, kind, what it computes, an example's argument and its result.
macro_rules! unary_functions {
    ($(($name:ident, $kind:ident, $what:literal, $given:literal, $result:literal)),* $(,)?) => {
        $(
            #[doc = concat!($what, "\n\nx: a tensor or array of any shape; the result has its shape. Raises TypeError for anything else.\n\n>>> import agtape as ag\n>>> ag.", stringify!($name), "(ag.tensor(", $given, ")).tolist()\n", $result)]
            #[pyfunction]
            pub fn $name(x: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
                Ok(unary(U::$kind, &array(stringify!($name), x)?)?.into())
            }
        )*

        #[pymethods]
        impl PyTensor {
            $(
                #[doc = concat!($what, " See `ag.", stringify!($name), "`.")]
                pub fn $name(&self) -> PyResult<PyTensor> {
                    Ok(unary(U::$kind, &self.tensor())?.into())
                }
            )*
        }

        fn register_unary(m: &Bound<'_, PyModule>) -> PyResult<()> {
            functions!(m; $($name),*);
            Ok(())
        }
    };
}

unary_functions! {
    (negative, Neg, "-x.", "[1.0, -2.0]", "[-1.0, 2.0]"),
    (abs, Abs, "The absolute value; its gradient at 0 is 0.", "[-1.5, 2.0]", "[1.5, 2.0]"),
    (sign, Sign, "-1, 0 or 1 by the sign of x; NaN for NaN.", "[-3.0, 0.0, 5.0]", "[-1.0, 0.0, 1.0]"),
    (square, Square, "x * x.", "[3.0]", "[9.0]"),
    (sqrt, Sqrt, "The square root; NaN for negative x.", "[9.0]", "[3.0]"),
    (rsqrt, Rsqrt, "1 / sqrt(x).", "[4.0]", "[0.5]"),
    (reciprocal, Reciprocal, "1 / x; integers become float32.", "[4.0]", "[0.25]"),
    (exp, Exp, "e to the power of x.", "[0.0]", "[1.0]"),
    (expm1, Expm1, "e to the power of x, minus 1, exact for small x.", "[0.0]", "[0.0]"),
    (log, Log, "The natural logarithm; NaN for negative x.", "[1.0]", "[0.0]"),
    (log1p, Log1p, "log(1 + x), exact for small x.", "[0.0]", "[0.0]"),
    (log2, Log2, "The logarithm to base 2.", "[8.0]", "[3.0]"),
    (log10, Log10, "The logarithm to base 10.", "[1000.0]", "[3.0]"),
    (sin, Sin, "The sine of an angle in radians.", "[0.0]", "[0.0]"),
    (cos, Cos, "The cosine of an angle in radians.", "[0.0]", "[1.0]"),
    (tan, Tan, "The tangent of an angle in radians.", "[0.0]", "[0.0]"),
    (arcsin, Arcsin, "The angle whose sine is x; NaN outside [-1, 1].", "[0.0]", "[0.0]"),
    (arccos, Arccos, "The angle whose cosine is x; NaN outside [-1, 1].", "[1.0]", "[0.0]"),
    (arctan, Arctan, "The angle whose tangent is x.", "[0.0]", "[0.0]"),
    (sinh, Sinh, "The hyperbolic sine.", "[0.0]", "[0.0]"),
    (cosh, Cosh, "The hyperbolic cosine.", "[0.0]", "[1.0]"),
    (tanh, Tanh, "The hyperbolic tangent.", "[0.0]", "[0.0]"),
    (arcsinh, Arcsinh, "The inverse hyperbolic sine.", "[0.0]", "[0.0]"),
    (arccosh, Arccosh, "The inverse hyperbolic cosine; NaN below 1.", "[1.0]", "[0.0]"),
    (arctanh, Arctanh, "The inverse hyperbolic tangent; NaN outside [-1, 1].", "[0.0]", "[0.0]"),
    (sigmoid, Sigmoid, "1 / (1 + e^-x).", "[0.0]", "[0.5]"),
    (relu, Relu, "max(x, 0); its gradient at 0 is 0.", "[-1.0, 2.0]", "[0.0, 2.0]"),
    (silu, Silu, "x * sigmoid(x).", "[0.0]", "[0.0]"),
    (softplus, Softplus, "log(1 + e^x), without overflow.", "[-200.0, 100.0]", "[0.0, 100.0]"),
    (erf, Erf, "The error function.", "[0.0]", "[0.0]"),
    (floor, Floor, "Rounded down; its gradient is 0.", "[1.7, -1.2]", "[1.0, -2.0]"),
    (ceil, Ceil, "Rounded up; its gradient is 0.", "[1.2, -1.7]", "[2.0, -1.0]"),
    (trunc, Trunc, "Rounded towards zero; its gradient is 0.", "[1.7, -1.7]", "[1.0, -1.0]"),
    (logical_not, LogicalNot, "Whether x is 0 or false.", "[0.0, 2.0]", "[True, False]"),
    (bitwise_not, BitNot, "Every bit turned, of integers or bools.", "[0, 5]", "[-1, -6]"),
    (isnan, IsNan, "Whether x is NaN.", "[1.0, float('nan')]", "[False, True]"),
    (isfinite, IsFinite, "Whether x is neither NaN nor infinite.", "[1.0, float('inf')]", "[True, False]"),
    (isinf, IsInf, "Whether x is infinite.", "[1.0, float('-inf')]", "[False, True]"),
}

/// Functions of two tensors that broadcast: name, kind, method, what it computes, an example's arguments and its result.
macro_rules! binary_functions {
    ($(($name:ident, $kind:ident, $method:ident, $what:literal, $given:literal, $result:literal)),* $(,)?) => {
        $(
            #[doc = concat!($what, "\n\nx1, x2: tensors, arrays or numbers whose shapes broadcast; dtypes promote, Python numbers adapt. Raises ValueError if shapes do\nnot broadcast, TypeError for what is no array or has the wrong dtype.\n\n>>> import agtape as ag\n>>> ag.", stringify!($name), "(", $given, ").tolist()\n", $result)]
            #[pyfunction]
            pub fn $name(x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
                let (a, b) = (operand(stringify!($name), x1)?, operand(stringify!($name), x2)?);
                Ok(apply(stringify!($name), B::$kind, a, b)?.into())
            }
        )*

        #[pymethods]
        impl PyTensor {
            $(
                #[doc = concat!($what, " See `ag.", stringify!($name), "`.")]
                fn $method(&self, other: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
                    let b = operand(stringify!($method), other)?;
                    Ok(apply(stringify!($method), B::$kind, Operand::Tensor(self.tensor()), b)?.into())
                }
            )*
        }

        fn register_binary(m: &Bound<'_, PyModule>) -> PyResult<()> {
            functions!(m; $($name),*);
            Ok(())
        }
    };
}

binary_functions! {
    (add, Add, add, "x1 + x2; logical or of bools.", "ag.tensor([1.0, 2.0]), 1", "[2.0, 3.0]"),
    (subtract, Sub, sub, "x1 - x2.", "ag.tensor([1.0, 2.0]), 1", "[0.0, 1.0]"),
    (multiply, Mul, mul, "x1 * x2; logical and of bools.", "ag.tensor([1.0, 2.0]), 3", "[3.0, 6.0]"),
    (divide, Div, div, "x1 / x2; integers become float32.", "ag.tensor([1, 2]), 2", "[0.5, 1.0]"),
    (floor_divide, FloorDiv, floor_divide, "x1 / x2 rounded down; 0 for an integer divided by 0.", "ag.tensor([7, -7]), 2", "[3, -4]"),
    (remainder, Rem, remainder, "What x1 // x2 leaves, with the sign of x2.", "ag.tensor([7, -7]), 4", "[3, 1]"),
    (maximum, Maximum, maximum, "The larger; NaN if either is. Ties split the gradient evenly.", "ag.tensor([1.0, 5.0]), 2", "[2.0, 5.0]"),
    (minimum, Minimum, minimum, "The smaller; NaN if either is. Ties split the gradient evenly.", "ag.tensor([1.0, 5.0]), 2", "[1.0, 2.0]"),
    (arctan2, Arctan2, arctan2, "The angle of the point (x2, x1).", "ag.tensor([0.0]), ag.tensor([1.0])", "[0.0]"),
    (equal, Eq, eq, "x1 == x2.", "ag.tensor([1, 2]), 2", "[False, True]"),
    (not_equal, Ne, ne, "x1 != x2.", "ag.tensor([1, 2]), 2", "[True, False]"),
    (less, Lt, lt, "x1 < x2.", "ag.tensor([1, 2]), 2", "[True, False]"),
    (less_equal, Le, le, "x1 <= x2.", "ag.tensor([1, 2]), 1", "[True, False]"),
    (greater, Gt, gt, "x1 > x2.", "ag.tensor([1, 2]), 1", "[False, True]"),
    (greater_equal, Ge, ge, "x1 >= x2.", "ag.tensor([1, 2]), 2", "[False, True]"),
    (bitwise_and, And, bitwise_and, "The bits that both have, of integers or bools.", "ag.tensor([6]), 3", "[2]"),
    (bitwise_or, Or, bitwise_or, "The bits that either has, of integers or bools.", "ag.tensor([6]), 3", "[7]"),
    (bitwise_xor, Xor, bitwise_xor, "The bits that only one has, of integers or bools.", "ag.tensor([6]), 3", "[5]"),
    (bitwise_left_shift, Shl, bitwise_left_shift, "Integer x1 shifted left by x2 bits.", "ag.tensor([3]), 2", "[12]"),
    (bitwise_right_shift, Shr, bitwise_right_shift, "Integer x1 shifted right by x2 bits, its sign kept.", "ag.tensor([12]), 2", "[3]"),
}

/// x1 to the power of x2; integers to integer powers stay integers.
///
/// x1, x2: tensors, arrays or numbers whose shapes broadcast. Raises ValueError if shapes do not broadcast.
///
/// >>> import agtape as ag
/// >>> ag.pow(ag.tensor([2.0, 3.0]), 2).tolist()
/// [4.0, 9.0]
#[pyfunction]
pub fn pow(x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    match (operand("pow", x1)?, operand("pow", x2)?) {
        (Operand::Tensor(a), b) => power(&a.into(), b),
        (a, b) => Ok(apply("pow", B::Pow, a, b)?.into()),
    }
}

/// The Gaussian error linear unit, x * Phi(x); approximate="tanh" for its common approximation.
///
/// x: a tensor or array of any shape. Raises ValueError for another word than "none" or "tanh".
///
/// >>> import agtape as ag
/// >>> ag.gelu(ag.tensor([0.0, 100.0])).tolist()
/// [0.0, 100.0]
#[pyfunction]
#[pyo3(signature = (x, approximate = Word::Is("none")), text_signature = "(x, approximate=\"none\")")]
pub fn gelu(x: &Bound<'_, PyAny>, approximate: Word<'_>) -> PyResult<PyTensor> {
    let kind = approximate.among("gelu", "approximate", &[("none", U::Gelu), ("tanh", U::GeluTanh)])?;
    Ok(unary(kind, &array("gelu", x)?)?.into())
}

/// Rounded half to even, to so many decimals; its gradient is 0.
///
/// x: a tensor or array of any shape. Raises TypeError for anything else.
///
/// >>> import agtape as ag
/// >>> ag.round(ag.tensor([0.5, 1.5, -1.7])).tolist()
/// [0.0, 2.0, -2.0]
#[pyfunction]
#[pyo3(signature = (x, decimals = Int::Is(0)), text_signature = "(x, decimals=0)")]
pub fn round(x: &Bound<'_, PyAny>, decimals: Int<'_>) -> PyResult<PyTensor> {
    // Beyond these no float and no integer has a digit.
    let decimals = decimals.of("round", "decimals")?.clamp(-1000, 1000) as i32;
    let x = array("round", x)?;
    if decimals == 0 || decimals > 0 && !x.dtype().is_float() {
        return Ok(unary(U::Round, &x)?.into());
    }
    if !x.dtype().is_float() {
        return Ok(round_to_tens(&x, decimals.unsigned_abs())?.into());
    }
    // The scale of a 16-bit float would overflow, or be rounded itself.
    let wide = x.dtype().compute();
    let scale = scalar(10f64.powi(decimals.abs()), wide);
    let y = cast(&x, wide);
    let y = if decimals > 0 {
        div(&unary(U::Round, &mul(&y, &scale)?)?, &scale)?
    } else {
        mul(&unary(U::Round, &div(&y, &scale)?)?, &scale)?
    };
    Ok(cast(&y, x.dtype()).into())
}

/// `clip`, under one of its names.
fn bounds<'py>(
    op: &str,
    x: &Bound<'py, PyAny>,
    min: Option<&Bound<'py, PyAny>>,
    max: Option<&Bound<'py, PyAny>>,
) -> PyResult<PyTensor> {
    let mut y = array(op, x)?;
    if let Some(low) = min {
        let low = operand(op, low)?.bound(op, y.dtype())?;
        y = binary(B::Maximum, &y, &low)?;
    }
    if let Some(high) = max {
        let high = operand(op, high)?.bound(op, y.dtype())?;
        y = binary(B::Minimum, &y, &high)?;
    }
    Ok(y.into())
}

/// Kept between min and max, each None, a number or a tensor that broadcasts.
///
/// x: a tensor or array. Raises ValueError if shapes do not broadcast.
///
/// >>> import agtape as ag
/// >>> ag.clip(ag.tensor([-1.0, 0.5, 9.0]), 0, 1).tolist()
/// [0.0, 0.5, 1.0]
#[pyfunction]
#[pyo3(signature = (x, min = None, max = None))]
pub fn clip(x: &Bound<'_, PyAny>, min: Option<Bound<'_, PyAny>>, max: Option<Bound<'_, PyAny>>) -> PyResult<PyTensor> {
    bounds("clip", x, min.as_ref(), max.as_ref())
}

/// x1 where the condition holds, else x2; the three broadcast. With the condition alone, the positions where it holds (`ag.nonzero`).
///
/// condition: bools, or numbers that are true unless 0. Raises ValueError if shapes do not broadcast.
///
/// >>> import agtape as ag
/// >>> ag.where(ag.tensor([True, False]), ag.tensor([1.0, 2.0]), 0).tolist()
/// [1.0, 0.0]
#[pyfunction(name = "where")]
#[pyo3(signature = (condition, x1 = None, x2 = None))]
pub fn where_<'py>(
    condition: &Bound<'py, PyAny>,
    x1: Option<Bound<'py, PyAny>>,
    x2: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = condition.py();
    match (x1, x2) {
        (Some(a), Some(b)) => {
            let (a, b) = (operand("where", &a)?, operand("where", &b)?);
            Ok(Bound::new(py, select_any(operand("where", condition)?, a, b)?)?.into_any())
        }
        (None, None) => Ok(super::indexing::nonzero(condition)?.into_any()),
        _ => Err(PyValueError::new_err("where: got one of x1 and x2; expected both or neither")),
    }
}

/// The largest finite number of a float type.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.389_531_389_251_535_5e38,
        DType::F64 => f64::MAX,
        _ => f64::from(f32::MAX),
    }
}

/// NaN replaced by a number, infinities by others (the largest finite ones by default).
///
/// x: a tensor or array of any shape; integers stay as they are.
///
/// >>> import agtape as ag
/// >>> ag.nan_to_num(ag.tensor([1.0, float("nan"), float("inf")]), posinf=9.0).tolist()
/// [1.0, 0.0, 9.0]
#[pyfunction]
#[pyo3(signature = (x, nan = Real::Is(0.0), posinf = None, neginf = None), text_signature = "(x, nan=0.0, posinf=None, neginf=None)")]
pub fn nan_to_num(x: &Bound<'_, PyAny>, nan: Real<'_>, posinf: Option<Real<'_>>, neginf: Option<Real<'_>>) -> PyResult<PyTensor> {
    let op = "nan_to_num";
    let (nan, posinf, neginf) = (nan.of(op, "nan")?, posinf.of(op, "posinf")?, neginf.of(op, "neginf")?);
    let x = array(op, x)?;
    if !x.dtype().is_float() {
        return Ok(x.into());
    }
    let c = |v: f64| scalar(v, x.dtype());
    let top = largest(x.dtype());
    let y = select(&unary(U::IsNan, &x)?, &c(nan), &x)?;
    let y = select(&binary(B::Eq, &x, &c(f64::INFINITY))?, &c(posinf.unwrap_or(top)), &y)?;
    Ok(select(&binary(B::Eq, &x, &c(f64::NEG_INFINITY))?, &c(neginf.unwrap_or(-top)), &y)?.into())
}

/// log(e^x1 + e^x2), without overflow; the shapes broadcast.
///
/// >>> import agtape as ag
/// >>> ag.logaddexp(ag.tensor([-float("inf"), 500.0]), 0.0).tolist()
/// [0.0, 500.0]
#[pyfunction]
pub fn logaddexp(x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let (a, b) = Operand::pair_of_floats("logaddexp", operand("logaddexp", x1)?, operand("logaddexp", x2)?)?;
    Ok(logsumexp(&stack(&broadcast_all(&[a, b])?, 0)?, Some(&[0]), false)?.into())
}

#[pymethods]
impl PyTensor {
    /// x to a power. See `ag.pow`.
    fn pow(&self, exponent: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        power(self, operand("pow", exponent)?)
    }

    /// The Gaussian error linear unit. See `ag.gelu`.
    #[pyo3(signature = (approximate = Word::Is("none")), text_signature = "($self, approximate=\"none\")")]
    fn gelu(slf: &Bound<'_, PyTensor>, approximate: Word<'_>) -> PyResult<PyTensor> {
        gelu(slf.as_any(), approximate)
    }

    /// Rounded half to even, to so many decimals. See `ag.round`.
    #[pyo3(signature = (decimals = Int::Is(0)), text_signature = "($self, decimals=0)")]
    fn round(slf: &Bound<'_, PyTensor>, decimals: Int<'_>) -> PyResult<PyTensor> {
        round(slf.as_any(), decimals)
    }

    #[pyo3(signature = (decimals = None))]
    fn __round__(slf: &Bound<'_, PyTensor>, decimals: Option<Int<'_>>) -> PyResult<PyTensor> {
        round(slf.as_any(), decimals.unwrap_or(Int::Is(0)))
    }

    /// The tensor where the condition holds, else other. See `ag.where`.
    #[pyo3(name = "where")]
    fn where_holds(&self, condition: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let other = operand("where", other)?;
        select_any(operand("where", condition)?, Operand::Tensor(self.tensor()), other)
    }

    /// Kept between min and max. See `ag.clip`.
    #[pyo3(signature = (min = None, max = None))]
    fn clip(slf: &Bound<'_, PyTensor>, min: Option<Bound<'_, PyAny>>, max: Option<Bound<'_, PyAny>>) -> PyResult<PyTensor> {
        bounds("clip", slf.as_any(), min.as_ref(), max.as_ref())
    }

    /// Kept between min and max, PyTorch's name of `clip`.
    #[pyo3(signature = (min = None, max = None))]
    fn clamp(slf: &Bound<'_, PyTensor>, min: Option<Bound<'_, PyAny>>, max: Option<Bound<'_, PyAny>>) -> PyResult<PyTensor> {
        bounds("clamp", slf.as_any(), min.as_ref(), max.as_ref())
    }

    /// NaN and infinities replaced. See `ag.nan_to_num`.
    #[pyo3(signature = (nan = Real::Is(0.0), posinf = None, neginf = None), text_signature = "($self, nan=0.0, posinf=None, neginf=None)")]
    fn nan_to_num(
        slf: &Bound<'_, PyTensor>,
        nan: Real<'_>,
        posinf: Option<Real<'_>>,
        neginf: Option<Real<'_>>,
    ) -> PyResult<PyTensor> {
        nan_to_num(slf.as_any(), nan, posinf, neginf)
    }
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_unary(m)?;
    register_binary(m)?;
    functions!(m; pow, gelu, round, clip, where_, nan_to_num, logaddexp);
    Ok(())
}
