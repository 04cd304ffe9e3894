//! The contract of a user's op: its gradient rule lives with the node and goes when the node's tape is done with it.
use super::node::Tensor;
use crate::error::Result;
use smallvec::SmallVec;
use std::any::Any;

/// What tells a user's function, or its arguments, from those of another run.
#[derive(Debug, Default)]
pub struct Fingerprint {
    /// Of each object in it: a number of its own, 0 if it has none, and a digest of what it looks like. The function itself comes first.
    pub parts: Vec<(u64, u64)>,
    /// The tensors in it.
    pub tensors: Vec<Tensor>,
}

/// What a user's op does in backward.
pub trait CustomRule: Send + Sync {
    /// The op's name, for messages.
    fn name(&self) -> &str;

    /// Whether it calls a segment's function again, which must not be merged with anything before or after; it reads no outputs.
    fn is_replay(&self) -> bool {
        false
    }

    /// What the rule calls, for those who know it: it goes with the rule.
    fn callee(&self) -> Option<&dyn Any> {
        None
    }

    /// The gradients of the differentiable inputs for given gradients of the outputs, made with recorded ops.
    fn vjp(&self, inputs: &[Tensor], outputs: &[Tensor], grad_outs: &[Option<Tensor>]) -> Result<SmallVec<[Option<Tensor>; 3]>>;
}

impl std::fmt::Debug for dyn CustomRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the rule of {}", self.name())
    }
}
