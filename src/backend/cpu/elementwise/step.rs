//! What one step of a program does, what it costs, and the loop that does it.
use super::isa::{Io, Isa};
use super::{binary, cast, unary};
use crate::backend::kind::{BinaryKind, UnaryKind};
use crate::dtype::DType;

/// What one step of the program does to whole registers; dtypes are those that registers hold unless 16-bit storage is meant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum StepOp {
    /// One operand.
    Unary(UnaryKind, DType),
    /// Two operands.
    Binary(BinaryKind, DType),
    /// Selection among elements of some bytes.
    Select(usize),
    /// Conversion.
    Cast(DType, DType),
    /// 16-bit storage to f32.
    Widen(DType),
    /// f32 to 16-bit storage.
    Narrow(DType),
    /// f32 rounded to a 16-bit type.
    Round(DType),
    /// Elements of some bytes as they are.
    Copy(usize),
}

/// Bytes of an element of a step's result.
pub fn result_size(op: StepOp) -> usize {
    match op {
        StepOp::Unary(k, _) if k.gives_bool() => 1,
        StepOp::Binary(k, _) if k.gives_bool() => 1,
        StepOp::Unary(_, d) | StepOp::Binary(_, d) => d.size_bytes(),
        StepOp::Select(n) | StepOp::Copy(n) => n,
        StepOp::Cast(_, to) => to.compute().size_bytes(),
        StepOp::Widen(_) | StepOp::Round(_) => 4,
        StepOp::Narrow(_) => 2,
    }
}

/// The cost of a step relative to an addition.
pub fn weight(op: StepOp) -> usize {
    match op {
        StepOp::Unary(k, d) if !k.is_cheap() => {
            if d == DType::F64 {
                32
            } else {
                8
            }
        }
        StepOp::Binary(k, _) if !k.is_cheap() => 32,
        _ => 1,
    }
}

/// Runs one step.
///
/// # Safety
/// `io` describes whole blocks of the step's operand and result types, the result disjoint from the operands.
#[inline]
pub unsafe fn run_step(isa: Isa, op: StepOp, io: &Io) {
    // SAFETY: the caller's promise is passed on.
    unsafe {
        match op {
            StepOp::Unary(k, DType::F64) => unary::f64(isa, k, io),
            StepOp::Unary(k, DType::I32) => unary::i32(isa, k, io),
            StepOp::Unary(k, DType::I64) => unary::i64(isa, k, io),
            StepOp::Unary(k, d @ (DType::Bool | DType::U8)) => unary::u8(d == DType::Bool, k, io),
            StepOp::Unary(k, _) if unary::is_long(k) => unary::f32_long(isa, k, io),
            StepOp::Unary(k, _) => unary::f32(isa, k, io),
            StepOp::Binary(k, DType::F64) => binary::f64(isa, k, io),
            StepOp::Binary(k, DType::I32) => binary::i32(isa, k, io),
            StepOp::Binary(k, DType::I64) => binary::i64(isa, k, io),
            StepOp::Binary(k, DType::Bool | DType::U8) => binary::u8(isa, k, io),
            StepOp::Binary(k, _) => binary::f32(isa, k, io),
            StepOp::Select(size) => cast::select(isa, size, io),
            StepOp::Cast(from, to) => cast::cast(isa, from, to, io),
            StepOp::Widen(d) => cast::widen(isa, d, io),
            StepOp::Narrow(d) => cast::narrow(isa, d, io),
            StepOp::Round(d) => cast::round16(isa, d, io),
            StepOp::Copy(size) => cast::copy(size, io),
        }
    }
}
