//! Which device computes a node. What has inputs is where they are; a constant goes where its first reader is.
use super::node::{Node, Tensor};
use super::record::record_transfer;
use crate::backend::op::Op;
use crate::device::Device;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

/// Copies between devices that have been recorded and not carried out, in the whole process.
static TRANSFERS: AtomicUsize = AtomicUsize::new(0);

/// Whether there is any copy between devices that has not been carried out.
pub fn is_any_transfer_pending() -> bool {
    TRANSFERS.load(Relaxed) > 0
}

/// Counts a copy that was recorded, or takes one back that was carried out or dropped.
pub(super) fn count_transfer(op: &Op, is_new: bool) {
    if !matches!(op, Op::Transfer(_)) {
        return;
    }
    if is_new {
        TRANSFERS.fetch_add(1, Relaxed);
    } else {
        TRANSFERS.fetch_sub(1, Relaxed);
    }
}

/// No reader has said so yet.
const OPEN: u8 = u8::MAX;
/// The value lies on the host, and follows its readers.
const GUEST: u8 = u8::MAX - 1;

/// The device of a node, which may be open at first.
#[derive(Debug)]
pub struct Placing(AtomicU8);

impl Placing {
    /// The device of a new node; inputs whose device was open are placed beside the others.
    pub(super) fn of(op: &Op, inputs: &mut [Tensor]) -> Placing {
        if let Op::Transfer(device) = op {
            return Placing(AtomicU8::new(device.position() as u8));
        }
        let Some(device) = inputs.iter().find_map(Tensor::device) else { return Placing(AtomicU8::new(OPEN)) };
        for t in inputs {
            if t.node.placing.0.load(Relaxed) >= GUEST {
                *t = placed(t, device);
            }
        }
        Placing(AtomicU8::new(device.position() as u8))
    }

    /// The device, if it is known.
    pub fn device(&self) -> Option<Device> {
        let at = self.0.load(Relaxed);
        (at < GUEST).then_some(Device::at(at))
    }

    /// Where it is from now on.
    pub fn set(&self, device: Device) {
        self.0.store(device.position() as u8, Relaxed);
    }

    /// A leaf on the host that was made for one call: it is copied to where its readers are.
    pub fn set_guest(&self) {
        self.0.store(GUEST, Relaxed);
    }
}

/// A tensor whose device was open, on this one.
pub fn placed(t: &Tensor, device: Device) -> Tensor {
    if t.node.placing.0.load(Relaxed) == GUEST && !device.is_cpu() {
        return record_transfer(t, device);
    }
    settle(&t.node, device);
    t.clone()
}

/// Places a node whose device is open, with everything it is made of that is open too.
pub fn settle(node: &Node, device: Device) {
    let mut stack: Vec<Tensor> = Vec::new();
    place(node, device, &mut stack);
    while let Some(t) = stack.pop() {
        place(&t.node, device, &mut stack);
    }
}

fn place(node: &Node, device: Device, stack: &mut Vec<Tensor>) {
    if node.placing.0.load(Relaxed) < GUEST {
        return;
    }
    let was_guest = node.placing.0.load(Relaxed) == GUEST;
    if !was_guest || device.is_cpu() {
        node.placing.set(device);
    }
    let mut state = node.state.lock();
    for i in 0..state.inputs.len() {
        let input = state.inputs[i].clone();
        if input.node.placing.0.load(Relaxed) == GUEST && !device.is_cpu() {
            let moved = record_transfer(&input, device);
            let is_saved = state.saved.has_input(i);
            for (count, by) in [(&moved, 1i32), (&input, -1)] {
                let out = count.out();
                out.pending.fetch_add(by as u32, Relaxed);
                if is_saved {
                    out.saved.fetch_add(by as u32, Relaxed);
                }
            }
            state.inputs[i] = moved;
        } else if input.device().is_none() {
            stack.push(input);
        }
    }
}
