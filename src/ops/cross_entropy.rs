//! Cross-entropy of rows of logits with integer labels: loss, its gradient as an op of its own, and its gradient.
use super::binary::{add, binary, div, host_scalar, mul, scalar, select, sub};
use super::create::ones;
use super::index::gather_by;
use super::reduce::{detach_like, reduce};
use super::rule::{Ctx, Grads, Rule, make, make_many, only};
use super::softmax::softmax;
use super::transfer::one_device;
use super::unary::cast;
use super::view::{move_axis, reshape_to};
use crate::backend::kind::BinaryKind::Ne;
use crate::backend::kind::Caller;
use crate::backend::kind::ReduceKind::{Mean, Sum};
use crate::backend::op::{EntropyForm, Op};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Saved, Spec, Tensor, scope};
use crate::shape::{self, Shape};
use smallvec::{SmallVec, smallvec};

/// How losses of many rows become one tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// Their sum, divided by that of their labels' weights, without ignored rows.
    Mean,
    /// Their sum.
    Sum,
    /// As they are.
    None,
}

/// What a cross-entropy is made with.
#[derive(Clone, Copy, Debug)]
pub struct Entropy {
    /// The axis of the classes.
    pub axis: i64,
    /// The label whose rows count for nothing.
    pub ignored: Option<i64>,
    /// The share of the target that is spread over all classes.
    pub smoothing: f64,
    /// What becomes of the rows' losses.
    pub reduction: Reduction,
}

const NAME: &str = "cross_entropy";

/// The loss of logits with labels, which have the logits' shape without the class axis. Class weights are constants here. The result has
/// the type that logits and weights promote to, and is rounded to it once.
pub fn cross_entropy(how: Entropy, logits: &Tensor, labels: &Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
    one_device(NAME, &[Some(logits), Some(labels), weight].into_iter().flatten().collect::<Vec<_>>())?;
    let axis = shape::axis(NAME, how.axis, logits.rank())?;
    if !logits.dtype().is_float() || !labels.dtype().is_int() {
        let message = format!("got logits of {} and labels of {}; expected floats and integers", logits.dtype(), labels.dtype());
        return Err(Error::dtype(NAME, message));
    }
    let rows = move_axis(logits, axis, logits.rank() - 1);
    let (classes, lead) = (logits.shape()[axis], &rows.shape()[..logits.rank() - 1]);
    if labels.shape() != lead {
        let message =
            format!("logits have shape {:?} and labels {:?}; expected labels of shape {lead:?}", logits.shape(), labels.shape());
        return Err(Error::value(NAME, message));
    }
    if let Some(w) = weight.filter(|w| w.shape() != [classes]) {
        return Err(Error::value(NAME, format!("weight has shape {:?}; expected [{classes}], one per class", w.shape())));
    }
    let dtype = weight.map_or(logits.dtype(), |w| DType::promote(logits.dtype(), w.dtype()));
    let form = EntropyForm { weight: weight.is_some(), ignores: how.ignored.is_some(), smooths: how.smoothing != 0.0 };
    let mut inputs: SmallVec<[Tensor; 2]> = smallvec![cast(&rows, dtype), labels.clone()];
    inputs.extend(weight.map(|w| constant(&cast(w, dtype))));
    let spec = Spec::new(lead, dtype.compute());
    let specs = SmallVec::from_elem(spec, 3 + usize::from(form.weight || form.ignores));
    let args = smallvec![how.ignored.unwrap_or(0) as u64, how.smoothing.to_bits()];
    let outs = make_many(Op::CrossEntropy(form), args, inputs, specs);
    let loss = match how.reduction {
        Reduction::None => outs[0].clone(),
        Reduction::Sum => reduce(Sum, &outs[0], None, false)?,
        Reduction::Mean => match outs.get(3) {
            None => reduce(Mean, &outs[0], None, false)?,
            Some(share) => div(&reduce(Sum, &outs[0], None, false)?, &reduce(Sum, &constant(share), None, false)?)?,
        },
    };
    Ok(cast(&loss, dtype))
}

/// The same value as a constant: no gradient flows to it.
fn constant(t: &Tensor) -> Tensor {
    if scope(|s| s.paused || s.tapes.is_empty()) { t.clone() } else { detach_like(t) }
}

fn form_of(op: &Op) -> Result<EntropyForm> {
    match op {
        Op::CrossEntropy(form) | Op::CrossEntropyGrad(form) => Ok(*form),
        _ => Err(Error::Internal("cross_entropy rule")),
    }
}

/// The gradient of the logits for incoming `g`, with the inputs of the forward op and its two statistics.
fn gradient(form: EntropyForm, args: SmallVec<[u64; 2]>, g: &Tensor, inputs: &[Tensor], stats: [Tensor; 2]) -> Result<Tensor> {
    let Some(logits) = inputs.first() else { return Err(Error::Internal("cross_entropy_gradient: inputs")) };
    let all = std::iter::once(g.clone()).chain(inputs.iter().cloned()).chain(stats).collect();
    Ok(make(Op::CrossEntropyGrad(form), args, all, logits.spec().clone()))
}

/// The rule of cross-entropy.
pub struct CrossEntropy;

impl Rule for CrossEntropy {
    /// The inputs, the largest logits and the sums.
    fn saves(&self, op: &Op, _needs: u32) -> Option<Saved> {
        let form = form_of(op).ok()?;
        Some(Saved { inputs: if form.weight { 7 } else { 3 }, outputs: 6 })
    }

    /// g (A softmax(x) - t) for a row with target t, whose sum is A; 0 for ignored rows.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let (g, form) = (only(grad_outs)?, form_of(ctx.op())?);
        let inputs = (0..ctx.inputs.len()).map(|i| ctx.input(i).cloned()).collect::<Result<Vec<_>>>()?;
        let stats = [constant(&ctx.output(1)?), constant(&ctx.output(2)?)];
        let mut grads: Grads = smallvec![None; inputs.len()];
        grads[0] = Some(gradient(form, ctx.node.args.clone(), g, &inputs, stats)?);
        Ok(grads)
    }
}

/// The rule of the gradient of cross-entropy.
pub struct CrossEntropyGrad;

/// Which rows count, if any are ignored, and the sum of each row's target where it is not 1; both shaped to multiply rows.
fn masses(form: EntropyForm, args: &[u64], labels: &Tensor, weight: Option<&Tensor>) -> Result<(Option<Tensor>, Option<Tensor>)> {
    let [ignored, smoothing] = args else { return Err(Error::Internal("cross_entropy_gradient: args")) };
    let mut shape = Shape::from_slice(labels.shape());
    shape.push(1);
    let labels = reshape_to(labels, &shape);
    let number = |value: u64| host_scalar(Scalar::Int(value as i64), DType::I64);
    let counts = if form.ignores { Some(binary(Ne, &labels, &number(*ignored))?) } else { None };
    let Some(weight) = weight else { return Ok((counts, None)) };
    let safe = counts.as_ref().map_or_else(|| Ok(labels.clone()), |c| select(c, &labels, &number(0)))?;
    let own = gather_by(Caller::CrossEntropy, weight, &[safe])?;
    if !form.smooths {
        return Ok((counts, Some(own)));
    }
    let (s, dtype) = (f64::from_bits(*smoothing), weight.dtype());
    let spread = mul(&scalar(s, dtype), &reduce(Mean, weight, None, false)?)?;
    Ok((counts, Some(add(&mul(&own, &scalar(1.0 - s, dtype))?, &spread)?)))
}

impl Rule for CrossEntropyGrad {
    /// g, the inputs of the forward op and the two statistics.
    fn saves(&self, op: &Op, _needs: u32) -> Option<Saved> {
        let form = form_of(op).ok()?;
        Some(Saved { inputs: if form.weight { 63 } else { 31 }, outputs: 0 })
    }

    /// With u coming in and p = softmax(x): the row's sum of u (A p - t) for g, and g A p (u - sum(u p)) for x; t does not depend on x.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let (u, form) = (only(grad_outs)?, form_of(ctx.op())?);
        let wide = ctx.spec(0).dtype;
        let u = cast(u, wide);
        let count = 2 + usize::from(form.weight);
        let inputs = (1..=count).map(|i| ctx.input(i).cloned()).collect::<Result<Vec<_>>>()?;
        let row_sum = |t: &Tensor, keep: bool| reduce(Sum, t, Some(&[-1]), keep);
        let mut grads: Grads = smallvec![None; ctx.inputs.len()];
        if ctx.needs(0) {
            let stats = [constant(ctx.input(count + 1)?), constant(ctx.input(count + 2)?)];
            let g = ones(&ctx.spec(0).shape, wide)?;
            let each = cast(&gradient(form, ctx.node.args.clone(), &g, &inputs, stats)?, wide);
            grads[0] = Some(row_sum(&mul(&u, &each)?, false)?);
        }
        if ctx.needs(1) {
            let weight = inputs.get(2).map(|w| cast(w, wide));
            let (counts, mass) = masses(form, &ctx.node.args, &inputs[1], weight.as_ref())?;
            let p = softmax(&cast(&inputs[0], wide), -1)?;
            let slope = mul(&p, &sub(&u, &row_sum(&mul(&u, &p)?, true)?)?)?;
            let mut shape = Shape::from_slice(&ctx.spec(0).shape);
            shape.push(1);
            let mut g = reshape_to(ctx.input(0)?, &shape);
            if let Some(mass) = mass {
                g = mul(&g, &mass)?;
            }
            let slope = mul(&g, &slope)?;
            grads[1] = Some(match counts {
                Some(counts) => select(&counts, &slope, &scalar(0.0, wide))?,
                None => slope,
            });
        }
        Ok(grads)
    }
}
