//! What a replay of a captured step must find: its arguments and the values that were there before it, and what they must be like.
use super::capture::refused;
use super::tensor::PyTensor;
use super::versions::{Held, Moved};
use crate::device::Device;
use crate::dtype::DType;
use crate::graph::{OutputId, Tensor, Value, Variable};
use crate::layout::Layout;
use pyo3::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// The arguments of a call that are tensors.
pub type Inputs<'a, 'py> = &'a [Bound<'py, PyTensor>];

/// A tensor that the step was given.
pub struct Given {
    /// Its name for messages.
    pub name: String,
    /// Its value at that time.
    pub id: OutputId,
    /// Every call must give this very tensor: the step changes it, or it wants a gradient.
    pub is_fixed: bool,
    /// That tensor, if so.
    tensor: Option<Py<PyTensor>>,
    device: Option<Device>,
    dtype: DType,
    shape: Vec<usize>,
    requires_grad: bool,
}

/// Where a replay finds a value that was there before it.
pub enum Kind {
    /// Among its arguments.
    Input(usize),
    /// In this tensor object.
    Object(Py<PyTensor>),
    /// The present version of a user's leaf.
    Version(Weak<Variable>),
    /// A leaf's gradient.
    Gradient(Weak<Variable>),
    /// It stays as it is.
    Constant(Held),
}

/// A value that was there before, and what it must be like.
pub struct Expected {
    /// Where it is found.
    pub kind: Kind,
    /// Where it lies.
    pub device: Device,
    /// Its type.
    pub dtype: DType,
    /// How it lies there.
    pub layout: Arc<Layout>,
    /// Whether it is a leaf that wants a gradient.
    pub requires_grad: bool,
    /// A plan writes over it.
    pub is_overwritten: bool,
}

/// How a tensor is described where it differs from the one expected.
fn described(shape: &[usize], dtype: DType, device: Option<Device>) -> String {
    format!("shape {shape:?}, {dtype} on {}", device.unwrap_or(Device::CPU))
}

impl Given {
    /// An argument of the captured call.
    pub fn new(t: &Bound<'_, PyTensor>, name: String, moves: &[Moved]) -> Given {
        let now = t.get().tensor();
        let requires_grad = t.get().variable().is_some_and(|v| v.requires_grad());
        let is_fixed = requires_grad || moves.iter().any(|m| m.tensor.is(t));
        Given {
            name,
            id: now.id(),
            is_fixed,
            tensor: is_fixed.then(|| t.clone().unbind()),
            device: now.device(),
            dtype: now.dtype(),
            shape: now.shape().to_vec(),
            requires_grad,
        }
    }

    /// Refuses another kind of argument.
    pub fn check(&self, t: &Bound<'_, PyTensor>) -> PyResult<()> {
        let now = t.get().tensor();
        let name = &self.name;
        if now.shape() != self.shape || now.dtype() != self.dtype || now.device() != self.device {
            return Err(refused(format!(
                "{name} has {}; expected {} as when the step was captured (captured.reset() captures anew)",
                described(now.shape(), now.dtype(), now.device()),
                described(&self.shape, self.dtype, self.device)
            )));
        }
        if self.tensor.as_ref().is_some_and(|then| !then.is(t)) {
            return Err(refused(format!(
                "{name} is another tensor than when the step was captured; expected the same object, since the step changes it or it wants a \
                 gradient"
            )));
        }
        if t.get().variable().is_some_and(|v| v.requires_grad()) != self.requires_grad {
            return Err(refused(format!("requires_grad of {name} is {}; expected {}", !self.requires_grad, self.requires_grad)));
        }
        Ok(())
    }
}

impl Expected {
    /// The tensor that has the value now.
    pub fn tensor(&self, inputs: Inputs<'_, '_>) -> PyResult<Tensor> {
        let shape = &self.layout.shape;
        let gone = || {
            refused(format!(
                "a tensor of shape {shape:?} that the step reads from outside was replaced or let go since it was captured; expected that it \
                 stays: pass it as an argument, change it in place with assign_, or call captured.reset()"
            ))
        };
        match &self.kind {
            Kind::Input(i) => Ok(inputs[*i].get().tensor()),
            Kind::Object(t) => Ok(t.get().tensor()),
            Kind::Version(variable) => variable.upgrade().and_then(|v| v.current()).ok_or_else(gone),
            Kind::Gradient(variable) => variable.upgrade().and_then(|v| v.grad()).ok_or_else(gone),
            // The capture itself is one holder.
            Kind::Constant(held) if held.0.out().python.load(Relaxed) > 1 => Ok(held.0.clone()),
            Kind::Constant(_) => Err(gone()),
        }
    }

    /// Refuses a value that no plan was made for.
    pub fn check(&self, t: &Tensor, value: &Value) -> PyResult<()> {
        let layout = &value.layout;
        // What is laid out otherwise becomes row-major where it was so.
        let same_steps = self.layout.is_contiguous() || layout.strides == self.layout.strides;
        if layout.shape != self.layout.shape || t.dtype() != self.dtype || value.storage.device() != self.device || !same_steps {
            return Err(refused(format!(
                "a tensor that the step reads has {}{}; expected {}{} as when it was captured (captured.reset() captures anew)",
                described(&layout.shape, t.dtype(), Some(value.storage.device())),
                if same_steps { "" } else { ", laid out otherwise (a transposed or strided view?)" },
                described(&self.layout.shape, self.dtype, Some(self.device)),
                if same_steps { "" } else { ", laid out as then" },
            )));
        }
        let requires_grad = t.node.variable.as_ref().is_some_and(|v| v.requires_grad());
        if requires_grad != self.requires_grad && !matches!(self.kind, Kind::Gradient(_)) {
            return Err(refused(format!(
                "requires_grad of a tensor of shape {:?} is {requires_grad}; expected {} as when the step was captured",
                layout.shape, self.requires_grad
            )));
        }
        Ok(())
    }

    /// Whether nobody else has the value: its tensor, and the two given here.
    pub fn is_own(t: &Tensor, value: &Value) -> bool {
        let layout = &value.layout;
        let is_whole = layout.offset == 0 && layout.is_contiguous() && !value.storage.is_borrowed();
        is_whole && Arc::strong_count(&t.node) == 2 && Arc::strong_count(&value.storage) == 2
    }
}
