//! Elementwise ops of two inputs, and `where`: broadcasting, dtype promotion, saved set and gradient.
use super::rule::{Ctx, Grads, Rule, make, only};
use super::transfer::one_device;
use super::unary::{cast, unary, zeros_like};
use crate::backend::kind::BinaryKind::{self, *};
use crate::backend::kind::UnaryKind as U;
use crate::backend::op::Op;
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Saved, Spec, Tensor};
use crate::shape::broadcast;
use smallvec::smallvec;

/// A number as a tensor without axes; its value is an argument of the plan.
pub fn scalar(value: f64, dtype: DType) -> Tensor {
    host_scalar(Scalar::Float(value), dtype)
}

/// A Python number as a tensor without axes.
pub fn host_scalar(value: Scalar, dtype: DType) -> Tensor {
    make(Op::Const, smallvec![value.to_arg(dtype)], smallvec![], Spec::new(&[], dtype))
}

/// a + b
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(Add, a, b)
}

/// a - b
pub fn sub(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(Sub, a, b)
}

/// a * b
pub fn mul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(Mul, a, b)
}

/// a / b
pub fn div(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary(Div, a, b)
}

/// The dtype both inputs are converted to.
fn common(kind: BinaryKind, a: DType, b: DType) -> Result<DType> {
    let both = DType::promote(a, b);
    let refuse = |wanted: &str| Err(Error::dtype(kind.name(), format!("got {a} and {b}; expected {wanted}")));
    match kind {
        Sub if both == DType::Bool => refuse("numbers (use logical_xor, or astype first)"),
        Div | Arctan2 => Ok(both.to_float()),
        And | Or | Xor if both.is_float() => refuse("integers or bools"),
        Shl | Shr if !both.is_int() => refuse("integers"),
        // NumPy's type of a power or quotient of bools; the smallest integer type here is uint8.
        Pow | FloorDiv | Rem if both == DType::Bool => Ok(DType::U8),
        _ => Ok(both),
    }
}

/// Applies an elementwise op of two inputs.
pub fn binary(kind: BinaryKind, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    binary_of(kind, a.clone(), b.clone())
}

/// `binary` of inputs that nobody else needs.
pub fn binary_of(kind: BinaryKind, a: Tensor, b: Tensor) -> Result<Tensor> {
    one_device(kind.name(), &[&a, &b])?;
    let (a, b) = if a.dtype() == b.dtype() && a.dtype().is_float() {
        (a, b)
    } else {
        let dtype = common(kind, a.dtype(), b.dtype())?;
        (cast(&a, dtype), cast(&b, dtype))
    };
    if matches!(kind, And | Or | Xor | Shl | Shr) && a.dtype().is_float() {
        common(kind, a.dtype(), b.dtype())?;
    }
    let dtype = if kind.gives_bool() { DType::Bool } else { a.dtype() };
    let shape = if a.shape() == b.shape() { a.spec().shape.clone() } else { broadcast(kind.name(), a.shape(), b.shape())? };
    Ok(make(Op::Binary(kind), smallvec![], smallvec![a, b], Spec { shape, dtype }))
}

/// The rule of the binary family.
pub struct Binary;

fn kind_of(op: &Op) -> Result<BinaryKind> {
    match op {
        Op::Binary(k) => Ok(*k),
        _ => Err(Error::Internal("binary rule")),
    }
}

/// Saves these inputs.
const fn inputs(mask: u32) -> Option<Saved> {
    Some(Saved { inputs: mask, outputs: 0 })
}

impl Rule for Binary {
    fn saves(&self, op: &Op, needs: u32) -> Option<Saved> {
        // Of two factors, each needs the other one.
        let crossed = (needs & 1) << 1 | needs >> 1 & 1;
        match kind_of(op).ok()? {
            Add | Sub => inputs(0),
            Mul => inputs(crossed),
            // g / b for a; -g a / b^2 for b.
            Div => inputs(if needs & 2 != 0 { 3 } else { 2 }),
            FloorDiv => inputs(0),
            Rem => inputs(if needs & 2 != 0 { 3 } else { 0 }),
            Pow | Maximum | Minimum | Arctan2 => inputs(3),
            ReluGrad => inputs(2),
            Eq | Ne | Lt | Le | Gt | Ge | And | Or | Xor | Shl | Shr => None,
        }
    }

    /// With incoming g and inputs a, b. Gradients have the broadcast shape; the walk sums them down.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let kind = kind_of(ctx.op())?;
        let a = || ctx.input(0);
        let b = || ctx.input(1);
        let want = |i: usize, f: &dyn Fn() -> Result<Tensor>| if ctx.needs(i) { f().map(Some) } else { Ok(None) };
        let c = |v: f64| scalar(v, g.dtype());
        Ok(match kind {
            Add => smallvec![Some(g.clone()), Some(g.clone())],
            Sub => smallvec![Some(g.clone()), want(1, &|| unary(U::Neg, g))?],
            Mul => smallvec![want(0, &|| mul(g, b()?))?, want(1, &|| mul(g, a()?))?],
            Div => smallvec![
                want(0, &|| div(g, b()?))?,
                want(1, &|| unary(U::Neg, &div(&mul(g, a()?)?, &unary(U::Square, b()?)?)?))?
            ],
            // Piecewise constant.
            FloorDiv => smallvec![Some(zeros_like(g)), Some(zeros_like(g))],
            // a - floor(a / b) b: 1 for a, -floor(a / b) for b.
            Rem => smallvec![Some(g.clone()), want(1, &|| unary(U::Neg, &mul(g, &binary(FloorDiv, a()?, b()?)?)?))?],
            Pow => smallvec![want(0, &|| pow_base(g, a()?, b()?))?, want(1, &|| pow_exponent(g, a()?, b()?))?],
            // Ties are split evenly.
            Maximum | Minimum => {
                let (first, second) = if kind == Maximum { (Gt, Lt) } else { (Lt, Gt) };
                let share = |over: BinaryKind| -> Result<Tensor> {
                    let tie = select(&binary(Eq, a()?, b()?)?, &c(0.5), &c(0.0))?;
                    mul(g, &select(&binary(over, a()?, b()?)?, &c(1.0), &tie)?)
                };
                smallvec![want(0, &|| share(first))?, want(1, &|| share(second))?]
            }
            // b / (a^2 + b^2) for a, -a / (a^2 + b^2) for b.
            Arctan2 => {
                let norm = || add(&unary(U::Square, a()?)?, &unary(U::Square, b()?)?);
                smallvec![
                    want(0, &|| mul(g, &div(b()?, &norm()?)?))?,
                    want(1, &|| unary(U::Neg, &mul(g, &div(a()?, &norm()?)?)?))?
                ]
            }
            // Linear in a; piecewise constant in b.
            ReluGrad => smallvec![want(0, &|| binary(ReluGrad, g, b()?))?, want(1, &|| Ok(zeros_like(g)))?],
            Eq | Ne | Lt | Le | Gt | Ge | And | Or | Xor | Shl | Shr => {
                return Err(Error::state(kind.name(), "this op has no gradient"));
            }
        })
    }
}

/// g b a^(b - 1); 0 where b is 0, also at a = 0.
fn pow_base(g: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let zero = scalar(0.0, g.dtype());
    let slope = mul(b, &binary(Pow, a, &sub(b, &scalar(1.0, g.dtype()))?)?)?;
    mul(g, &select(&binary(Eq, b, &zero)?, &zero, &slope)?)
}

/// g a^b log a; 0 where a is 0 and b is not negative.
fn pow_exponent(g: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let zero = scalar(0.0, g.dtype());
    let is_flat = binary(And, &binary(Eq, a, &zero)?, &binary(Ge, b, &zero)?)?;
    // The logarithm of a safe base: an infinity times zero would be NaN in the second derivative.
    let base = select(&is_flat, &scalar(1.0, g.dtype()), a)?;
    let slope = mul(&binary(Pow, a, b)?, &unary(U::Log, &base)?)?;
    mul(g, &select(&is_flat, &zero, &slope)?)
}

/// `where`: a where the condition holds, else b.
pub fn select(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    one_device("where", &[condition, a, b])?;
    if condition.dtype() != DType::Bool {
        return Err(Error::dtype("where", format!("the condition is {}; expected bool", condition.dtype())));
    }
    let dtype = DType::promote(a.dtype(), b.dtype());
    let values = broadcast("where", a.shape(), b.shape())?;
    let shape = broadcast("where", condition.shape(), &values)?;
    let inputs = smallvec![condition.clone(), cast(a, dtype), cast(b, dtype)];
    Ok(make(Op::Where, smallvec![], inputs, Spec { shape, dtype }))
}

/// The rule of `where`: g where the condition holds for a, elsewhere for b.
pub struct Where;

impl Rule for Where {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        inputs(1)
    }

    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let condition = ctx.input(0)?;
        let zero = scalar(0.0, g.dtype());
        let a = if ctx.needs(1) { Some(select(condition, g, &zero)?) } else { None };
        let b = if ctx.needs(2) { Some(select(condition, &zero, g)?) } else { None };
        Ok(smallvec![None, a, b])
    }
}
