//! Fused elementwise kernels: a program per expression, run tile by tile in cache.
mod binary;
#[cfg(test)]
mod cases;
mod cast;
mod gather;
pub(crate) mod isa;
mod lower;
pub(crate) mod machine;
#[cfg(test)]
mod reference;
mod step;
mod stream;
#[cfg(test)]
mod tests;
mod unary;

use super::parallel;
use super::view::View;
use crate::backend::expr::Expr;
use crate::error::{Error, Result};
use isa::LANES;
pub(crate) use lower::Program;
use machine::Machine;
use smallvec::SmallVec;

/// Work, in additions, below which other threads are not worth waking.
const THREAD_WORK: usize = 128 * 1024;
/// Work, in additions, of the largest piece: the user's interrupt is looked for between pieces.
const MAX_PIECE_WORK: usize = 64 << 20;
/// Work, in additions, of a piece that a thread takes at once.
const PIECE_WORK: usize = 64 * 1024;

/// A fused elementwise kernel, prepared once and run at each step.
#[derive(Clone, Debug)]
pub struct FusedProgram {
    program: Program,
}

/// Output addresses that threads may share: each writes its own range.
struct Outs(SmallVec<[*mut u8; 4]>);

// SAFETY: every thread writes only elements of its own range.
unsafe impl Sync for Outs {}

impl Outs {
    fn all(&self) -> &[*mut u8] {
        &self.0
    }
}

impl FusedProgram {
    /// Prepares an expression; one that no kernel covers is an internal error.
    pub fn new(expr: &Expr) -> Result<FusedProgram> {
        Ok(FusedProgram { program: Program::new(expr, false)? })
    }

    /// Computes every output, element by element. Inputs have the outputs' shape; outputs are row-major, and may be an input's memory
    /// if its layout is the same.
    pub fn run(&self, ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
        let p = &self.program;
        let dtypes =
            ins.iter().map(|v| v.dtype).eq(p.inputs.iter().copied()) && outs.iter().map(|v| v.dtype).eq(p.outs.iter().copied());
        let Some(first) = outs.first() else { return Ok(()) };
        if !dtypes
            || args.len() < p.args
            || ins.iter().chain(outs).any(|v| !std::ptr::eq(v.shape, first.shape) && v.shape != first.shape)
        {
            return Err(Error::Internal("fused launch: tensors do not fit the kernel"));
        }
        let total = first.elems();
        if total == 0 {
            return Ok(());
        }
        let ptrs = Outs(outs.iter().map(|v| v.ptr).collect());
        let work = total.saturating_mul(p.weight);
        if work < THREAD_WORK || (rayon::current_num_threads() < 2 && work < MAX_PIECE_WORK) {
            // SAFETY: the plan vouches for the views; shapes and dtypes were compared above.
            unsafe { Machine::new(p, ins, args, total, ptrs.all()).eval(0, total, ptrs.all(), false) };
            return Ok(());
        }
        let pieces = (work / PIECE_WORK).clamp(2, rayon::current_num_threads() * 4).max(work / MAX_PIECE_WORK);
        let piece = total.div_ceil(pieces).next_multiple_of(LANES);
        parallel::for_each(total.div_ceil(piece), |k| {
            let start = k * piece;
            let at: SmallVec<[*mut u8; 4]> =
                ptrs.all().iter().zip(&p.outs).map(|(o, d)| o.wrapping_add(start * d.size_bytes())).collect();
            // SAFETY: as above; pieces are disjoint.
            unsafe { Machine::new(p, ins, args, total, ptrs.all()).eval(start, piece.min(total - start), &at, false) };
        });
        Ok(())
    }
}

/// Prepares and runs an expression at once.
#[cfg(test)]
pub(crate) fn run_fused(expr: &Expr, ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
    FusedProgram::new(expr)?.run(ins, outs, args)
}

/// The bits of x rounded once to a 16-bit float type.
pub(crate) fn round_bits(x: f64, dtype: crate::dtype::DType) -> u16 {
    let odd = cast::to_odd(x);
    if dtype == crate::dtype::DType::F16 { cast::f16_bits(odd) } else { cast::bf16_bits(odd) }
}
