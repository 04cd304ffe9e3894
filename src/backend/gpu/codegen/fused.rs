//! Elementwise kernels: every thread computes four elements and writes whole words.
use super::axes::Axes;
use super::expression::{Lanes, Lines, bound, mover, reader, register, widened};
use super::library;
use super::numbers::Numbers;
use crate::backend::expr::{Expr, Moved, Src, is_half};
use crate::backend::gpu::launch::{Caps, Dispatch, Slot, View, Word, elem, spread};
use crate::backend::gpu::text::{Number, Source};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::elems;
use smallvec::SmallVec;
use std::fmt::Write;

/// Threads of a workgroup.
pub const GROUP: usize = 256;
/// Elements of a thread.
pub const LANES: usize = 4;
/// Workgroups may reach past the last element: their positions must still fit 32 bits.
const MAX_ELEMS: usize = u32::MAX as usize - (1 << 20);

/// A fused expression but for which elements a thread has: positions `i`, of which those below `total` count and `inside` are like them.
pub struct Parts {
    /// The tensors.
    pub source: Source,
    /// What they are.
    pub slots: SmallVec<[Slot; 8]>,
    /// The numbers.
    pub numbers: Numbers,
    /// Functions that its lines call.
    pub functions: String,
    /// Loads, instructions and stores.
    pub lines: String,
}

impl Parts {
    /// The parts of an expression over `shape`, with bindings and numbers added to those of `source` and to `numbers`. `is_given` says that
    /// input 0, row-major, is in `x_0`.
    pub fn new(
        expr: &Expr,
        ins: &[View],
        outs: &[View],
        shape: &[usize],
        (mut source, mut numbers): (Source, Numbers),
        is_given: bool,
        caps: Caps,
    ) -> Result<Parts> {
        check(expr, shape, ins, outs)?;
        let per_word = per_word(outs, caps);
        // Input 0 is given as a number.
        let is_moved = !is_given && is_moved(expr);
        let moved = if is_moved { Moved::default() } else { Moved::of(expr) };
        let strides: SmallVec<[&[isize]; 8]> = ins.iter().map(|v| v.strides).collect();
        let axes = Axes::merged(shape, &strides, 0..shape.len());
        let (mut slots, mut functions) = (SmallVec::new(), String::new());
        for (k, view) in ins.iter().enumerate().skip(usize::from(is_given)) {
            source = source.reads(format!("in_{k}"), bound(view.dtype, caps));
            slots.push(view.slot);
            numbers.word(format!("start_in_{k}"), Number::U32, Word::Offset(view.slot, view.dtype.size_bytes()));
            let lanes = if axes.is_flat(k) && !axes.is_constant(k) { lanes(per_word) } else { Lanes::Apart };
            let read = if is_moved || moved.is_input(k) { mover } else { reader };
            read(&format!("in_{k}"), view.dtype, lanes, caps, &mut functions)?;
        }
        for (k, view) in outs.iter().enumerate() {
            source = source.writes(format!("out_{k}"), bound(view.dtype, caps));
            slots.push(view.slot);
            numbers.word(format!("start_out_{k}"), Number::U32, Word::Offset(view.slot, view.dtype.size_bytes()));
        }
        axes.declare("axis", &mut numbers)?;
        let mut lines = Lines::new(expr, &moved, caps, &mut numbers)?;
        let mut stores = Stores::default();
        for (k, &(src, dtype)) in expr.outputs.iter().enumerate() {
            let value = match src {
                Src::Input(from) if is_moved => kept(expr.inputs[usize::from(from)], dtype, &format!("x_{from}"))?,
                _ if is_half(dtype) => lines.half(src, dtype, &mut numbers)?,
                _ => stored(dtype, lines.operand(src, dtype, &mut numbers)?),
            };
            stores.add(k, dtype, &value, caps);
        }
        let mut all = lines.scalars;
        let halves = |k: usize| moved.is_input(k).then(|| widened(expr.inputs[k], &format!("half_{k}"), caps));
        load(&axes, is_given, halves, &mut all);
        all.push_str(&lines.text);
        all.push_str(&stores.text());
        let functions = format!("{}{functions}", library::used_by(&format!("{functions}{all}")));
        numbers.need_of(&functions);
        Ok(Parts { source, slots, numbers, functions, lines: all })
    }
}

/// The dispatch of a fused elementwise expression over `shape`; outputs are row-major.
pub fn fused(expr: &Expr, shape: &[usize], ins: &[View], outs: &[View], caps: Caps) -> Result<Dispatch> {
    let total = elems(shape);
    if total > MAX_ELEMS {
        return Err(Error::value(
            "gpu",
            format!("{total} elements in one kernel; at most {MAX_ELEMS} fit 32-bit positions: split the tensor"),
        ));
    }
    let mut numbers = Numbers::default();
    numbers.fixed("total", total)?;
    let parts = Parts::new(expr, ins, outs, shape, (Source::new("fused", ""), numbers), false, caps)?;
    let Parts { mut source, mut slots, numbers, functions, lines } = parts;
    let placed = numbers.place(caps, &mut source, &mut slots)?;
    let body = format!(
        "@compute @workgroup_size({GROUP})\nfn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, \
         @builtin(local_invocation_index) thread: u32) {{\n{}    let first = (group.x + group.y * groups.x) * {}u + {};\n    \
         if (i.x >= total) {{\n        return;\n    }}\n    let inside = min(i, vec4u(total - 1u));\n{lines}}}\n",
        placed.lets,
        GROUP * LANES,
        first_lanes(per_word(outs, caps)),
    );
    source.body = format!("{functions}{body}");
    let groups = spread(total.div_ceil(LANES), GROUP, caps)?;
    Ok(Dispatch { source, unaligned: None, slots, words: placed.words, table: placed.table, groups, unless_in_place: None })
}

fn check(expr: &Expr, shape: &[usize], ins: &[View], outs: &[View]) -> Result<()> {
    let dtypes = ins.iter().map(|v| v.dtype).eq(expr.inputs.iter().copied())
        && outs.iter().map(|v| v.dtype).eq(expr.outputs.iter().map(|o| o.1));
    if !dtypes || ins.iter().chain(outs).any(|v| v.shape != shape) {
        return Err(Error::Internal("gpu: a fused launch whose tensors do not fit the kernel"));
    }
    ins.iter().chain(outs).try_for_each(|v| register(v.dtype).map(|_| ()))
}

/// Whether an expression gives its inputs as they are.
fn is_moved(expr: &Expr) -> bool {
    expr.instrs.is_empty() && expr.outputs.iter().all(|(src, _)| matches!(src, Src::Input(_)))
}

/// What a moved value is when it is written: 16 bits may go to a word of their own and come from there.
fn kept(from: DType, to: DType, value: &str) -> Result<String> {
    Ok(match (from, to) {
        (DType::Bool, DType::Bool) => stored(to, value.to_owned()),
        (from, DType::I32) if is_half(from) => format!("bitcast<vec4i>({value})"),
        (DType::I32, to) if is_half(to) => format!("bitcast<vec4u>({value})"),
        (from, to) if from == to => value.to_owned(),
        _ => return Err(Error::Internal("gpu: elements moved to another type")),
    })
}

/// What a computed value of a word or a byte is when it is written.
fn stored(dtype: DType, value: String) -> String {
    if dtype == DType::Bool { format!("select(vec4u(0u), vec4u(1u), {value})") } else { value }
}

/// Most elements of an output that lie in one word.
fn per_word(outs: &[View], caps: Caps) -> usize {
    outs.iter().map(|o| elem(o.dtype, false, caps).per_word()).max().unwrap_or(1)
}

/// How a thread's elements lie when each output word is written by one thread.
fn lanes(per_word: usize) -> Lanes {
    match per_word {
        4 => Lanes::Row,
        2 => Lanes::Pairs,
        _ => Lanes::Apart,
    }
}

/// The rest of the line that says which elements a thread has. Neighbouring threads read neighbouring words: what limits these kernels is
/// the memory, and four loads a thread in flight hide its latency.
fn first_lanes(per_word: usize) -> &'static str {
    match per_word {
        4 => "thread * 4u;\n    let i = vec4u(first) + vec4u(0u, 1u, 2u, 3u)",
        2 => "thread * 2u;\n    let i = vec4u(first) + vec4u(0u, 1u, 512u, 513u)",
        _ => "thread;\n    let i = vec4u(first) + vec4u(0u, 256u, 512u, 768u)",
    }
}

/// Lines that load every input; `halves` says what number the elements are of one that is moved besides.
fn load(axes: &Axes, is_given: bool, halves: impl Fn(usize) -> Option<String>, text: &mut String) {
    let positions = axes.positions("axis", "inside", text);
    for (k, position) in positions.into_iter().enumerate().skip(usize::from(is_given)) {
        let at = position.map_or_else(|| format!("vec4u(start_in_{k})"), |p| format!("vec4u(start_in_{k}) + {p}"));
        let value = match halves(k) {
            Some(value) => {
                let _ = writeln!(text, "    let half_{k} = read_in_{k}({at});");
                value
            }
            None => format!("read_in_{k}({at})"),
        };
        let _ = writeln!(text, "    let x_{k} = {value};");
    }
}

/// The lines that write results: those of a lane together, under one test.
#[derive(Default)]
struct Stores {
    before: String,
    lanes: [String; 4],
}

impl Stores {
    fn add(&mut self, k: usize, dtype: DType, value: &str, caps: Caps) {
        let _ = writeln!(self.before, "    let y_{k} = {value};");
        let at = |lane: &str| format!("out_{k}[start_out_{k} + i.{lane}]");
        match elem(dtype, false, caps).per_word() {
            4 => {
                let word = format!("y_{k}.x | (y_{k}.y << 8u) | (y_{k}.z << 16u) | (y_{k}.w << 24u)");
                let _ = writeln!(self.lanes[0], "    out_{k}[(start_out_{k} + i.x) >> 2u] = {word};");
            }
            2 => {
                let _ = writeln!(self.lanes[0], "    out_{k}[(start_out_{k} + i.x) >> 1u] = y_{k}.x | (y_{k}.y << 16u);");
                let _ = writeln!(self.lanes[2], "    out_{k}[(start_out_{k} + i.z) >> 1u] = y_{k}.z | (y_{k}.w << 16u);");
            }
            _ => {
                for (lane, to) in ["x", "y", "z", "w"].into_iter().zip(&mut self.lanes) {
                    let value = match dtype {
                        DType::I64 => format!("vec2u(y_{k}.lo.{lane}, y_{k}.hi.{lane})"),
                        _ => format!("y_{k}.{lane}"),
                    };
                    let _ = writeln!(to, "    {} = {value};", at(lane));
                }
            }
        }
    }

    fn text(&self) -> String {
        let mut out = self.before.clone();
        for (lane, lines) in ["x", "y", "z", "w"].into_iter().zip(&self.lanes) {
            if lane == "x" {
                out.push_str(lines);
            } else if !lines.is_empty() {
                let _ = writeln!(out, "    if (i.{lane} < total) {{\n{lines}    }}");
            }
        }
        out
    }
}
