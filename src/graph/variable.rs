//! A user's leaf: the identity that its versions share, and its gradient.
use super::node::Tensor;
use crate::error::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What `.grad` belongs to: the Python tensor object, whatever version its value has.
#[derive(Debug)]
pub struct Variable {
    requires_grad: AtomicBool,
    grad: Mutex<Option<Tensor>>,
}

impl Variable {
    /// A leaf without a gradient yet.
    pub fn new(requires_grad: bool) -> Variable {
        Variable { requires_grad: AtomicBool::new(requires_grad), grad: Mutex::new(None) }
    }

    /// Whether backward fills its gradient.
    pub fn requires_grad(&self) -> bool {
        self.requires_grad.load(Relaxed)
    }

    /// Turns the gradient on or off.
    pub fn set_requires_grad(&self, on: bool) {
        self.requires_grad.store(on, Relaxed);
    }

    /// The gradient so far.
    pub fn grad(&self) -> Option<Tensor> {
        self.grad.lock().clone()
    }

    /// Replaces the gradient; it counts as held by Python.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        if let Some(new) = &grad {
            new.hold();
        }
        let old = std::mem::replace(&mut *self.grad.lock(), grad);
        if let Some(old) = old {
            old.unhold();
        }
    }

    /// Adds to the gradient, under the lock that other threads' backward passes take too. The sum is given back held: the caller ends
    /// with `unhold`, so that it can still be evaluated when somebody adds to it meanwhile.
    pub fn accumulate(&self, g: &Tensor, add: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let mut slot = self.grad.lock();
        let sum = match slot.as_ref() {
            Some(old) => add(old, g)?,
            None => g.clone(),
        };
        sum.hold();
        sum.hold();
        let old = slot.replace(sum.clone());
        drop(slot);
        if let Some(old) = old {
            old.unhold();
        }
        Ok(sum)
    }

    /// Puts a new version in place of the gradient, if it still is the old one.
    pub fn replace_grad(&self, old: &Tensor, new: Tensor) {
        let is_mine = self.grad.lock().as_ref().is_some_and(|g| Arc::ptr_eq(&g.node, &old.node) && g.index == old.index);
        if is_mine {
            self.set_grad(Some(new));
        }
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        if let Some(grad) = self.grad.get_mut().take() {
            grad.unhold();
        }
    }
}
