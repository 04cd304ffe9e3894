//! The CPU backend: the specification of every kernel, and fast.
mod along;
mod arg_extreme;
mod concat;
mod copy;
mod cross_entropy;
mod cumulative;
mod elementwise;
mod generate;
mod index;
mod interrupt;
pub mod math;
mod matmul;
mod norm;
mod norm_gradient;
mod order;
mod parallel;
mod random;
mod real;
mod reduce;
mod rows;
mod scatter;
mod slice_assign;
mod softmax;
mod sort;
mod team;
mod threads;
mod update;
mod view;
mod walk;

pub(crate) use elementwise::round_bits;
pub use interrupt::{interruptible, is_asking, is_stopped, poll, set_interrupt_hook};
pub use team::with_team;
pub use threads::{begin_child, is_child};
pub(crate) use update::numbers as update_numbers;
pub use view::{Collapsed, View, collapse};

use super::Kernel;
use super::op::Op;
use crate::error::{Error, Result};
use elementwise::FusedProgram;
use matmul::FusedProduct;
use reduce::ReduceProgram;

/// A kernel made ready to run many times.
#[derive(Debug)]
pub enum Prepared {
    /// A fused elementwise expression.
    Fused(FusedProgram),
    /// A reduction of an expression.
    Reduce(ReduceProgram),
    /// A product with an epilogue.
    MatMul(FusedProduct),
    /// A kernel of a family of its own.
    Op(Op),
}

/// Makes a kernel ready.
pub fn prepare(kernel: &Kernel) -> Result<Prepared> {
    Ok(match kernel {
        Kernel::Fused(expr) => Prepared::Fused(FusedProgram::new(expr)?),
        Kernel::Reduce(kind, mask, expr) => Prepared::Reduce(ReduceProgram::new(*kind, *mask, expr)?),
        Kernel::MatMul(_, expr) => Prepared::MatMul(FusedProduct::new(expr)?),
        Kernel::Op(op) => Prepared::Op(op.clone()),
    })
}

/// Runs a kernel. Outputs are row-major; `shape` is the iteration shape.
pub fn run(kernel: &Prepared, ins: &[View], outs: &[View], shape: &[usize], args: &[u64]) -> Result<()> {
    let op = match kernel {
        Prepared::Fused(p) => {
            return p.run(ins, outs, args);
        }
        Prepared::Reduce(p) => {
            return p.run(ins, shape, outs[0], args);
        }
        Prepared::MatMul(p) => {
            return p.run(ins, outs, args);
        }
        Prepared::Op(op) => op,
    };
    match op {
        Op::Const => generate::run_const(ins, outs, args),
        Op::Arange => generate::run_arange(ins, outs, args),
        Op::ArgExtreme(is_max, axis) => arg_extreme::run(*is_max, *axis, ins, outs, args),
        Op::Cumsum { axis, reverse } => cumulative::cumsum(*axis, *reverse, ins, outs),
        Op::Cumprod(axis) => cumulative::cumprod(*axis, ins, outs),
        Op::Softmax { log, causal } => softmax::run(*log, *causal, ins, outs, args),
        Op::LayerNorm(form) => norm::run(*form, ins, outs, args),
        Op::LayerNormGrad { rms, weight, wanted } => norm_gradient::run(*rms, *weight, *wanted, ins, outs),
        Op::CrossEntropy(form) => cross_entropy::run(*form, ins, outs, args),
        Op::CrossEntropyGrad(form) => cross_entropy::run_gradient(*form, ins, outs, args),
        Op::Sort { descending } => sort::run(*descending, ins, outs, args),
        Op::MatMul(_) => matmul::run(ins, outs, args),
        Op::Copy => copy::run(ins, outs, args),
        Op::Concat(axis) => concat::run(*axis, ins, outs, args),
        Op::Gather(k) => index::run(*k, ins, outs, args),
        Op::ScatterAdd(k) => scatter::run_add(*k, ins, outs, args),
        Op::IndexPut(k) => scatter::run_put(*k, ins, outs, args),
        Op::TakeAlong(axis) => along::run_take(*axis, ins, outs, args),
        Op::ScatterAlong(axis) => along::run_scatter(*axis, ins, outs, args),
        Op::SliceAssign(ranges) => slice_assign::run(ranges, ins, outs, args),
        Op::Random(kind) => random::run(*kind, outs[0], args),
        Op::Update(kind) => update::run(*kind, ins, outs, args),
        Op::Leaf
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Where
        | Op::Cast
        | Op::Reduce(..)
        | Op::View(_)
        | Op::Transfer(_)
        | Op::Custom => Err(Error::Internal("cpu: an op that no kernel of its own runs")),
    }
}
