//! The narrow seam between plans and devices: kernels as data, and what a device must do with them.
pub mod clock;
pub mod cpu;
pub mod expr;
pub mod gpu;
pub mod kind;
pub mod op;
pub mod transfers;

use expr::Expr;
use kind::{Precision, ReduceKind};
use op::Op;

/// Most terms of the sums of a product with an epilogue none of whose outputs has elements of the product's size.
pub const MAX_UNSTORED_TERMS: usize = 1 << 16;

/// What one launch runs, by family.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kernel {
    /// An elementwise expression over the outputs' shape; all outputs are row-major and of one shape.
    Fused(Expr),
    /// A reduction over the axes in the mask (of the inputs' shape) of an expression with one output.
    Reduce(ReduceKind, u32, Expr),
    /// A matrix product of the first two inputs with an epilogue: the expression's first input is the product's elements, the others are
    /// the further inputs of the launch, over the outputs' shape.
    MatMul(Precision, Expr),
    /// A kernel of a family of its own.
    Op(Op),
}

/// A kernel made ready to run many times on one device.
#[derive(Debug)]
pub enum Prepared {
    /// On the CPU.
    Cpu(cpu::Prepared),
    /// On an adapter.
    Gpu(gpu::Ready),
}
