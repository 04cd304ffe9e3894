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

/// Whether a type is one of the 16-bit floats.
pub const fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Which 16-bit floats reach an output as they are or through selections alone: these stay bits, since a conversion there and back makes
/// a NaN quiet or forgets what it carries.
#[derive(Debug, Default)]
pub struct Moved {
    inputs: SmallVec<[bool; 8]>,
    instrs: Vec<bool>,
}

impl Moved {
    /// Those of an expression.
    pub fn of(expr: &Expr) -> Moved {
        let inputs = SmallVec::from_elem(false, expr.inputs.len());
        let mut moved = Moved { inputs, instrs: vec![false; expr.instrs.len()] };
        for &(src, dtype) in &expr.outputs {
            moved.mark(src, dtype, expr);
        }
        for (k, instr) in expr.instrs.iter().enumerate().rev() {
            if moved.instrs[k] {
                instr.srcs.iter().skip(1).for_each(|&src| moved.mark(src, instr.out, expr));
            }
        }
        moved
    }

    fn mark(&mut self, src: Src, dtype: DType, expr: &Expr) {
        match src {
            Src::Input(k) if is_half(dtype) && expr.inputs.get(usize::from(k)) == Some(&dtype) => {
                self.inputs[usize::from(k)] = true;
            }
            Src::Instr(k) if is_half(dtype) && expr.instrs.get(usize::from(k)).is_some_and(|i| i.op == EwOp::Where) => {
                self.instrs[usize::from(k)] = true;
            }
            _ => {}
        }
    }

    /// Whether the bits of an input are wanted.
    pub fn is_input(&self, k: usize) -> bool {
        self.inputs.get(k).copied().unwrap_or(false)
    }

    /// Whether an instruction moves what it gives: a selection.
    pub fn is_instr(&self, k: usize) -> bool {
        self.instrs.get(k).copied().unwrap_or(false)
    }
}

/// 32-bit words of a number of a type, as kernels are given it.
pub const fn arg_words(dtype: DType) -> usize {
    if matches!(dtype, DType::F32 | DType::I32 | DType::U8) { 1 } else { 2 }
}
