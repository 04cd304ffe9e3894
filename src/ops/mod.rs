//! The registry of ops: which rule belongs to which op. Each family's file holds its shape rule, saved set and gradient together.
pub mod binary;
pub mod create;
pub mod cross_entropy;
pub mod cumulative;
pub mod custom;
pub mod einsum;
pub mod index;
pub mod indexing;
pub mod matmul;
pub mod movement;
pub mod nonzero;
pub mod norm;
pub mod random;
pub mod reduce;
mod rule;
pub mod softmax;
pub mod sort;
pub mod transfer;
pub mod unary;
pub mod update;
pub mod view;

pub use rule::{Ctx, Grads, NONE, Rule, grads, make, make_many, only};

use crate::backend::op::Op;
use crate::graph::Saved;

/// The gradient rule of an op.
pub fn rule(op: &Op) -> &'static dyn Rule {
    match op {
        Op::Unary(_) => &unary::Unary,
        Op::Binary(_) => &binary::Binary,
        Op::Where => &binary::Where,
        Op::Cast => &unary::Cast,
        Op::Reduce(..) => &reduce::Reduce,
        Op::Cumsum { .. } => &cumulative::Cumsum,
        Op::Cumprod(_) => &cumulative::Cumprod,
        Op::Softmax { .. } => &softmax::Softmax,
        Op::LayerNorm(_) => &norm::LayerNorm,
        Op::LayerNormGrad { .. } => &norm::LayerNormGrad,
        Op::CrossEntropy(_) => &cross_entropy::CrossEntropy,
        Op::CrossEntropyGrad(_) => &cross_entropy::CrossEntropyGrad,
        Op::Sort { .. } => &sort::Sort,
        Op::MatMul(_) => &matmul::MatMul,
        Op::View(_) | Op::Copy => &view::View,
        Op::SliceAssign(_) => &view::SliceAssign,
        Op::Concat(_) => &movement::Concat,
        Op::Gather(_) => &index::Gather,
        Op::ScatterAdd(_) => &index::ScatterAdd,
        Op::IndexPut(_) => &index::IndexPut,
        Op::TakeAlong(_) => &index::TakeAlong,
        Op::ScatterAlong(_) => &index::ScatterAlong,
        Op::Transfer(_) => &transfer::Transfer,
        Op::Custom => &custom::Custom,
        Op::Leaf | Op::Const | Op::Arange | Op::ArgExtreme(..) | Op::Random(_) | Op::Update(_) => &NONE,
    }
}

/// What an op's rule keeps, given the inputs that need a gradient; `None` if it has no gradient.
pub fn saves(op: &Op, needs: u32) -> Option<Saved> {
    rule(op).saves(op, needs)
}
