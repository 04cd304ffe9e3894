//! Reductions: the expression is evaluated element by element and combined in an order that shapes alone fix.
use super::axes::Axes;
use super::expression::{Lanes, Lines, bound, reader};
use super::fold::{Fold, Stored};
use super::form::{Form, Split};
use super::library;
use super::numbers::Numbers;
use crate::backend::expr::{Expr, Moved};
use crate::backend::gpu::launch::{Dispatch, Flat, Slot, Steps, Word, grid};
use crate::backend::gpu::text::{Elem, Number, Source};
use crate::backend::kind::ReduceKind;
use crate::error::{Error, Result};
use smallvec::{SmallVec, smallvec};
use std::fmt::Write;

/// The dispatches of a reduction over the axes in `mask` of an expression over the steps' shape.
pub fn reduce(kind: ReduceKind, mask: u32, expr: &Expr, steps: &mut Steps) -> Result<()> {
    let [(_, dtype)] = expr.outputs[..] else {
        return Err(Error::Internal("gpu: a reduction of an expression without exactly one output"));
    };
    let fits = steps.ins.iter().map(|v| v.dtype).eq(expr.inputs.iter().copied())
        && steps.ins.iter().all(|v| v.shape == steps.shape)
        && steps.outs.len() == 1
        && steps.outs[0].dtype == dtype;
    if !fits {
        return Err(Error::Internal("gpu: a reduction whose tensors do not fit the kernel"));
    }
    let fold = Fold::new(kind, dtype)?;
    let form = Form::new(steps.shape, mask)?;
    let count = if kind == ReduceKind::Mean { form.reduced } else { 1 };
    let out = steps.out_rounded(0, false);
    let part_bytes = fold.fields.len() * 4;
    let split = Split::of(&form, |parts| steps.caps.parts(parts, form.outputs() * part_bytes));
    if split.parts == 1 {
        let to = Target::Result { out, count };
        let dispatch = elements(expr, &fold, &form, split, &to, steps)?;
        steps.push(dispatch);
        return Ok(());
    }
    let slot = steps.scratch(form.outputs() * split.parts * part_bytes);
    let first = elements(expr, &fold, &form, split, &Target::Parts(slot), steps)?;
    steps.push(first);
    let rest = form.with_reduced(split.parts);
    let second = parts(&fold, &rest, slot, &Target::Result { out, count }, steps)?;
    steps.push(second);
    Ok(())
}

/// Where a pass leaves what it combined.
enum Target {
    /// The output, or its wide form; results are divided by the count.
    Result { out: Flat, count: usize },
    /// Scratch: the accumulators of every output's parts.
    Parts(Slot),
}

/// A kernel while it is written.
struct Draft {
    source: Source,
    slots: SmallVec<[Slot; 8]>,
    numbers: Numbers,
    functions: String,
    /// What does not change in the loop.
    before: String,
    /// The loop's body: from `at`, four positions along the reduced axes, to `x`.
    each: String,
}

impl Draft {
    fn new(name: &'static str, form: &Form, split: Split) -> Result<Draft> {
        let mut numbers = Numbers::default();
        for (name, value) in [
            ("outputs", form.outputs()),
            ("inner", form.inner.max(1)),
            ("reduced", form.reduced),
            ("parts", split.parts),
            ("part_length", split.length),
        ] {
            numbers.fixed(name, value)?;
        }
        let draft = Draft {
            source: Source::new(name, ""),
            slots: smallvec![],
            numbers,
            functions: String::new(),
            before: String::new(),
            each: String::new(),
        };
        Ok(draft)
    }

    fn bind(&mut self, name: String, elem: Elem, slot: Slot, bytes: usize, writes: bool) {
        self.numbers.word(format!("start_{name}"), Number::U32, Word::Offset(slot, bytes));
        let source = std::mem::take(&mut self.source);
        self.source = if writes { source.writes(name, elem) } else { source.reads(name, elem) };
        self.slots.push(slot);
    }

    /// Finishes the kernel around what was written.
    fn dispatch(mut self, fold: &Fold, form: &Form, split: Split, to: &Target, steps: &Steps) -> Result<Dispatch> {
        let store = store(fold, to, &mut self)?;
        let own = format!("{}{}", fold.text, self.functions);
        let functions = library::used_by(&format!("{own}{}{}", self.before, self.each));
        self.numbers.need_of(&format!("{own}{functions}"));
        let placed = self.numbers.place(steps.caps, &mut self.source, &mut self.slots)?;
        let skeleton = include_str!("../../../../shaders/fold/skeleton.wgsl");
        let body = skeleton
            .replace("//LETS", &placed.lets)
            .replace("//BEFORE", &self.before)
            .replace("//EACH", &self.each)
            .replace("//COMBINE", &combine(fold))
            .replace("//STORE", &store);
        self.source.body = format!("{functions}{own}{body}");
        let across = form.outputs().div_ceil(split.across());
        Ok(Dispatch {
            source: self
                .source
                .constant("THREADS", split.threads as u32)
                .constant("OUTPUTS", split.across() as u32)
                .constant("ALONG", u32::from(split.is_along)),
            unaligned: None,
            slots: self.slots,
            words: placed.words,
            table: placed.table,
            groups: grid(across * split.parts, steps.caps)?,
            unless_in_place: None,
        })
    }
}

/// The pass over the elements of the expression.
fn elements(expr: &Expr, fold: &Fold, form: &Form, split: Split, to: &Target, steps: &Steps) -> Result<Dispatch> {
    let mut draft = Draft::new("reduce", form, split)?;
    let strides: SmallVec<[&[isize]; 8]> = steps.ins.iter().map(|v| v.strides).collect();
    let [outer, along, inner] = form.axes(steps.shape, &strides);
    let split = Split { is_along: form.is_along(&along, &outer, &inner), ..split };
    if form.reduced > 0 {
        for (k, view) in steps.ins.iter().enumerate() {
            let name = format!("in_{k}");
            reader(&name, view.dtype, Lanes::Apart, steps.caps, &mut draft.functions)?;
            draft.bind(name, bound(view.dtype, steps.caps), view.slot, view.dtype.size_bytes(), false);
        }
        for (prefix, axes) in [("outer", &outer), ("along", &along), ("inner", &inner)] {
            axes.declare(prefix, &mut draft.numbers)?;
        }
        let moved = Moved::default();
        let mut lines = Lines::new(expr, &moved, steps.caps, &mut draft.numbers)?;
        let (src, dtype) = expr.outputs[0];
        let value = lines.operand(src, dtype, &mut draft.numbers)?;
        draft.before.push_str(&lines.scalars);
        loads([&outer, &along, &inner], &mut draft);
        draft.each.push_str(&lines.text);
        let value = if fold.is_truth { format!("select(vec4u(0u), vec4u(1u), {value})") } else { value };
        let _ = writeln!(draft.each, "    let found = {value};");
        let masked = match fold.stored {
            Stored::Pair => format!("long_select4({}, found, is_inside)", fold.neutral),
            _ => format!("select({}, found, is_inside)", fold.neutral),
        };
        let _ = writeln!(draft.each, "    mine = add(mine, {masked});");
    }
    draft.dispatch(fold, form, split, to, steps)
}

/// Lines that load every input: what the output's coordinates say before the loop, the rest within it.
fn loads([outer, along, inner]: [&Axes; 3], draft: &mut Draft) {
    let from_outer = outer.positions("outer", "outer_index", &mut draft.before);
    let from_inner = inner.positions("inner", "inner_index", &mut draft.before);
    let from_along = along.positions("along", "at", &mut draft.each);
    for (k, within) in from_along.into_iter().enumerate() {
        let fixed = [from_outer[k].as_ref(), from_inner[k].as_ref()].into_iter().flatten().map(|t| format!(" + {t}"));
        let _ = writeln!(draft.before, "    let base_{k} = start_in_{k}{};", fixed.collect::<String>());
        let position = within.map_or_else(|| format!("vec4u(base_{k})"), |t| format!("vec4u(base_{k}) + {t}"));
        let _ = writeln!(draft.each, "    let x_{k} = read_in_{k}({position});");
    }
}

/// The pass over the accumulators of every output's parts, which lie as (outer, part, inner).
fn parts(fold: &Fold, form: &Form, slot: Slot, to: &Target, steps: &Steps) -> Result<Dispatch> {
    let split = Split { is_along: form.inner == 1, ..Split::whole(form) };
    let mut draft = Draft::new("reduce_parts", form, split)?;
    draft.bind("partial".into(), Elem::Word, slot, 4, false);
    let size = fold.fields.len();
    let _ = writeln!(draft.before, "    let base = start_partial + (outer_index * reduced * inner + inner_index) * {size}u;");
    let _ = writeln!(draft.each, "    let places = vec4u(base) + at * (inner * {size}u);");
    let mut lanes = Vec::new();
    for (f, field) in fold.fields.iter().enumerate() {
        let words = ["x", "y", "z", "w"].map(|lane| format!("partial[places.{lane} + {f}u]")).join(", ");
        let _ = writeln!(draft.each, "    let field_{f} = bitcast<vec4<{}>>(vec4u({words}));", field.scalar);
        lanes.push(format!("select(none.{}, field_{f}, is_inside)", field.path));
    }
    let _ = writeln!(draft.each, "    mine = join(mine, {});", fold.made_of(&lanes));
    draft.dispatch(fold, form, split, to, steps)
}

/// Lines that combine the lanes of a thread and then the threads of an output, in `mine`.
fn combine(fold: &Fold) -> String {
    let swizzled =
        |of: &str, by: &str| fold.made_of(&fold.fields.iter().map(|f| format!("{of}.{}.{by}", f.path)).collect::<Vec<_>>());
    let mut text = String::new();
    for (f, field) in fold.fields.iter().enumerate() {
        let _ = writeln!(text, "    shared_{f}[thread] = mine.{}.x;", field.path);
    }
    let other: Vec<String> =
        fold.fields.iter().enumerate().map(|(f, field)| format!("vec4<{}>(shared_{f}[partner])", field.scalar)).collect();
    let mut kept = String::new();
    for (f, field) in fold.fields.iter().enumerate() {
        let _ = writeln!(kept, "            shared_{f}[thread] = mine.{}.x;", field.path);
    }
    format!(
        "    mine = join(mine, {});\n    mine = join(mine, {});\n{text}    for (var reach = THREADS / 2u; reach > 0u; reach /= 2u) {{\n        \
         workgroupBarrier();\n        if (rank < reach) {{\n            let partner = thread + reach * next;\n            \
         mine = join(mine, {});\n{kept}        }}\n    }}\n",
        swizzled("mine", "zwxy"),
        swizzled("mine", "yxwz"),
        fold.made_of(&other),
    )
}

/// Lines by which the first thread of an output writes `mine`.
fn store(fold: &Fold, to: &Target, draft: &mut Draft) -> Result<String> {
    for (f, field) in fold.fields.iter().enumerate() {
        let _ = writeln!(draft.functions, "var<workgroup> shared_{f}: array<{}, 256>;", field.scalar);
    }
    match *to {
        Target::Result { out, count } => {
            draft.bind("out".into(), out.elem, out.slot, out.bytes, true);
            draft.numbers.fixed("count", count)?;
            let value = match fold.stored {
                Stored::Same if out.elem == Elem::Half => "f16(value.x)",
                Stored::Same => "value.x",
                Stored::Signed => "bitcast<i32>(value.x)",
                Stored::Pair => "vec2u(value.lo.x, value.hi.x)",
            };
            Ok(format!("        let value = result(mine, count);\n        out[start_out + output] = {value};\n"))
        }
        Target::Parts(slot) => {
            draft.bind("partial".into(), Elem::Word, slot, 4, true);
            let size = fold.fields.len();
            let at = format!("start_partial + ((outer_index * parts + part) * inner + inner_index) * {size}u");
            let mut text = format!("        let to = {at};\n");
            for (f, field) in fold.fields.iter().enumerate() {
                let _ = writeln!(text, "        partial[to + {f}u] = bitcast<u32>(mine.{}.x);", field.path);
            }
            Ok(text)
        }
    }
}
