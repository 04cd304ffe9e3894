//! Elementwise ops of one input: shape rule, saved set and gradient.
use super::binary::{add, binary, div, host_scalar, mul, scalar, sub};
use super::rule::{Ctx, Grads, Rule, grads, make, only};
use crate::backend::kind::BinaryKind as B;
use crate::backend::kind::UnaryKind::{self, *};
use crate::backend::op::Op;
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Saved, Spec, Tensor};
use smallvec::smallvec;

/// Applies an elementwise op; integers become float32 where the op is not defined for them.
pub fn unary(kind: UnaryKind, x: &Tensor) -> Result<Tensor> {
    let dtype = x.dtype();
    if matches!(kind, Neg | Sign | Square) && dtype == DType::Bool {
        return Err(Error::dtype(kind.name(), "got bool; expected a number (use logical_not, or astype first)"));
    }
    if kind == BitNot && dtype.is_float() {
        return Err(Error::dtype(kind.name(), format!("got {dtype}; expected an integer or bool")));
    }
    let x = if kind.takes_ints() { x.clone() } else { cast(x, dtype.to_float()) };
    if !dtype.is_float() && matches!(kind, Floor | Ceil | Round | Trunc) || dtype == DType::Bool && matches!(kind, Abs | Relu) {
        return Ok(x);
    }
    let out = if kind.gives_bool() { DType::Bool } else { x.dtype() };
    let spec = Spec::new(x.shape(), out);
    Ok(make(Op::Unary(kind), smallvec![], smallvec![x], spec))
}

/// To another dtype; the tensor itself if it has that dtype.
pub fn cast(x: &Tensor, dtype: DType) -> Tensor {
    if x.dtype() == dtype {
        return x.clone();
    }
    make(Op::Cast, smallvec![], smallvec![x.clone()], Spec::new(x.shape(), dtype))
}

/// Integers to the nearest multiple of 10^n, halves to even multiples.
pub fn round_to_tens(x: &Tensor, n: u32) -> Result<Tensor> {
    let int = |i: i64| host_scalar(Scalar::Int(i), DType::I64);
    // Beyond int64 everything is nearer to 0.
    let Some(scale) = 10i64.checked_pow(n) else { return mul(x, &cast(&int(0), x.dtype())) };
    let y = cast(x, DType::I64);
    let tens = binary(B::FloorDiv, &y, &int(scale))?;
    let rest = sub(&y, &mul(&tens, &int(scale))?)?;
    let is_odd = binary(B::Eq, &binary(B::And, &tens, &int(1))?, &int(1))?;
    let half = int(scale / 2);
    let is_up = binary(B::Or, &binary(B::Gt, &rest, &half)?, &binary(B::And, &binary(B::Eq, &rest, &half)?, &is_odd)?)?;
    Ok(cast(&mul(&add(&tens, &cast(&is_up, DType::I64))?, &int(scale))?, x.dtype()))
}

const IN: Option<Saved> = Some(Saved { inputs: 1, outputs: 0 });
const OUT: Option<Saved> = Some(Saved { inputs: 0, outputs: 1 });
const NOTHING: Option<Saved> = Some(Saved { inputs: 0, outputs: 0 });

/// The rule of the unary family.
pub struct Unary;

fn kind_of(op: &Op) -> Result<UnaryKind> {
    match op {
        Op::Unary(k) => Ok(*k),
        _ => Err(Error::Internal("unary rule")),
    }
}

impl Rule for Unary {
    fn saves(&self, op: &Op, _needs: u32) -> Option<Saved> {
        match kind_of(op).ok()? {
            Neg => NOTHING,
            Sqrt | Rsqrt | Reciprocal | Exp | Expm1 | Tan | Tanh | Sigmoid | Relu => OUT,
            Abs | Square | Log | Log1p | Log2 | Log10 | Sin | Cos | Arcsin | Arccos | Arctan | Sinh | Cosh | Arcsinh
            | Arccosh | Arctanh | GeluTanh | Gelu | Silu | GeluTanhSlope | GeluSlope | SiluSlope | Softplus | Erf => IN,
            // Piecewise constant: the gradient is zero almost everywhere, so nothing is recorded (as in JAX, it is a true zero).
            Sign | Floor | Ceil | Round | Trunc => NOTHING,
            LogicalNot | BitNot | IsNan | IsFinite | IsInf => None,
        }
    }

    /// With incoming g, input x and output y.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let kind = kind_of(ctx.op())?;
        let x = || ctx.input(0);
        let y = || ctx.output(0);
        let c = |v: f64| scalar(v, g.dtype());
        let one_plus_square = |sign: f64| -> Result<Tensor> {
            let square = unary(Square, x()?)?;
            if sign > 0.0 { add(&c(1.0), &square) } else { sub(&c(1.0), &square) }
        };
        grads(match kind {
            Neg => unary(Neg, g)?,
            // 0 at 0.
            Abs => mul(g, &unary(Sign, x()?)?)?,
            // Zero of g's shape; NaN stays out of it.
            Sign | Floor | Ceil | Round | Trunc => zeros_like(g),
            Square => mul(g, &mul(&c(2.0), x()?)?)?,
            // g / (2 y)
            Sqrt => div(g, &mul(&c(2.0), &y()?)?)?,
            // -g y^3 / 2
            Rsqrt => mul(&mul(&c(-0.5), g)?, &mul(&y()?, &unary(Square, &y()?)?)?)?,
            // -g y^2
            Reciprocal => unary(Neg, &mul(g, &unary(Square, &y()?)?)?)?,
            Exp => mul(g, &y()?)?,
            Expm1 => mul(g, &add(&y()?, &c(1.0))?)?,
            Log => div(g, x()?)?,
            Log1p => div(g, &add(x()?, &c(1.0))?)?,
            Log2 => div(g, &mul(x()?, &c(std::f64::consts::LN_2))?)?,
            Log10 => div(g, &mul(x()?, &c(std::f64::consts::LN_10))?)?,
            Sin => mul(g, &unary(Cos, x()?)?)?,
            Cos => unary(Neg, &mul(g, &unary(Sin, x()?)?)?)?,
            // g (1 + y^2)
            Tan => mul(g, &add(&c(1.0), &unary(Square, &y()?)?)?)?,
            Arcsin => mul(g, &unary(Rsqrt, &one_plus_square(-1.0)?)?)?,
            Arccos => unary(Neg, &mul(g, &unary(Rsqrt, &one_plus_square(-1.0)?)?)?)?,
            Arctan => div(g, &one_plus_square(1.0)?)?,
            Sinh => mul(g, &unary(Cosh, x()?)?)?,
            Cosh => mul(g, &unary(Sinh, x()?)?)?,
            // g (1 - y^2)
            Tanh => mul(g, &sub(&c(1.0), &unary(Square, &y()?)?)?)?,
            Arcsinh => mul(g, &unary(Rsqrt, &one_plus_square(1.0)?)?)?,
            Arccosh => mul(g, &unary(Rsqrt, &sub(&unary(Square, x()?)?, &c(1.0))?)?)?,
            Arctanh => div(g, &one_plus_square(-1.0)?)?,
            // g y (1 - y)
            Sigmoid => mul(g, &mul(&y()?, &sub(&c(1.0), &y()?)?)?)?,
            // 0 at 0; y > 0 exactly where x > 0.
            Relu => binary(B::ReluGrad, g, &y()?)?,
            GeluTanh => mul(g, &unary(GeluTanhSlope, x()?)?)?,
            Gelu => mul(g, &unary(GeluSlope, x()?)?)?,
            Silu => mul(g, &unary(SiluSlope, x()?)?)?,
            GeluTanhSlope => mul(g, &gelu_tanh_bend(x()?)?)?,
            GeluSlope => mul(g, &gelu_bend(x()?)?)?,
            SiluSlope => mul(g, &silu_bend(x()?)?)?,
            Softplus => mul(g, &unary(Sigmoid, x()?)?)?,
            Erf => mul(g, &erf_slope(x()?)?)?,
            LogicalNot | BitNot | IsNan | IsFinite | IsInf => return Err(Error::state(kind.name(), "this op has no gradient")),
        })
    }
}

/// A zero of the tensor's shape and dtype.
pub fn zeros_like(x: &Tensor) -> Tensor {
    make(Op::Const, smallvec![0], smallvec![], x.spec().clone())
}

/// Second derivative of x s with s = sigmoid(x): s (1 - s) (2 + x (1 - 2 s)).
fn silu_bend(x: &Tensor) -> Result<Tensor> {
    let c = |v: f64| scalar(v, x.dtype());
    let s = unary(Sigmoid, x)?;
    let slope = mul(&s, &sub(&c(1.0), &s)?)?;
    mul(&slope, &add(&c(2.0), &mul(x, &sub(&c(1.0), &mul(&c(2.0), &s)?)?)?)?)
}

/// Derivative of erf: 2 / sqrt(pi) e^(-x^2).
fn erf_slope(x: &Tensor) -> Result<Tensor> {
    let bell = unary(Exp, &unary(Neg, &unary(Square, x)?)?)?;
    mul(&scalar(std::f64::consts::FRAC_2_SQRT_PI, x.dtype()), &bell)
}

/// Second derivative of x (1 + tanh u) / 2 with u = a (x + b x^3), t = tanh u: (1 - t^2) (u' + x (u'' / 2 - t u'^2)).
fn gelu_tanh_bend(x: &Tensor) -> Result<Tensor> {
    let c = |v: f64| scalar(v, x.dtype());
    let (a, b) = ((2.0 / std::f64::consts::PI).sqrt(), 0.044715);
    let square = unary(Square, x)?;
    let t = unary(Tanh, &mul(&mul(&c(a), x)?, &add(&c(1.0), &mul(&c(b), &square)?)?)?)?;
    let du = mul(&c(a), &add(&c(1.0), &mul(&c(3.0 * b), &square)?)?)?;
    let inner = sub(&mul(&c(3.0 * a * b), x)?, &mul(&t, &unary(Square, &du)?)?)?;
    mul(&sub(&c(1.0), &unary(Square, &t)?)?, &add(&du, &mul(x, &inner)?)?)
}

/// Second derivative of x P(x) with the normal density p: p(x) (2 - x^2).
fn gelu_bend(x: &Tensor) -> Result<Tensor> {
    let c = |v: f64| scalar(v, x.dtype());
    let square = unary(Square, x)?;
    let scale = 0.5 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
    mul(&mul(&c(scale), &unary(Exp, &mul(&c(-0.5), &square)?)?)?, &sub(&c(2.0), &square)?)
}

/// The rule of `astype`: the gradient goes back in the input's dtype.
pub struct Cast;

impl Rule for Cast {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        NOTHING
    }

    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        grads(cast(only(grad_outs)?, ctx.spec(0).dtype))
    }
}
