//! Kernels of a family of their own: which shaders an op becomes.
mod arg_extreme;
mod cross_entropy;
mod generate;
mod indexing;
mod matmul;
mod movement;
mod norm;
mod random;
mod rows;
mod scan;
mod scatter;
mod softmax;
mod sort;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod update;

pub use matmul::prepare as product;
#[cfg(test)]
pub use rows::sample;
pub use rows::subgroup;

use super::launch::{Steps, Word};
use crate::backend::op::Op;
use crate::error::{Error, Result};

/// Adds the dispatches of an op.
pub fn prepare(op: &Op, steps: &mut Steps) -> Result<()> {
    match op {
        Op::Const => generate::constant(steps),
        Op::Arange => generate::ramp(steps),
        Op::Cumsum { axis, reverse } => scan::prepare(*axis, *reverse, false, steps),
        Op::Cumprod(axis) => scan::prepare(*axis, false, true, steps),
        Op::Sort { descending } => sort::prepare(*descending, steps),
        Op::Copy => movement::copy(steps),
        Op::Concat(axis) => movement::concat(*axis, steps),
        Op::Gather(k) => indexing::gather(*k, steps),
        Op::ScatterAdd(k) => scatter::add(*k, steps),
        Op::IndexPut(k) => scatter::put(*k, steps),
        Op::TakeAlong(axis) => indexing::take_along(*axis, steps),
        Op::ScatterAlong(axis) => scatter::add_along(*axis, steps),
        Op::SliceAssign(ranges) => movement::assign(ranges, steps),
        Op::Random(kind) => random::prepare(*kind, steps),
        Op::Update(kind) => update::prepare(*kind, steps),
        Op::MatMul(precision) => product(steps, *precision, None),
        Op::Softmax { log, causal } => softmax::prepare(*log, *causal, steps),
        Op::LayerNorm(form) => norm::prepare(*form, steps),
        Op::LayerNormGrad { rms, weight, wanted } => norm::prepare_gradient(*rms, *weight, *wanted, steps),
        Op::CrossEntropy(form) => cross_entropy::prepare(*form, steps),
        Op::CrossEntropyGrad(form) => cross_entropy::prepare_gradient(*form, steps),
        Op::ArgExtreme(largest, axis) => arg_extreme::prepare(*largest, *axis, steps),
        _ => Err(Error::Internal("gpu: an op that no shader runs")),
    }
}

/// Most elements (or bytes in words) that shaders count: their numbers are 32 bits, with room for the last workgroup's threads.
const MOST: usize = u32::MAX as usize - (1 << 16);

/// A count as a shader's number.
fn count(op: &'static str, elems: usize) -> Result<u32> {
    if elems > MOST {
        return Err(Error::value(
            op,
            format!("{elems} elements are more than the {MOST} that a GPU kernel counts: split the tensor"),
        ));
    }
    Ok(elems as u32)
}

/// A count as a number among a dispatch's words.
fn fixed(op: &'static str, elems: usize) -> Result<Word> {
    count(op, elems).map(Word::Fixed)
}
