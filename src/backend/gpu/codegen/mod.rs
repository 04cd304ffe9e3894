//! Generated kernels: elementwise expressions and reductions of them as WGSL.
use super::launch::{Caps, Dispatch, Steps, View};
use crate::backend::expr::Expr;
use crate::backend::kind::ReduceKind;
use crate::error::{Error, Result};

/// The dispatch of a fused elementwise expression over `shape`; outputs are row-major.
pub fn fused(_expr: &Expr, _shape: &[usize], _ins: &[View], _outs: &[View], _caps: Caps) -> Result<Dispatch> {
    Err(Error::Internal("gpu: fused"))
}

/// The dispatches of a reduction over the axes in `mask` of an expression over the steps' shape.
pub fn reduce(_kind: ReduceKind, _mask: u32, _expr: &Expr, _steps: &mut Steps) -> Result<()> {
    Err(Error::Internal("gpu: reduce"))
}
