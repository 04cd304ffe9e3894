//! Normalization of rows: layer norm and RMS norm, their gradient as an op of its own, and its gradient.
use super::binary::{add, mul, scalar, sub};
use super::reduce::{detach_like, reduce};
use super::rule::{Ctx, Grads, Rule, make_many, only};
use super::transfer::one_device;
use super::unary::{cast, unary};
use super::view::{broadcast_to, reshape_to};
use crate::backend::kind::ReduceKind::{Mean, Sum};
use crate::backend::kind::UnaryKind::{Neg, Rsqrt, Square};
use crate::backend::op::{NormForm, Op};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Saved, Spec, Tensor, scope};
use crate::shape::elems;
use smallvec::{SmallVec, smallvec};

/// What is normalized: x over its last `axes` axes.
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    /// The number of axes that make up a row, at least one.
    pub axes: usize,
    /// Divide by the root mean square and leave the mean.
    pub rms: bool,
    /// Added to the variance, or to the mean square.
    pub eps: f64,
}

impl Norm {
    const fn op(&self) -> &'static str {
        if self.rms { "rms_norm" } else { "layer_norm" }
    }
}

/// (x - mean) / sqrt(variance + eps) over the last axes, times weight plus bias, which have their shape. The result has the type that the
/// floats of all of them promote to; integers are float32.
pub fn norm(how: Norm, x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
    one_device(how.op(), &[Some(x), weight, bias].into_iter().flatten().collect::<Vec<_>>())?;
    let Some(first) = x.rank().checked_sub(how.axes).filter(|_| how.axes > 0) else {
        let message = format!("the input has shape {:?}; expected at least {} axes, and one to normalize", x.shape(), how.axes);
        return Err(Error::value(how.op(), message));
    };
    let row = &x.shape()[first..];
    for (name, t) in [("weight", weight), ("bias", bias)] {
        if let Some(t) = t.filter(|t| t.shape() != row) {
            return Err(Error::value(how.op(), format!("the {name} has shape {:?}; expected {row:?}", t.shape())));
        }
    }
    let n = elems(row);
    let all = [Some(x), weight, bias].into_iter().flatten();
    let dtype = all.fold(x.dtype().to_float(), |d, t| DType::promote(d, t.dtype()));
    let flat = |t: &Tensor| if how.axes == 1 { cast(t, dtype) } else { cast(&reshape_to(t, &[n]), dtype) };
    let mut rows: SmallVec<[usize; 4]> = SmallVec::from_slice(&x.shape()[..first]);
    let lead = rows.clone();
    rows.push(n);
    let form = NormForm { rms: how.rms, weight: weight.is_some(), bias: bias.is_some() };
    let mut inputs: SmallVec<[Tensor; 2]> = smallvec![cast(&reshape_to(x, &rows), dtype)];
    inputs.extend(weight.into_iter().chain(bias).map(flat));
    let statistic = Spec::new(&lead, dtype.compute());
    let mut specs: SmallVec<[Spec; 1]> = smallvec![Spec::new(&rows, dtype), statistic.clone()];
    if !how.rms {
        specs.push(statistic);
    }
    let outs = make_many(Op::LayerNorm(form), smallvec![how.eps.to_bits()], inputs, specs);
    Ok(reshape_to(&outs[0], x.shape()))
}

/// The same value as a constant: what depends on it is differentiated as what depends on x.
fn statistic(t: &Tensor) -> Tensor {
    if scope(|s| s.paused || s.tapes.is_empty()) { t.clone() } else { detach_like(t) }
}

/// The rule of normalizations.
pub struct LayerNorm;

/// The inputs' positions: x, weight and bias.
fn places(form: NormForm) -> [Option<usize>; 3] {
    let weight = form.weight.then_some(1);
    [Some(0), weight, form.bias.then_some(1 + usize::from(form.weight))]
}

impl Rule for LayerNorm {
    /// x, the statistics, and for the gradient of x the weight; nothing for that of the bias.
    fn saves(&self, op: &Op, needs: u32) -> Option<Saved> {
        let Op::LayerNorm(form) = op else { return None };
        let bias = places(*form)[2].map_or(0, |at| 1 << at);
        if needs & !bias == 0 {
            return Some(Saved { inputs: 0, outputs: 0 });
        }
        let weight = if form.weight && needs & 1 != 0 { 2 } else { 0 };
        Some(Saved { inputs: 1 | weight, outputs: if form.rms { 2 } else { 6 } })
    }

    /// With x' the normalized row, v = g weight and means over the row: rstd (v - mean(v) - x' mean(v x')) for x, without mean(v) where the
    /// mean stays; for weight and bias the sums over the rows of g x' and g.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let g = only(grad_outs)?;
        let Op::LayerNorm(form) = *ctx.op() else { return Err(Error::Internal("layer_norm rule")) };
        let places = places(form);
        let wants = places.map(|at| at.is_some_and(|at| ctx.needs(at)));
        let mut grads: Grads = smallvec![None; 1 + usize::from(form.weight) + usize::from(form.bias)];
        if wants == [false, false, true] {
            let lead: SmallVec<[i64; 4]> = (0..g.rank() as i64 - 1).collect();
            grads[places[2].unwrap_or(0)] = Some(reduce(Sum, g, Some(&lead), false)?);
            return Ok(grads);
        }
        let x = ctx.input(0)?;
        let has_weight = form.weight && wants[0];
        let mut inputs: SmallVec<[Tensor; 2]> = smallvec![g.clone(), x.clone()];
        if has_weight {
            inputs.push(ctx.input(1)?.clone());
        }
        for o in 1..if form.rms { 2 } else { 3 } {
            inputs.push(statistic(&ctx.output(o)?));
        }
        let wanted = wants.iter().rev().fold(0, |bits, &w| bits << 1 | u8::from(w));
        let specs = places.iter().zip(wants).filter(|(_, w)| *w).map(|(at, _)| ctx.spec(at.unwrap_or(0)).clone()).collect();
        let op = Op::LayerNormGrad { rms: form.rms, weight: has_weight, wanted };
        let mut outs = make_many(op, ctx.node.args.clone(), inputs, specs).into_iter();
        for (at, wanted) in places.iter().zip(wants) {
            if let (Some(at), true) = (at, wanted) {
                grads[*at] = outs.next();
            }
        }
        Ok(grads)
    }
}

/// The rule of the gradient of normalizations.
pub struct LayerNormGrad;

/// The rows as functions of x, made of differentiable ops.
struct Rows {
    rms: bool,
    normed: Tensor,
    rstd: Tensor,
}

fn row_mean(t: &Tensor) -> Result<Tensor> {
    reduce(Mean, t, Some(&[-1]), true)
}

impl Rows {
    fn new(rms: bool, x: &Tensor, eps: f64) -> Result<Rows> {
        let centred = if rms { x.clone() } else { sub(x, &row_mean(x)?)? };
        let rstd = unary(Rsqrt, &add(&row_mean(&unary(Square, &centred)?)?, &scalar(eps, x.dtype()))?)?;
        Ok(Rows { rms, normed: mul(&centred, &rstd)?, rstd })
    }

    /// mean(v x')
    fn along(&self, v: &Tensor) -> Result<Tensor> {
        row_mean(&mul(v, &self.normed)?)
    }

    /// rstd (v - mean(v) - x' mean(v x')), which is its own transpose.
    fn pull(&self, v: &Tensor) -> Result<Tensor> {
        let rest = if self.rms { v.clone() } else { sub(v, &row_mean(v)?)? };
        mul(&self.rstd, &sub(&rest, &mul(&self.normed, &self.along(v)?)?)?)
    }

    /// The gradient of sum(u pull(v)) with respect to rstd, times -rstd^2 x': what goes on to x beside what x' passes on.
    fn through_scale(&self, u: &Tensor, v: &Tensor) -> Result<Tensor> {
        let mut sum = sub(&row_mean(&mul(u, v)?)?, &mul(&self.along(u)?, &self.along(v)?)?)?;
        if !self.rms {
            sum = sub(&sum, &mul(&row_mean(u)?, &row_mean(v)?)?)?;
        }
        unary(Neg, &mul(&mul(&unary(Square, &self.rstd)?, &self.normed)?, &sum)?)
    }
}

/// The sum of what is there.
fn total(terms: [Option<Tensor>; 3]) -> Result<Option<Tensor>> {
    let mut sum: Option<Tensor> = None;
    for t in terms.into_iter().flatten() {
        sum = Some(match sum {
            Some(s) => add(&s, &t)?,
            None => t,
        });
    }
    Ok(sum)
}

impl Rule for LayerNormGrad {
    /// g, x and the weight; the statistics are made again, so that they are functions of x.
    fn saves(&self, op: &Op, _needs: u32) -> Option<Saved> {
        let Op::LayerNormGrad { weight, .. } = op else { return None };
        Some(Saved { inputs: if *weight { 7 } else { 3 }, outputs: 0 })
    }

    /// With u, a and b coming in for the gradients of x, weight and bias, P(v) = rstd (v - mean(v) - x' mean(v x')), which is symmetric, and
    /// v = g weight: P(u) weight + a x' + b for g; P(u) g for the weight; for x P(e) - rstd^2 x' (mean(u v) - mean(u) mean(v) -
    /// mean(u x') mean(v x')) with e = a g - rstd (u mean(v x') + v mean(u x')).
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let (Op::LayerNormGrad { rms, weight, wanted }, [eps]) = (ctx.op(), &ctx.node.args[..]) else {
            return Err(Error::Internal("layer_norm_gradient rule"));
        };
        let wide = ctx.spec(1).dtype.compute();
        let (g, x) = (cast(ctx.input(0)?, wide), cast(ctx.input(1)?, wide));
        let w = if *weight { Some(cast(ctx.input(2)?, wide)) } else { None };
        let mut given = grad_outs.iter().map(|t| t.as_ref().map(|t| cast(t, wide)));
        let [u, a, b] = [0, 1, 2].map(|bit| if wanted >> bit & 1 == 1 { given.next().flatten() } else { None });
        let rows = Rows::new(*rms, &x, f64::from_bits(*eps))?;
        let scaled = |t: &Tensor| w.as_ref().map_or_else(|| Ok(t.clone()), |w| mul(t, w));
        let pulled = u.as_ref().map(|u| rows.pull(u)).transpose()?;
        let want = |i: usize, f: &dyn Fn() -> Result<Option<Tensor>>| if ctx.needs(i) { f() } else { Ok(None) };
        let for_g = want(0, &|| {
            let own = pulled.as_ref().map(&scaled).transpose()?;
            let shared = a.as_ref().map(|a| mul(a, &rows.normed)).transpose()?;
            total([own, shared, b.as_ref().map(|b| broadcast_to(b, g.shape())).transpose()?])
        })?;
        let for_x = want(1, &|| {
            let v = scaled(&g)?;
            let direct = a.as_ref().map(|a| mul(a, &g)).transpose()?;
            let Some(u) = &u else { return direct.map(|e| rows.pull(&e)).transpose() };
            let crossed = add(&mul(u, &rows.along(&v)?)?, &mul(&v, &rows.along(u)?)?)?;
            let e = total([direct, Some(unary(Neg, &mul(&rows.rstd, &crossed)?)?), None])?;
            total([e.map(|e| rows.pull(&e)).transpose()?, Some(rows.through_scale(u, &v)?), None])
        })?;
        let mut grads: Grads = smallvec![None; ctx.inputs.len()];
        (grads[0], grads[1]) = (for_g, for_x);
        if *weight {
            grads[2] = want(2, &|| pulled.as_ref().map(|p| mul(p, &g)).transpose())?;
        }
        Ok(grads)
    }
}
