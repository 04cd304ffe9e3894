//! A fused expression as WGSL: a line for each instruction, on registers that hold four elements.
use super::numbers::Numbers;
use super::operators::{self, Register};
use crate::backend::expr::{EwOp, Expr, Instr, Moved, Src, arg_words, is_half};
use crate::backend::gpu::launch::{Caps, Word, elem};
use crate::backend::gpu::text::{Elem, Number};
use crate::dtype::DType;
use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::fmt::Write;

/// The text of an expression while it is written. Input k is expected in `x_k`, and in `half_k` where it is moved.
pub struct Lines<'a> {
    expr: &'a Expr,
    moved: &'a Moved,
    caps: Caps,
    /// The instructions so far.
    pub text: String,
    /// The scalars, which do not change within a launch.
    pub scalars: String,
    args: SmallVec<[(u16, DType); 4]>,
    is_rounded: Vec<bool>,
}

/// The register of a dtype, or why there is none.
pub fn register(dtype: DType) -> Result<Register> {
    Register::of(dtype).ok_or_else(|| {
        Error::value("gpu", format!("{dtype} is computed on the CPU only: convert to float32, or move to \"cpu\""))
    })
}

/// How a tensor is bound: packed elements as words, which kernels take apart themselves.
pub fn bound(dtype: DType, caps: Caps) -> Elem {
    match elem(dtype, false, caps) {
        packed if packed.per_word() > 1 => Elem::Word,
        other => other,
    }
}

/// A value rounded to a 16-bit float type.
fn rounded(dtype: DType, value: &str) -> String {
    match dtype {
        DType::F16 => format!("round_f16_4({value})"),
        DType::BF16 => format!("round_bf16_4({value})"),
        _ => value.to_owned(),
    }
}

/// A 16-bit float type's elements, as a tensor holds them, of numbers that need not be rounded.
fn halved(dtype: DType, value: &str, caps: Caps) -> String {
    match dtype {
        DType::F16 if caps.f16 => format!("vec4<f16>({value})"),
        DType::F16 => format!("f16_bits4({value})"),
        _ => format!("bf16_bits4({value})"),
    }
}

/// The numbers that such elements are.
pub fn widened(dtype: DType, value: &str, caps: Caps) -> String {
    match dtype {
        DType::F16 if caps.f16 => format!("vec4f({value})"),
        DType::F16 => format!("f16_value4({value})"),
        _ => format!("bf16_value4({value})"),
    }
}

impl<'a> Lines<'a> {
    /// Writes every instruction; scalars are declared among the numbers.
    pub fn new(expr: &'a Expr, moved: &'a Moved, caps: Caps, numbers: &mut Numbers) -> Result<Lines<'a>> {
        let (text, scalars) = (String::new(), String::new());
        let mut lines = Lines { expr, moved, caps, text, scalars, args: SmallVec::new(), is_rounded: Vec::new() };
        for (k, instr) in expr.instrs.iter().enumerate() {
            lines.instr(k, instr, numbers)?;
        }
        Ok(lines)
    }

    fn instr(&mut self, k: usize, instr: &Instr, numbers: &mut Numbers) -> Result<()> {
        if self.moved.is_instr(k) {
            return self.selection(k, instr, numbers);
        }
        let dtype = |i: usize| if instr.op == EwOp::Where && i == 0 { DType::Bool } else { instr.input };
        let mut at: SmallVec<[String; 3]> = SmallVec::new();
        for (i, &src) in instr.srcs.iter().enumerate() {
            at.push(self.operand(src, dtype(i), numbers)?);
        }
        let from = register(instr.input)?;
        register(instr.out)?;
        let value = match (instr.op, &at[..]) {
            (EwOp::Unary(kind), [a]) => operators::unary(kind, from, a),
            (EwOp::Binary(kind), [a, b]) => operators::binary(kind, from, a, b),
            (EwOp::Where, [c, a, b]) => Some(operators::choice(from, c, a, b)),
            (EwOp::Cast, [a]) => Some(operators::cast(from, instr.out, a)),
            _ => None,
        };
        let value = value.ok_or(Error::Internal("gpu: a fused op of an unsupported dtype"))?;
        // A selection moves numbers that are rounded already; other results are rounded where somebody needs them so.
        self.is_rounded.push(!is_half(instr.out) || instr.op == EwOp::Where);
        let name = if self.is_rounded[k] { format!("v_{k}") } else { format!("exact_{k}") };
        let _ = writeln!(self.text, "    let {name} = {value};");
        Ok(())
    }

    /// One of two 16-bit floats as they are.
    fn selection(&mut self, k: usize, instr: &Instr, numbers: &mut Numbers) -> Result<()> {
        let &[condition, a, b] = &instr.srcs[..] else {
            return Err(Error::Internal("gpu: a fused selection without three operands"));
        };
        let condition = self.operand(condition, DType::Bool, numbers)?;
        let (a, b) = (self.half(a, instr.out, numbers)?, self.half(b, instr.out, numbers)?);
        self.is_rounded.push(false);
        let _ = writeln!(self.text, "    let half_of_{k} = select({b}, {a}, {condition});");
        Ok(())
    }

    /// A 16-bit float as an output or a selection takes it: an element of a tensor. What was computed comes unrounded: this rounds it.
    pub fn half(&mut self, src: Src, dtype: DType, numbers: &mut Numbers) -> Result<String> {
        match src {
            Src::Input(k) if self.moved.is_input(usize::from(k)) => Ok(format!("half_{k}")),
            Src::Instr(k) if self.moved.is_instr(usize::from(k)) => Ok(format!("half_of_{k}")),
            Src::Instr(k) => match self.expr.instrs.get(usize::from(k)) {
                Some(i) if i.out == dtype && i.op != EwOp::Where => Ok(halved(dtype, &format!("exact_{k}"), self.caps)),
                _ => Err(Error::Internal("gpu: a fused operand of another dtype")),
            },
            _ => Ok(halved(dtype, &self.operand(src, dtype, numbers)?, self.caps)),
        }
    }

    /// The name of an operand: of a 16-bit float the number that it is rounded to.
    pub fn operand(&mut self, src: Src, dtype: DType, numbers: &mut Numbers) -> Result<String> {
        match src {
            Src::Input(k) if self.expr.inputs.get(usize::from(k)) == Some(&dtype) => Ok(format!("x_{k}")),
            Src::Arg(a) => self.scalar(a, dtype, numbers),
            Src::Instr(k) => {
                let at = usize::from(k);
                if at >= self.is_rounded.len() || self.expr.instrs[at].out != dtype {
                    return Err(Error::Internal("gpu: a fused operand of another dtype, or a later one"));
                }
                if !std::mem::replace(&mut self.is_rounded[at], true) {
                    let value = match self.moved.is_instr(at) {
                        true => widened(dtype, &format!("half_of_{k}"), self.caps),
                        false => rounded(dtype, &format!("exact_{k}")),
                    };
                    let _ = writeln!(self.text, "    let v_{k} = {value};");
                }
                Ok(format!("v_{k}"))
            }
            Src::Input(_) => Err(Error::Internal("gpu: a fused input of another dtype")),
        }
    }

    fn scalar(&mut self, arg: u16, dtype: DType, numbers: &mut Numbers) -> Result<String> {
        let kind = register(dtype)?;
        let name = format!("arg_{arg}_{dtype}");
        if self.args.contains(&(arg, dtype)) {
            return Ok(name);
        }
        let (low, high) = (format!("{name}_low"), format!("{name}_high"));
        let has = |numbers: &mut Numbers, word: Word, name: &String| numbers.word(name.clone(), Number::U32, word);
        if dtype == DType::F32 {
            numbers.word(low.clone(), Number::F32, Word::Float(arg));
        } else {
            has(numbers, Word::Low(arg), &low);
        }
        if arg_words(dtype) > 1 {
            has(numbers, Word::High(arg), &high);
        }
        let value = match (kind, dtype) {
            (Register::Float, DType::F32) => format!("vec4f({low})"),
            (Register::Float, _) => rounded(dtype, &format!("odd_of_f64_4(vec4u({low}), vec4u({high}))")),
            (Register::Int, _) => format!("vec4i(bitcast<i32>({low}))"),
            (Register::Byte, _) => format!("vec4u({low} & 255u)"),
            (Register::Truth, _) => format!("vec4<bool>(({low} | {high}) != 0u)"),
            (Register::Long, _) => format!("Long(vec4u({low}), vec4u({high}))"),
        };
        let _ = writeln!(self.scalars, "    let {name} = {value};");
        self.args.push((arg, dtype));
        Ok(name)
    }
}

/// How four elements of a register lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lanes {
    /// Anywhere.
    Apart,
    /// Two pairs of neighbours.
    Pairs,
    /// Four neighbours.
    Row,
}

/// A function `read_NAME` that reads four elements of a binding at positions of which `lanes` is known.
pub fn reader(name: &str, dtype: DType, lanes: Lanes, caps: Caps, text: &mut String) -> Result<()> {
    let to = register(dtype)?.name();
    let all = |from: &str| format!("{from}({name}[at.x], {name}[at.y], {name}[at.z], {name}[at.w])");
    let body = match dtype {
        DType::F32 | DType::I32 => format!("    return {};", all(to)),
        DType::I64 => format!(
            "    let a = {name}[at.x];\n    let b = {name}[at.y];\n    let c = {name}[at.z];\n    let d = {name}[at.w];\n    \
             return Long(vec4u(a.x, b.x, c.x, d.x), vec4u(a.y, b.y, c.y, d.y));"
        ),
        DType::F16 if caps.f16 => format!("    return vec4f({});", all("vec4<f16>")),
        DType::F16 | DType::BF16 => {
            let value = if dtype == DType::F16 { "f16_value4" } else { "bf16_value4" };
            let words = packed_words(name, 1, lanes);
            format!("{words}    return {value}({HALVES});")
        }
        DType::U8 | DType::Bool => {
            let words = packed_words(name, 2, lanes);
            let test = if dtype == DType::Bool { " != vec4u(0u)" } else { "" };
            format!("{words}    return ((words >> (vec4u(8u) * (at & vec4u(3u)))) & vec4u(0xffu)){test};")
        }
        DType::F64 => return Err(Error::Internal("gpu: float64")),
    };
    let _ = writeln!(text, "fn read_{name}(at: vec4u) -> {to} {{\n{body}\n}}");
    Ok(())
}

/// The same for a kernel that only moves elements: 16-bit floats as they lie.
pub fn mover(name: &str, dtype: DType, lanes: Lanes, caps: Caps, text: &mut String) -> Result<()> {
    let (to, body) = match elem(dtype, false, caps) {
        Elem::Half => {
            let all = format!("vec4<f16>({name}[at.x], {name}[at.y], {name}[at.z], {name}[at.w])");
            ("vec4<f16>", format!("    return {all};"))
        }
        Elem::F16 | Elem::BF16 => ("vec4u", format!("{}    return {};", packed_words(name, 1, lanes), HALVES)),
        _ => return reader(name, dtype, lanes, caps, text),
    };
    let _ = writeln!(text, "fn read_{name}(at: vec4u) -> {to} {{\n{body}\n}}");
    Ok(())
}

/// Each lane's half of the word that it loaded.
const HALVES: &str = "(words >> (vec4u(16u) * (at & vec4u(1u)))) & vec4u(0xffffu)";

/// Lines that load the word of each lane; where lanes are known to share words, these are loaded once.
fn packed_words(name: &str, shift: u32, lanes: Lanes) -> String {
    let word = |lane: &str| format!("{name}[at.{lane} >> {shift}u]");
    let (x, y, z, w) = (word("x"), word("y"), word("z"), word("w"));
    match (lanes, shift) {
        (Lanes::Row, 2) => format!(
            "    var words = vec4u({x});\n    if ((at.x & 3u) != 0u) {{\n        words = vec4u(words.x, {y}, {z}, {w});\n    }}\n"
        ),
        (Lanes::Pairs | Lanes::Row, 1) => format!(
            "    var words = vec4u({x}, 0u, {z}, 0u);\n    words = words.xxzz;\n    if ((at.x & 1u) != 0u) {{\n        \
             words = vec4u(words.x, {y}, words.z, {w});\n    }}\n"
        ),
        _ => format!("    let words = vec4u({x}, {y}, {z}, {w});\n"),
    }
}
