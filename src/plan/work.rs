//! Units of work: what plans and reports count in.
use super::Launch;
use crate::backend::Kernel;
use crate::backend::op::Op;
use crate::shape::elems;

/// Work of a launch: 2mnk for a product, and 4 for each element moved by its epilogue if it has one, or by any other kernel.
pub(super) fn work(launch: &Launch) -> u64 {
    let moved = |factors: usize| -> u64 {
        let operands = launch.ins.iter().skip(factors).chain(launch.results());
        4 * operands.map(|o| elems(&o.layout.shape)).sum::<usize>() as u64
    };
    let product = || {
        let k = launch.ins.first().and_then(|a| a.layout.shape.last().copied()).unwrap_or(0);
        2 * (elems(&launch.shape) * k) as u64
    };
    match &launch.kernel {
        Kernel::Op(Op::MatMul(_)) => product(),
        Kernel::MatMul(..) => product() + moved(2),
        _ => moved(0),
    }
}
