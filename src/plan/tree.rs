//! The expression of one kernel under construction, with what it reads.
use super::Operand;
use crate::backend::expr::{Expr, Instr, MAX_BINDINGS, MAX_INSTRS, Src};
use smallvec::SmallVec;

/// A kernel's expression under construction, with what it reads.
#[derive(Default)]
pub(super) struct Tree {
    pub expr: Expr,
    pub ins: Vec<Operand>,
    pub args: Vec<u32>,
    /// Nodes that have an instruction already.
    pub done: SmallVec<[(u32, u8); 8]>,
}

impl Tree {
    /// A number among the plan's args.
    pub fn arg(&mut self, arg: u32) -> Src {
        let at = self.args.iter().position(|&a| a == arg).unwrap_or_else(|| {
            self.args.push(arg);
            self.args.len() - 1
        });
        Src::Arg(at as u16)
    }

    /// A tensor.
    pub fn input(&mut self, operand: Operand) -> Src {
        let known = self.ins.iter().position(|o| o.loc == operand.loc && o.layout == operand.layout && o.dtype == operand.dtype);
        Src::Input(known.unwrap_or_else(|| {
            self.expr.inputs.push(operand.dtype);
            self.ins.push(operand);
            self.ins.len() - 1
        }) as u8)
    }

    /// Whether it can become a further output of another kernel, which may read so many words of numbers.
    pub fn fits_into(&self, expr: &Expr, ins: &[Operand], most_words: usize) -> bool {
        let new = self.ins.iter().filter(|a| !ins.iter().any(|b| a.loc == b.loc && a.layout == b.layout)).count();
        expr.instrs.len() + self.expr.instrs.len() <= MAX_INSTRS
            && ins.len() + new + expr.outputs.len() < MAX_BINDINGS
            && (self.expr.arg_words() == 0 || expr.arg_words() + self.expr.arg_words() <= most_words)
    }

    /// Appends it to another kernel; instructions that are there already are shared.
    pub fn merge_into(&self, expr: &mut Expr, ins: &mut Vec<Operand>, args: &mut Vec<u32>) {
        let mut instrs: Vec<u8> = Vec::with_capacity(self.expr.instrs.len());
        let mut place = |src: Src, instrs: &[u8], expr: &mut Expr| match src {
            Src::Instr(k) => Src::Instr(instrs[k as usize]),
            Src::Arg(k) => {
                let arg = self.args[k as usize];
                let at = args.iter().position(|&a| a == arg).unwrap_or_else(|| {
                    args.push(arg);
                    args.len() - 1
                });
                Src::Arg(at as u16)
            }
            Src::Input(k) => {
                let operand = &self.ins[k as usize];
                let known =
                    ins.iter().position(|o| o.loc == operand.loc && o.layout == operand.layout && o.dtype == operand.dtype);
                Src::Input(known.unwrap_or_else(|| {
                    expr.inputs.push(operand.dtype);
                    ins.push(operand.clone());
                    ins.len() - 1
                }) as u8)
            }
        };
        for instr in &self.expr.instrs {
            let srcs = instr.srcs.iter().map(|&s| place(s, &instrs, expr)).collect();
            let new = Instr { srcs, ..instr.clone() };
            let at = expr.instrs.iter().position(|old| *old == new).unwrap_or_else(|| {
                expr.instrs.push(new);
                expr.instrs.len() - 1
            });
            instrs.push(at as u8);
        }
        for &(src, dtype) in &self.expr.outputs {
            let src = place(src, &instrs, expr);
            expr.outputs.push((src, dtype));
        }
    }
}
