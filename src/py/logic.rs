//! Logic and comparisons of whole tensors.
// PyO3's generated wrappers are unsafe functions; inside macro_rules their hygiene hides the lint's own exemption.
#![allow(unsafe_op_in_unsafe_fn)]
use super::arguments::{Checked, Real, operand};
use super::export;
use super::flags::Flag;
use super::operand::{Operand, apply};
use super::tensor::PyTensor;
use crate::backend::kind::BinaryKind as B;
use crate::backend::kind::ReduceKind;
use crate::backend::kind::UnaryKind as U;
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::graph::Tensor;
use crate::ops::binary::{add, binary, host_scalar, mul, scalar, sub};
use crate::ops::reduce::reduce;
use crate::ops::unary::{cast, unary};
use pyo3::prelude::*;

/// Truth values: unequal to zero.
fn truth(t: &Tensor) -> Result<Tensor> {
    if t.dtype() == DType::Bool { Ok(t.clone()) } else { binary(B::Ne, t, &host_scalar(Scalar::Int(0), t.dtype())) }
}

/// Logic of two tensors: name, kind, what it computes and an example's result for (true, false) and (true, true).
macro_rules! logic_functions {
    ($(($name:ident, $kind:ident, $what:literal, $result:literal)),* $(,)?) => {
        $(
            #[doc = concat!($what, "\n\nx1, x2: tensors, arrays or numbers whose shapes broadcast; numbers are true unless 0. Raises ValueError if shapes do not broadcast.\n\n>>> import agtape as ag\n>>> ag.", stringify!($name), "(ag.tensor([True, True]), ag.tensor([False, True])).tolist()\n", $result)]
            #[pyfunction]
            pub fn $name(x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
                let of = |x: &Bound<'_, PyAny>| PyResult::Ok(truth(&operand(stringify!($name), x)?.truth().alone(stringify!($name))?)?);
                Ok(binary(B::$kind, &of(x1)?, &of(x2)?)?.into())
            }
        )*

        #[pymethods]
        impl PyTensor {
            $(
                #[doc = concat!($what, " See `ag.", stringify!($name), "`.")]
                fn $name(&self, other: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
                    let b = operand(stringify!($name), other)?.truth().alone(stringify!($name))?;
                    Ok(binary(B::$kind, &truth(&self.tensor())?, &truth(&b)?)?.into())
                }
            )*
        }

        fn register_logic(m: &Bound<'_, PyModule>) -> PyResult<()> {
            functions!(m; $($name),*);
            Ok(())
        }
    };
}

logic_functions! {
    (logical_and, And, "Whether both are true.", "[False, True]"),
    (logical_or, Or, "Whether either is true.", "[True, True]"),
    (logical_xor, Xor, "Whether just one is true.", "[True, False]"),
}

fn close(a: &Tensor, b: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
    let wide = DType::promote(a.dtype(), b.dtype()).to_float().compute();
    let (a, b) = (cast(a, wide), cast(b, wide));
    let allowed = add(&scalar(atol, wide), &mul(&scalar(rtol, wide), &unary(U::Abs, &b)?)?)?;
    let near = binary(B::Le, &unary(U::Abs, &sub(&a, &b)?)?, &allowed)?;
    let near = binary(B::And, &near, &unary(U::IsFinite, &b)?)?;
    let mut y = binary(B::Or, &near, &binary(B::Eq, &a, &b)?)?;
    if equal_nan {
        y = binary(B::Or, &y, &binary(B::And, &unary(U::IsNan, &a)?, &unary(U::IsNan, &b)?)?)?;
    }
    Ok(y)
}

/// How far numbers may lie apart, as given: `rtol`, `atol` and `equal_nan`.
type Tolerance<'py> = (Real<'py>, Real<'py>, Flag<'py>);

fn are_close(op: &str, x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>, (rtol, atol, equal_nan): Tolerance<'_>) -> PyResult<Tensor> {
    let (rtol, atol) = (rtol.of(op, "rtol")?, atol.of(op, "atol")?);
    let equal_nan = equal_nan.of(op, "equal_nan")?;
    let (a, b) = Operand::pair_of_floats(op, operand(op, x1)?, operand(op, x2)?)?;
    Ok(close(&a, &b, rtol, atol, equal_nan)?)
}

/// Whether |x1 - x2| <= atol + rtol |x2|, elementwise; the shapes broadcast.
///
/// >>> import agtape as ag
/// >>> ag.isclose(ag.tensor([1.0, 1.1]), 1.0).tolist()
/// [True, False]
#[pyfunction]
#[pyo3(signature = (x1, x2, rtol = Real::Is(1e-5), atol = Real::Is(1e-8), equal_nan = Flag::Is(false)), text_signature = "(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False)")]
pub fn isclose(
    x1: &Bound<'_, PyAny>,
    x2: &Bound<'_, PyAny>,
    rtol: Real<'_>,
    atol: Real<'_>,
    equal_nan: Flag<'_>,
) -> PyResult<PyTensor> {
    Ok(are_close("isclose", x1, x2, (rtol, atol, equal_nan))?.into())
}

fn is_all(py: Python<'_>, t: &Tensor) -> PyResult<bool> {
    export::numpy(py, &reduce(ReduceKind::All, t, None, false)?)?.call_method0("item")?.extract()
}

/// Whether all elements are close (see `ag.isclose`); reads the values.
///
/// >>> import agtape as ag
/// >>> ag.allclose(ag.tensor([1.0]), ag.tensor([1.0 + 1e-7]))
/// True
#[pyfunction]
#[pyo3(signature = (x1, x2, rtol = Real::Is(1e-5), atol = Real::Is(1e-8), equal_nan = Flag::Is(false)), text_signature = "(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False)")]
pub fn allclose(
    x1: &Bound<'_, PyAny>,
    x2: &Bound<'_, PyAny>,
    rtol: Real<'_>,
    atol: Real<'_>,
    equal_nan: Flag<'_>,
) -> PyResult<bool> {
    is_all(x1.py(), &are_close("allclose", x1, x2, (rtol, atol, equal_nan))?)
}

/// Whether shapes and all elements are equal; reads the values.
///
/// >>> import agtape as ag
/// >>> ag.array_equal(ag.tensor([1, 2]), [1, 2])
/// True
#[pyfunction]
pub fn array_equal(x1: &Bound<'_, PyAny>, x2: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (a, b) = (operand("array_equal", x1)?, operand("array_equal", x2)?);
    Ok(a.shape() == b.shape() && is_all(x1.py(), &apply("array_equal", B::Eq, a, b)?)?)
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_logic(m)?;
    functions!(m; isclose, allclose, array_equal);
    Ok(())
}
