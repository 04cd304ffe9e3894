//! The tensors whose gradients a walk is asked for, and what it found.
use crate::graph::{Node, Tensor};
use std::sync::Arc;

/// Tensors with their gradients, which are held as long as this is: those that were computed during the walk have no recipe any more, so
/// whoever takes them over holds them before this goes.
#[derive(Default)]
pub struct Targets(Vec<(Tensor, Option<Tensor>)>);

impl Drop for Targets {
    fn drop(&mut self) {
        self.tensors().for_each(Tensor::unhold);
    }
}

impl Targets {
    /// Nothing is found yet.
    pub(super) fn new(inputs: &[Tensor]) -> Targets {
        Targets(inputs.iter().map(|t| (t.clone(), None)).collect())
    }

    /// Takes what the walk has for the outputs of a node that it comes to.
    pub(super) fn note(&mut self, node: &Arc<Node>, grads: &[Option<Tensor>]) {
        for (target, found) in self.0.iter_mut().filter(|(target, _)| Arc::ptr_eq(&target.node, node)) {
            *found = grads[target.index()].clone().inspect(Tensor::hold);
        }
    }

    /// What is held.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.0.iter().filter_map(|(_, found)| found.as_ref())
    }

    /// The gradients in order; `None` where a tensor was not used.
    pub fn found(&self) -> Vec<Option<Tensor>> {
        self.0.iter().map(|(_, found)| found.clone()).collect()
    }
}
