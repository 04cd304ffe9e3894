//! Units of work: what plans and reports count in.
use super::Launch;
use crate::backend::Kernel;
use crate::backend::op::Op;
use crate::shape::elems;

/// Work of a launch: 2mnk for a product, else 4 for each element moved.
pub(super) fn work(launch: &Launch) -> u64 {
    let moved: usize = launch.ins.iter().chain(launch.results()).map(|o| elems(&o.layout.shape)).sum();
    match &launch.kernel {
        Kernel::Op(Op::MatMul) => {
            let k = launch.ins.first().and_then(|a| a.layout.shape.last().copied()).unwrap_or(0);
            2 * (elems(&launch.shape) * k) as u64
        }
        _ => 4 * moved as u64,
    }
}
