//! Values on their way between devices: what reads them is planned when they have arrived.
use crate::backend::gpu;
use crate::backend::op::Op;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Node, Storage, Tensor, Value, is_any_transfer_pending, new_storage, pools, with_holders};
use crate::layout::Layout;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// Pending copies between devices that the roots need, oldest first: each needs only older ones.
pub(super) fn pending_transfers(roots: &[Tensor]) -> Vec<Arc<Node>> {
    if !is_any_transfer_pending() {
        return Vec::new();
    }
    let mut seen: FxHashSet<*const Node> = FxHashSet::default();
    let mut found = Vec::new();
    let mut stack = roots.to_vec();
    while let Some(t) = stack.pop() {
        if t.value().is_some() || !seen.insert(Arc::as_ptr(&t.node)) {
            continue;
        }
        stack.extend(t.node.state.lock().inputs.iter().cloned());
        if matches!(t.node.op, Op::Transfer(_)) {
            found.push(t.node);
        }
    }
    found.sort_unstable_by_key(|n| n.id);
    found
}

/// Copies the value of a transfer's input, which is computed, to the other device.
pub(super) fn carry_out(node: &Arc<Node>) -> Result<()> {
    let Op::Transfer(to) = node.op else { return Err(Error::Internal("transfer: another op")) };
    let input = node.state.lock().inputs.first().cloned().ok_or(Error::Internal("transfer: without an input"))?;
    let value = input.computed()?;
    let spec = input.spec();
    if spec.dtype == DType::F64 && !to.is_cpu() {
        let message = format!("float64 runs on the CPU only; got float64 for {to}: use dtype=\"float32\", or device=\"cpu\"");
        return Err(Error::dtype("device", message));
    }
    let storage = new_storage(to, spec)?;
    let bytes = read_bytes(&value, spec.dtype.size_bytes())?;
    write_bytes(&storage, &bytes)?;
    node.state.lock().values[0] = Some(Value::new(storage, Layout::contiguous(&spec.shape)));
    node.complete();
    Ok(())
}

/// Writes bytes into a storage of its own.
pub fn write_bytes(storage: &Storage, bytes: &[u8]) -> Result<()> {
    let device = storage.device();
    match device.gpu_index() {
        None => {
            let to = storage.ptr(&pools(device).lock())?;
            // SAFETY: the storage is new and holds at least as many bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            Ok(())
        }
        Some(index) => {
            let buffer = storage.gpu(&pools(device).lock())?;
            gpu::gpu(index)?.upload(&buffer, 0, bytes).map_err(|error| with_holders(device, error))
        }
    }
}

/// The elements of a computed value in row-major order, on the host.
pub fn read_bytes(value: &Value, size: usize) -> Result<Vec<u8>> {
    let layout = &value.layout;
    let n = layout.shape.iter().product::<usize>();
    if n == 0 {
        return Ok(Vec::new());
    }
    // The window from the first to the last element that it reaches; what is not row-major is put in order on the host.
    let reach = |sign: isize| -> isize {
        let ends = layout.shape.iter().zip(&layout.strides).map(|(&d, &s)| (d as isize - 1) * s);
        ends.filter(|e| e * sign > 0).sum()
    };
    let (low, high) = (reach(-1), reach(1));
    let first = (layout.offset as isize + low) as usize * size;
    let mut window = Vec::new();
    let bytes = (high - low + 1) as usize * size;
    window.try_reserve_exact(bytes).map_err(|_| Error::no_room("read", bytes, 1))?;
    window.resize(bytes, 0);
    let device = value.storage.device();
    match device.gpu_index() {
        None => {
            let from = value.storage.ptr(&pools(device).lock())?;
            // SAFETY: the window lies inside the storage, which the value holds.
            unsafe { std::ptr::copy_nonoverlapping(from.add(first), window.as_mut_ptr(), window.len()) };
        }
        Some(index) => {
            let buffer = value.storage.gpu(&pools(device).lock())?;
            gpu::gpu(index)?.download(&buffer, first, &mut window).map_err(|error| with_holders(device, error))?;
        }
    }
    if layout.is_contiguous() {
        return Ok(window);
    }
    in_order(&window, (-low) as usize, layout, size)
}

/// The elements of a layout whose first one is element `start` of the window.
fn in_order(window: &[u8], start: usize, layout: &Layout, size: usize) -> Result<Vec<u8>> {
    let n: usize = layout.shape.iter().product();
    let mut out = Vec::new();
    // What broadcasts is longer than its storage.
    out.try_reserve_exact(n * size).map_err(|_| Error::no_room("read", n, size))?;
    let mut at = vec![0usize; layout.shape.len()];
    let mut from = start as isize;
    for _ in 0..n {
        let begin = from as usize * size;
        out.extend_from_slice(&window[begin..begin + size]);
        for axis in (0..at.len()).rev() {
            at[axis] += 1;
            from += layout.strides[axis];
            if at[axis] < layout.shape[axis] {
                break;
            }
            from -= layout.strides[axis] * layout.shape[axis] as isize;
            at[axis] = 0;
        }
    }
    Ok(out)
}
