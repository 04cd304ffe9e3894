//! Kernels of a family of their own: which shaders an op becomes.
use super::launch::Steps;
use crate::backend::op::Op;
use crate::error::{Error, Result};

/// Adds the dispatches of an op.
pub fn prepare(op: &Op, _steps: &mut Steps) -> Result<()> {
    let _ = op;
    Err(Error::Internal("gpu: an op that no shader runs"))
}
