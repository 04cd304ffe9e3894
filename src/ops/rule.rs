//! The contract of a gradient rule: what it keeps is declared, and it neither accumulates nor undoes broadcasting.
use crate::backend::op::Op;
use crate::error::{Error, Result};
use crate::graph::{Node, Saved, Spec, Tensor, record};
use smallvec::{SmallVec, smallvec};

/// One optional gradient for each input.
pub type Grads = SmallVec<[Option<Tensor>; 3]>;

/// What a rule sees of the node it differentiates.
pub struct Ctx<'a> {
    /// The node.
    pub node: &'a std::sync::Arc<Node>,
    /// Its inputs; what a segment dropped is rebuilt where the rule reads it.
    pub inputs: &'a [Tensor],
    /// Its outputs where a segment rebuilt them; empty where the node's own are read.
    pub outputs: &'a [Tensor],
    /// Bit mask of the inputs that need a gradient.
    pub needs: u32,
    /// What was declared as saved for these needs.
    pub saved: Saved,
}

impl Ctx<'_> {
    /// The node's op with its attributes.
    pub fn op(&self) -> &Op {
        &self.node.op
    }

    /// Whether an input needs a gradient.
    pub fn needs(&self, i: usize) -> bool {
        self.needs & Saved::bit(i) != 0
    }

    /// A saved input.
    pub fn input(&self, i: usize) -> Result<&Tensor> {
        if !self.saved.has_input(i) {
            return Err(Error::Internal("a gradient rule that reads an input it did not save"));
        }
        self.inputs.get(i).ok_or(Error::Internal("a gradient rule whose inputs are gone"))
    }

    /// A saved output.
    pub fn output(&self, o: usize) -> Result<Tensor> {
        if !self.saved.has_output(o) {
            return Err(Error::Internal("a gradient rule that reads an output it did not save"));
        }
        Ok(self.outputs.get(o).cloned().unwrap_or_else(|| Tensor { node: self.node.clone(), index: o as u32 }))
    }

    /// Shape and dtype of an input, which every rule may know.
    pub fn spec(&self, i: usize) -> &Spec {
        self.inputs[i].spec()
    }
}

/// A family's gradient rule.
pub trait Rule: Sync {
    /// What `vjp` will read, given the inputs that need a gradient; `None` if the op is not differentiable.
    fn saves(&self, op: &Op, needs: u32) -> Option<Saved>;

    /// The gradients of the inputs for given gradients of the outputs. A gradient may have a shape that broadcasting made larger than
    /// the input's: the walk sums it down. Inputs that need none may be given `None`.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads>;
}

/// The rule of ops that are not differentiable.
pub struct NotDifferentiable;

/// Its only value.
pub static NONE: NotDifferentiable = NotDifferentiable;

impl Rule for NotDifferentiable {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        None
    }

    fn vjp(&self, ctx: &Ctx, _grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        Err(Error::state(ctx.op().name(), "this op has no gradient"))
    }
}

/// The gradient of a one-output op: present whenever its rule is called.
pub fn only(grad_outs: &[Option<Tensor>]) -> Result<&Tensor> {
    grad_outs.first().and_then(Option::as_ref).ok_or(Error::Internal("a gradient rule without an incoming gradient"))
}

/// Gradients of one input.
pub fn grads(g: Tensor) -> Result<Grads> {
    Ok(smallvec![Some(g)])
}

/// Records an op with one output.
pub fn make(op: Op, args: SmallVec<[u64; 2]>, inputs: SmallVec<[Tensor; 2]>, spec: Spec) -> Tensor {
    Tensor::first(record(op, args, inputs, smallvec![spec], super::saves))
}

/// Records an op with several outputs.
pub fn make_many(op: Op, args: SmallVec<[u64; 2]>, inputs: SmallVec<[Tensor; 2]>, specs: SmallVec<[Spec; 1]>) -> Vec<Tensor> {
    let n = specs.len() as u32;
    let node = record(op, args, inputs, specs, super::saves);
    (0..n).map(|index| Tensor { node: node.clone(), index }).collect()
}
