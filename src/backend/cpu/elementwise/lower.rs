//! From a fused expression to the straight-line program that the interpreter runs on tiles.
use super::isa::LANES;
use super::step::{StepOp, result_size, weight};
use crate::backend::expr::{EwOp, Expr, Instr, Moved, Src, is_half as is16};
use crate::backend::kind::{BinaryKind, UnaryKind};
use crate::dtype::DType;
use crate::error::{Error, Result};
use smallvec::SmallVec;

/// Bytes that a tile's registers, inputs and outputs may take together: they should stay in the first-level cache.
const TILE_BYTES: usize = 32 * 1024;
/// Bounds of a tile, in elements.
const TILE_MIN: usize = 512;
const TILE_MAX: usize = 4096;

/// A step with its operands and result, as slots.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// What to do.
    pub op: StepOp,
    /// Operand slots; unused ones repeat the first.
    pub srcs: [u16; 3],
    /// The slot of the result.
    pub dst: u16,
}

/// A program; its slots are the inputs, the constants, the outputs and the registers, in this order.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The dtypes of the inputs.
    pub inputs: SmallVec<[DType; 6]>,
    /// Launch args read as numbers of a dtype.
    pub consts: SmallVec<[(u16, DType); 4]>,
    /// The dtypes of what is stored for each output.
    pub outs: SmallVec<[DType; 2]>,
    /// The steps.
    pub steps: Vec<Step>,
    /// Registers needed.
    pub regs: usize,
    /// Bytes of the widest register element.
    pub reg_size: usize,
    /// Rough cost per element, in units of an addition.
    pub weight: usize,
    /// The number of launch args read.
    pub args: usize,
    /// Elements of a tile, a multiple of `LANES`.
    pub tile: usize,
}

impl Program {
    /// Lowers an expression. If `wide`, 16-bit outputs are left as rounded f32.
    pub fn new(expr: &Expr, wide: bool) -> Result<Program> {
        let moved = if wide { Moved::default() } else { Moved::of(expr) };
        let (program, widened) = (Program::default(), SmallVec::new());
        Lowering { expr, wide, moved, program, values: Vec::new(), halves: Vec::new(), widened, steps: Vec::new() }.run()
    }

    /// Whether the one output is the first input as it is.
    pub fn is_plain(&self) -> bool {
        matches!(self.steps[..], [Step { op: StepOp::Copy(_), srcs: [0, ..], .. }]) && !self.inputs.is_empty()
    }

    /// The slot of the first output.
    pub fn first_out(&self) -> usize {
        self.inputs.len() + self.consts.len()
    }

    /// The slot of the first register.
    pub fn first_reg(&self) -> usize {
        self.first_out() + self.outs.len()
    }
}

/// Where a value lives while slots are not numbered yet.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Input(u16),
    Const(u16),
    Out(u16),
    Virtual(u16),
}

#[derive(Clone, Copy)]
struct Draft {
    op: StepOp,
    srcs: [Place; 3],
    dst: Place,
}

struct Lowering<'a> {
    expr: &'a Expr,
    wide: bool,
    moved: Moved,
    program: Program,
    /// Of each instruction: its value, and the value before rounding to 16 bits.
    values: Vec<(Place, Place)>,
    /// Of each instruction that only moves 16-bit floats: what it gives, as it is stored.
    halves: Vec<Option<Place>>,
    widened: SmallVec<[Option<Place>; 8]>,
    steps: Vec<Draft>,
}

impl Lowering<'_> {
    fn run(mut self) -> Result<Program> {
        self.program.inputs = self.expr.inputs.clone();
        self.widened = SmallVec::from_elem(None, self.expr.inputs.len());
        let expr = self.expr;
        for instr in &expr.instrs {
            self.instr(instr)?;
        }
        for (k, &(src, dtype)) in expr.outputs.iter().enumerate() {
            self.output(k as u16, src, dtype)?;
        }
        self.drop_unused();
        self.number();
        self.program.tile = tile(&self.program);
        self.program.weight = self.program.steps.iter().map(|s| weight(s.op)).sum::<usize>().max(1);
        Ok(self.program)
    }

    fn fresh(&self) -> Place {
        Place::Virtual(self.steps.len() as u16)
    }

    fn push(&mut self, op: StepOp, srcs: &[Place], dst: Place) -> Place {
        let at = |i: usize| srcs.get(i).or(srcs.first()).copied().unwrap_or(dst);
        self.steps.push(Draft { op, srcs: [at(0), at(1), at(2)], dst });
        dst
    }

    /// An operand as a register of the compute type of `dtype`.
    fn operand(&mut self, src: Src, dtype: DType) -> Result<Place> {
        match src {
            Src::Input(i) => {
                let i = usize::from(i);
                if self.expr.inputs.get(i) != Some(&dtype) {
                    return Err(Error::Internal("fused operand: input of another dtype"));
                }
                let raw = Place::Input(i as u16);
                if !is16(dtype) {
                    return Ok(raw);
                }
                if let Some(place) = self.widened[i] {
                    return Ok(place);
                }
                let dst = self.fresh();
                self.widened[i] = Some(dst);
                Ok(self.push(StepOp::Widen(dtype), &[raw], dst))
            }
            Src::Arg(a) => {
                self.program.args = self.program.args.max(usize::from(a) + 1);
                let found = self.program.consts.iter().position(|&c| c == (a, dtype));
                let at = found.unwrap_or(self.program.consts.len());
                if found.is_none() {
                    self.program.consts.push((a, dtype));
                }
                Ok(Place::Const(at as u16))
            }
            Src::Instr(k) => match (self.values.get(usize::from(k)), self.expr.instrs.get(usize::from(k))) {
                (Some(&(place, _)), Some(instr)) if instr.out == dtype => Ok(place),
                _ => Err(Error::Internal("fused operand: later instruction or another dtype")),
            },
        }
    }

    fn instr(&mut self, instr: &Instr) -> Result<()> {
        let op = step_op(instr)?;
        if self.moved.is_instr(self.values.len()) {
            return self.selection(instr);
        }
        let mut srcs: SmallVec<[Place; 3]> = SmallVec::new();
        for (k, &src) in instr.srcs.iter().enumerate() {
            let dtype = if instr.op == EwOp::Where && k == 0 { DType::Bool } else { instr.input };
            srcs.push(self.operand(src, dtype)?);
        }
        let exact = self.fresh();
        self.push(op, &srcs, exact);
        let mut value = exact;
        // A selection moves numbers that are rounded already.
        if is16(instr.out) && instr.op != EwOp::Where {
            let dst = self.fresh();
            value = self.push(StepOp::Round(instr.out), &[exact], dst);
        }
        self.values.push((value, exact));
        self.halves.push(None);
        Ok(())
    }

    /// One of two 16-bit floats, whose bits are moved.
    fn selection(&mut self, instr: &Instr) -> Result<()> {
        let &[condition, a, b] = &instr.srcs[..] else {
            return Err(Error::Internal("fused selection: operands"));
        };
        let condition = self.operand(condition, DType::Bool)?;
        let (a, b) = (self.half(a, instr.out)?, self.half(b, instr.out)?);
        let dst = self.fresh();
        let half = self.push(StepOp::Select(2), &[condition, a, b], dst);
        let dst = self.fresh();
        let value = self.push(StepOp::Widen(instr.out), &[half], dst);
        self.values.push((value, value));
        self.halves.push(Some(half));
        Ok(())
    }

    /// A 16-bit float as it is stored.
    fn half(&mut self, src: Src, dtype: DType) -> Result<Place> {
        let place = self.operand(src, dtype)?;
        let exact = match src {
            Src::Input(k) => return Ok(Place::Input(u16::from(k))),
            Src::Instr(k) => match self.halves[usize::from(k)] {
                Some(half) => return Ok(half),
                None => self.values[usize::from(k)].1,
            },
            Src::Arg(_) => place,
        };
        let dst = self.fresh();
        Ok(self.push(StepOp::Narrow(dtype), &[exact], dst))
    }

    fn output(&mut self, k: u16, src: Src, dtype: DType) -> Result<()> {
        let out = Place::Out(k);
        let stored = if self.wide { dtype.compute() } else { dtype };
        self.program.outs.push(stored);
        match src {
            Src::Input(i) if !(self.wide && is16(dtype)) => {
                if self.expr.inputs.get(usize::from(i)) != Some(&dtype) {
                    return Err(Error::Internal("fused output: input of another dtype"));
                }
                self.push(StepOp::Copy(dtype.size_bytes()), &[Place::Input(u16::from(i))], out);
            }
            Src::Instr(i) if is16(stored) && self.moved.is_instr(usize::from(i)) => {
                let half = self.half(src, dtype)?;
                if !self.redirect(half, out) {
                    self.push(StepOp::Copy(2), &[half], out);
                }
            }
            Src::Instr(i) if is16(stored) && self.operand(src, dtype).is_ok() => {
                let exact = self.values[usize::from(i)].1;
                self.push(StepOp::Narrow(dtype), &[exact], out);
            }
            _ => {
                let place = self.operand(src, dtype)?;
                if is16(stored) {
                    self.push(StepOp::Narrow(dtype), &[place], out);
                } else if !self.redirect(place, out) {
                    self.push(StepOp::Copy(stored.size_bytes()), &[place], out);
                }
            }
        }
        Ok(())
    }

    /// Lets the step that computes a virtual register write to an output instead.
    fn redirect(&mut self, place: Place, out: Place) -> bool {
        if !matches!(place, Place::Virtual(_)) {
            return false;
        }
        let swap = |p: &mut Place| {
            if *p == place {
                *p = out;
            }
        };
        for step in &mut self.steps {
            step.srcs.iter_mut().for_each(swap);
            swap(&mut step.dst);
        }
        for (value, exact) in &mut self.values {
            swap(value);
            swap(exact);
        }
        self.halves.iter_mut().flatten().for_each(swap);
        self.widened.iter_mut().flatten().for_each(swap);
        true
    }

    /// Removes steps whose results nobody reads, such as roundings before a narrowing store.
    fn drop_unused(&mut self) {
        let mut used: SmallVec<[bool; 64]> = SmallVec::from_elem(false, self.steps.len());
        for k in (0..self.steps.len()).rev() {
            let step = self.steps[k];
            if matches!(step.dst, Place::Out(_)) || used[k] {
                used[k] = true;
                for src in step.srcs {
                    if let Place::Virtual(v) = src {
                        used[usize::from(v)] = true;
                    }
                }
            }
        }
        let mut k = 0;
        self.steps.retain(|_| {
            k += 1;
            used[k - 1]
        });
    }

    /// Numbers the slots; a register is free again after the step of its last use.
    fn number(&mut self) {
        let p = &mut self.program;
        let first_reg = p.first_reg();
        let (ni, nc) = (p.inputs.len() as u16, p.consts.len() as u16);
        let mut homes: Vec<(u16, u16)> = Vec::new();
        let mut free: Vec<u16> = Vec::new();
        p.reg_size = 1;
        for k in 0..self.steps.len() {
            let step = self.steps[k];
            let slot = |place: Place, homes: &[(u16, u16)]| match place {
                Place::Input(i) => i,
                Place::Const(c) => ni + c,
                Place::Out(o) => ni + nc + o,
                Place::Virtual(v) => homes.iter().find(|h| h.0 == v).map_or(0, |h| h.1),
            };
            let srcs = step.srcs.map(|s| slot(s, &homes));
            // The result takes its register before the operands give theirs back: loops rely on disjoint memory.
            if let Place::Virtual(v) = step.dst {
                let reg = free.pop().unwrap_or_else(|| {
                    p.regs += 1;
                    (first_reg + p.regs - 1) as u16
                });
                homes.push((v, reg));
                p.reg_size = p.reg_size.max(result_size(step.op));
            }
            p.steps.push(Step { op: step.op, srcs, dst: slot(step.dst, &homes) });
            let later = &self.steps[k + 1..];
            for (i, src) in step.srcs.iter().enumerate() {
                let first = !step.srcs[..i].contains(src);
                if matches!(src, Place::Virtual(_)) && first && !later.iter().any(|s| s.srcs.contains(src)) {
                    free.push(srcs[i]);
                }
            }
        }
    }
}

/// The tile whose registers, inputs and outputs together fit the first-level cache, within bounds.
fn tile(program: &Program) -> usize {
    let stored = program.inputs.iter().chain(&program.outs).map(|d| d.size_bytes()).sum::<usize>();
    let per = program.regs * program.reg_size + stored;
    (TILE_BYTES / per.max(1)).clamp(TILE_MIN, TILE_MAX) / LANES * LANES
}

/// Checks an instruction and names its step.
fn step_op(instr: &Instr) -> Result<StepOp> {
    let reg = instr.input.compute();
    let (arity, out, op) = match instr.op {
        EwOp::Unary(k) => {
            let fits = if instr.input.is_float() { k != UnaryKind::BitNot } else { k.takes_ints() };
            if !fits {
                return Err(Error::Internal("fused unary op of an unsupported dtype"));
            }
            (1, if k.gives_bool() { DType::Bool } else { instr.input }, StepOp::Unary(k, reg))
        }
        EwOp::Binary(k) => {
            let k = binary_kind(k, instr.input).ok_or(Error::Internal("fused binary op of an unsupported dtype"))?;
            (2, if k.gives_bool() { DType::Bool } else { instr.input }, StepOp::Binary(k, reg))
        }
        EwOp::Where => (3, instr.input, StepOp::Select(reg.size_bytes())),
        EwOp::Cast => (1, instr.out, StepOp::Cast(reg, instr.out)),
    };
    if instr.srcs.len() != arity || instr.out != out {
        return Err(Error::Internal("fused instruction: operands or result dtype"));
    }
    Ok(op)
}

/// The kind to run for a dtype: bool has its own meaning of some, and not every pair exists.
fn binary_kind(kind: BinaryKind, dtype: DType) -> Option<BinaryKind> {
    use BinaryKind::*;
    let bits = matches!(kind, And | Or | Xor | Shl | Shr);
    match dtype {
        DType::Bool => match kind {
            Add | Maximum => Some(Or),
            Mul | Minimum | ReluGrad => Some(And),
            Sub => Some(Xor),
            Div | FloorDiv | Rem | Pow | Arctan2 | Shl | Shr => None,
            k => Some(k),
        },
        d if d.is_float() => (!bits).then_some(kind),
        _ => (!matches!(kind, Div | Arctan2)).then_some(kind),
    }
}
