//! The small IR of fused elementwise kernels: what the CPU runs tile by tile and a GPU turns into shader text.
use super::kind::{BinaryKind, UnaryKind};
use crate::dtype::DType;
use smallvec::SmallVec;

/// Most instructions in one fused kernel.
pub const MAX_INSTRS: usize = 64;
/// Most tensor bindings (inputs and outputs) in one fused kernel.
pub const MAX_BINDINGS: usize = 8;

/// Where an instruction's operand comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Src {
    /// Input tensor of the launch (its view is already broadcast to the iteration shape).
    Input(u8),
    /// A number among the launch's args, in the convention of the operand's dtype (`Scalar::to_arg`).
    Arg(u16),
    /// The result of an earlier instruction.
    Instr(u8),
}

/// The elementwise op of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EwOp {
    /// One operand.
    Unary(UnaryKind),
    /// Two operands of one dtype.
    Binary(BinaryKind),
    /// Condition (bool), a, b.
    Where,
    /// From the operand's dtype to the result's.
    Cast,
}

/// One instruction: its result has dtype `out` and is rounded to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Instr {
    /// What to compute.
    pub op: EwOp,
    /// The dtype of the operands (of a and b for `Where`, whose condition is bool).
    pub input: DType,
    /// The dtype of the result.
    pub out: DType,
    /// Operands, one to three.
    pub srcs: SmallVec<[Src; 3]>,
}

/// A fused elementwise expression. Inputs are read through their strides; the results listed in `outputs` are what the kernel gives.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Expr {
    /// The dtypes of the input tensors.
    pub inputs: SmallVec<[DType; 6]>,
    /// In order: an operand refers to earlier instructions only.
    pub instrs: Vec<Instr>,
    /// The results, with their dtypes.
    pub outputs: SmallVec<[(Src, DType); 2]>,
}

impl Expr {
    /// 32-bit words of the numbers among the launch's args that it reads: two of those that one does not hold.
    pub fn arg_words(&self) -> usize {
        let mut seen: SmallVec<[(u16, DType); 8]> = SmallVec::new();
        let operands = self.instrs.iter().flat_map(|instr| {
            let dtype = |i: usize| if instr.op == EwOp::Where && i == 0 { DType::Bool } else { instr.input };
            instr.srcs.iter().enumerate().map(move |(i, &src)| (src, dtype(i)))
        });
        for (src, dtype) in operands.chain(self.outputs.iter().copied()) {
            if let Src::Arg(arg) = src
                && !seen.contains(&(arg, dtype))
            {
                seen.push((arg, dtype));
            }
        }
        seen.into_iter().map(|(_, dtype)| arg_words(dtype)).sum()
    }
}

/// 32-bit words of a number of a type, as kernels are given it.
pub const fn arg_words(dtype: DType) -> usize {
    if matches!(dtype, DType::F32 | DType::I32 | DType::U8) { 1 } else { 2 }
}
