//! A user's leaf: the identity that its versions share, and its gradient.
use super::node::Tensor;
use crate::error::Result;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Whether gradients stay on the device, for threads that have not said otherwise.
static RESIDENT: AtomicBool = AtomicBool::new(true);

thread_local! {
    static IS_RESIDENT: Cell<bool> = Cell::new(RESIDENT.load(Relaxed));
}

/// Whether this thread's backward passes leave gradients on the device; else they become host copies.
pub fn are_gradients_resident() -> bool {
    IS_RESIDENT.get()
}

/// Changes that for this thread and returns what was.
pub fn set_gradients_resident(on: bool) -> bool {
    IS_RESIDENT.replace(on)
}

/// Changes what threads start from, and this one.
pub fn set_default_gradients_resident(on: bool) {
    RESIDENT.store(on, Relaxed);
    IS_RESIDENT.set(on);
}

/// What `.grad` belongs to: the Python tensor object, whatever version its value has.
#[derive(Debug)]
pub struct Variable {
    requires_grad: AtomicBool,
    grad: Mutex<Option<Tensor>>,
    /// The gradient is a host copy, to be read as an array of the host's library.
    is_grad_on_host: AtomicBool,
    /// Python objects that it belongs to.
    owners: AtomicUsize,
    /// There has been one.
    was_owned: AtomicBool,
}

impl Variable {
    /// A leaf without a gradient yet.
    pub fn new(requires_grad: bool) -> Variable {
        Variable {
            requires_grad: AtomicBool::new(requires_grad),
            grad: Mutex::new(None),
            is_grad_on_host: AtomicBool::new(false),
            owners: AtomicUsize::new(0),
            was_owned: AtomicBool::new(false),
        }
    }

    /// One more Python object that it belongs to.
    pub fn own(&self) {
        self.owners.fetch_add(1, Relaxed);
        self.was_owned.store(true, Relaxed);
    }

    /// One less. The last one takes the gradient along: what of it could not be computed would hold the leaf, which holds it.
    pub fn disown(&self) {
        if self.owners.fetch_sub(1, Relaxed) == 1 {
            self.set_grad(None);
        }
    }

    /// Whether every Python object that it belonged to is gone: nobody can read its gradient any more.
    fn is_left(&self) -> bool {
        self.was_owned.load(Relaxed) && self.owners.load(Relaxed) == 0
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

    /// Whether the gradient is a host copy.
    pub fn is_grad_on_host(&self) -> bool {
        self.is_grad_on_host.load(Relaxed)
    }

    /// Says whether the gradient is a host copy.
    pub fn set_grad_on_host(&self, on_host: bool) {
        self.is_grad_on_host.store(on_host, Relaxed);
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

    /// Adds to the gradient; other threads' backward passes may do so at once. The sum is given back held: the caller ends with `unhold`,
    /// so that it can still be evaluated when somebody adds to it meanwhile.
    pub fn accumulate(&self, g: &Tensor, add: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
        loop {
            let old = self.held_grad();
            // Not under the lock: recording may look at the user's frames, and whoever runs Python may wait for the lock.
            let sum = old.as_ref().map_or_else(|| Ok(g.clone()), |old| add(old, g));
            old.iter().for_each(Tensor::unhold);
            let sum = sum?;
            sum.hold();
            let mut slot = self.grad.lock();
            if self.is_left() {
                // What of it cannot be computed would hold the leaf, which would hold it.
                return Ok(sum);
            }
            let is_same = match (slot.as_ref(), &old) {
                (Some(now), Some(old)) => Arc::ptr_eq(&now.node, &old.node) && now.index == old.index,
                (None, None) => true,
                _ => false,
            };
            if !is_same {
                drop(slot);
                sum.unhold();
                continue;
            }
            sum.hold();
            let old = slot.replace(sum.clone());
            // A gradient that is recorded itself must stay a tensor.
            self.set_grad_on_host(!are_gradients_resident() && !sum.node.is_recorded());
            drop(slot);
            old.iter().for_each(Tensor::unhold);
            return Ok(sum);
        }
    }

    /// The gradient so far, held.
    fn held_grad(&self) -> Option<Tensor> {
        let slot = self.grad.lock();
        slot.iter().for_each(Tensor::hold);
        slot.clone()
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
