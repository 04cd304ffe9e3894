//! Random draws: each node takes its counters from the process-wide generator when it is recorded, so a rebuilt value is the same.
use super::binary::{binary, mul, scalar, select};
use super::index::take;
use super::rule::make;
use super::sort::argsort;
use crate::backend::kind::BinaryKind::Lt;
use crate::backend::op::{Op, RandomKind};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Spec, Tensor};
use crate::rng::{State, counters};
use crate::shape::{check_size, elems};
use parking_lot::Mutex;
use smallvec::smallvec;
use std::cell::Cell;

static GENERATOR: Mutex<State> = Mutex::new(State::new(0));

thread_local! {
    /// A generator of this thread's own, while it repeats draws: the process's stream goes on for everybody else.
    static OWN: Cell<Option<State>> = const { Cell::new(None) };
}

/// Reads or changes the generator that this thread draws from.
fn generator<R>(f: impl FnOnce(&mut State) -> R) -> R {
    match OWN.get() {
        None => f(&mut GENERATOR.lock()),
        Some(mut own) => {
            let out = f(&mut own);
            OWN.set(Some(own));
            out
        }
    }
}

/// Gives this thread a generator of its own, or takes it away; what it had.
pub fn swap_own(own: Option<State>) -> Option<State> {
    OWN.replace(own)
}

/// Starts the generator anew from a seed.
pub fn manual_seed(seed: u64) {
    generator(|g| *g = State::new(seed));
}

/// The generator's seed and position, comparable and cheap to copy.
pub fn get_state() -> State {
    generator(|g| *g)
}

/// Puts the generator back to a state it had.
pub fn set_state(state: State) {
    generator(|g| *g = state);
}

/// One node with its two numbers (a range, or mean and deviation); the node's counters are taken here, in the order of the calls.
fn draw(kind: RandomKind, shape: &[usize], bounds: [u64; 2], dtype: DType) -> Tensor {
    let (seed, counter) = {
        let first = generator(|g| g.take(counters(kind, dtype, elems(shape))));
        (first.seed, first.counter)
    };
    make(Op::Random(kind), smallvec![seed, counter, bounds[0], bounds[1]], smallvec![], Spec::new(shape, dtype))
}

fn check_float(op: &'static str, shape: &[usize], dtype: DType) -> Result<()> {
    check_size(op, shape)?;
    if dtype.is_float() { Ok(()) } else { Err(Error::dtype(op, format!("got dtype {dtype}; expected a float"))) }
}

/// Uniform in [low, high).
pub fn uniform(shape: &[usize], low: f64, high: f64, dtype: DType) -> Result<Tensor> {
    check_float("uniform", shape, dtype)?;
    if !(low <= high && (high - low).is_finite()) {
        return Err(Error::value("uniform", format!("low is {low} and high {high}; expected finite numbers, low first")));
    }
    Ok(draw(RandomKind::Uniform, shape, [low.to_bits(), high.to_bits()], dtype))
}

/// Normal with a mean and a standard deviation.
pub fn normal(shape: &[usize], mean: f64, deviation: f64, dtype: DType) -> Result<Tensor> {
    check_float("normal", shape, dtype)?;
    if !(deviation >= 0.0 && deviation.is_finite() && mean.is_finite()) {
        let message =
            format!("mean is {mean} and standard deviation {deviation}; expected finite numbers, the second not negative");
        return Err(Error::value("normal", message));
    }
    Ok(draw(RandomKind::Normal, shape, [mean.to_bits(), deviation.to_bits()], dtype))
}

/// Integers in [low, high).
pub fn randint(shape: &[usize], low: i64, high: i64, dtype: DType) -> Result<Tensor> {
    check_size("randint", shape)?;
    let Some((least, most)) = dtype.ends() else {
        return Err(Error::dtype("randint", format!("got dtype {dtype}; expected an integer")));
    };
    if low >= high || low < least || high - 1 > most {
        let message = format!("low is {low} and high {high}; expected low < high, and both within {dtype}");
        return Err(Error::value("randint", message));
    }
    let arg = |v: i64| Scalar::Int(v).to_arg(DType::I64);
    Ok(draw(RandomKind::Randint, shape, [arg(low), arg(high)], dtype))
}

/// 0, 1, .. n - 1 in random order, as int64: the positions that sort random 63-bit integers.
pub fn permutation(n: usize) -> Result<Tensor> {
    argsort(&randint(&[n], 0, i64::MAX, DType::I64)?, Some(0), false)
}

/// The tensor with its first axis in random order.
pub fn shuffled(x: &Tensor) -> Result<Tensor> {
    match x.shape().first() {
        None => Err(Error::value("permutation", "got a tensor without axes; expected at least one")),
        Some(&n) => take(x, &permutation(n)?, Some(0)),
    }
}

/// True with probability p, as bool; from float32 draws, so the same on every device.
pub fn bernoulli(shape: &[usize], p: f64) -> Result<Tensor> {
    if !(0.0..=1.0).contains(&p) {
        return Err(Error::value("bernoulli", format!("p is {p}; expected a number from 0 to 1")));
    }
    binary(Lt, &uniform(shape, 0.0, 1.0, DType::F32)?, &scalar(p, DType::F32))
}

/// x with elements set to 0 with probability p and the others scaled by 1 / (1 - p).
pub fn dropout(x: &Tensor, p: f64) -> Result<Tensor> {
    if !(0.0..=1.0).contains(&p) || !x.dtype().is_float() {
        return Err(Error::value("dropout", format!("p is {p} and the tensor {}; expected 0 to 1 and a float", x.dtype())));
    }
    if p == 0.0 {
        return Ok(x.clone());
    }
    let kept = bernoulli(x.shape(), 1.0 - p)?;
    let scale = scalar(if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 }, x.dtype());
    select(&kept, &mul(x, &scale)?, &scalar(0.0, x.dtype()))
}
