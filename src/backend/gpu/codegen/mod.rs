//! Generated kernels: elementwise expressions and reductions of them as WGSL.
mod axes;
mod ending;
mod expression;
mod fold;
mod form;
mod fused;
mod library;
mod numbers;
mod operators;
mod reduce;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;

pub use axes::Axes;
pub use ending::{Epilogue, ending};
pub use fused::fused;
pub use reduce::reduce;
