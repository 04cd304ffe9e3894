//! What the shaders of row kernels have in common: the threads of a row, elements that move four at a time, and optional operands.
use super::super::text::{Elem, Number, Source};

/// Threads of a workgroup of a row kernel, unless more share a row.
pub const THREADS: u32 = 256;
/// How many threads may share a row that is read element by element.
pub const LANES: [u32; 5] = [1, 4, 16, 64, 256];
/// How many may share a row that is kept in registers.
pub const WIDTHS: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// How many times four elements a thread may keep.
pub const KEPT: [u32; 4] = [1, 2, 4, 8];
/// Sizes of subgroups that are used; 0 where there are none.
pub const SUBGROUPS: [u32; 6] = [0, 4, 8, 16, 32, 64];
/// Threads that combine by way of workgroup memory behind one barrier.
const TEAM: u32 = 16;

/// The threads of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threads {
    /// How many: a power of two.
    pub lanes: u32,
    /// Neighbouring threads work on neighbouring rows instead of neighbouring elements.
    pub across: bool,
    /// How many times four elements of its row each keeps in registers: one of `KEPT`.
    pub kept: u32,
    /// Neighbouring threads that exchange values without workgroup memory: one of `SUBGROUPS`.
    pub subgroup: u32,
}

impl Threads {
    /// Threads that lie along a row.
    pub const fn along(lanes: u32) -> Threads {
        Threads { lanes, across: false, kept: 1, subgroup: 0 }
    }

    /// Threads whose neighbours work on other rows.
    pub const fn across(lanes: u32) -> Threads {
        Threads { across: true, ..Threads::along(lanes) }
    }

    /// Threads of a workgroup.
    pub const fn group(self) -> u32 {
        if self.lanes > THREADS { self.lanes } else { THREADS }
    }

    /// Rows that a workgroup works on.
    pub const fn rows(self) -> u32 {
        self.group() / self.lanes
    }
}

/// A shader of a row kernel, its own body behind the common ones. `is_wide` says that rows move four neighbours at a time.
pub fn source(name: &'static str, body: &str, threads: Threads, is_wide: bool) -> Source {
    let has_subgroup = threads.subgroup > 1 && !threads.across;
    let (teams, most) = match has_subgroup {
        true => (include_str!("../../../../shaders/rows_subgroup.wgsl"), threads.subgroup),
        false => (include_str!("../../../../shaders/rows_memory.wgsl"), TEAM),
    };
    let all = format!("{}\n{teams}\n{body}", include_str!("../../../../shaders/rows.wgsl"));
    Source::new(name, &repeated(&all, threads.kept))
        .constant("THREADS", threads.group())
        .constant("LANES", threads.lanes)
        .constant("STRIDE", if threads.across { threads.rows() } else { 1 })
        .constant("TEAM", most.min(threads.lanes))
        .constant("KEPT", threads.kept)
        .constant("WIDE", u32::from(is_wide))
}

/// The text with lines that have a number sign standing so many times.
fn repeated(text: &str, times: u32) -> String {
    let mut out = String::with_capacity(2 * text.len());
    for line in text.lines() {
        let count = if line.contains('#') { times } else { 1 };
        for k in 0..count {
            out.push_str(&line.replace('#', &k.to_string()));
            out.push('\n');
        }
    }
    out
}

/// Adds a tensor whose rows are read: `four_NAME(start, i)` gives the elements `i` of the row that begins at `start`.
pub fn reads_rows(source: Source, name: &'static str, elem: Elem) -> Source {
    let at = |axis: char| format!("load_{name}(start + i.{axis})");
    let value = match elem.is_wide() {
        true => format!("{name}[(start + i.x) >> 2u]"),
        false => format!("vec4<f32>({}, {}, {}, {})", at('x'), at('y'), at('z'), at('w')),
    };
    append(source, &format!("fn four_{name}(start: u32, i: vec4<u32>) -> vec4<f32> {{ return {value}; }}")).reads(name, elem)
}

/// How rows that a kernel writes are given to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// How they lie.
    pub elem: Elem,
    /// The type of a value: "f32", or "u32" for its bits.
    pub given: &'static str,
}

impl From<Elem> for Written {
    fn from(elem: Elem) -> Written {
        Written { elem, given: elem.loaded() }
    }
}

/// Floats given as bits, so that special values come through.
pub const fn bits(elem: Elem) -> Written {
    let elem = match elem {
        Elem::F32 => Elem::Word,
        Elem::F32x4 => Elem::Wordx4,
        other => other,
    };
    Written { elem, given: "u32" }
}

/// How results lie beside rows that lie so: packed ones are written as f32.
pub const fn written(x: Elem) -> Elem {
    match x {
        Elem::F16 | Elem::BF16 => Elem::F32,
        other => other,
    }
}

/// Adds a tensor whose rows are written: `put_NAME(start, i, v)` leaves out what lies behind the row's end.
pub fn writes_rows(source: Source, name: &'static str, to: impl Into<Written>) -> Source {
    let Written { elem, given } = to.into();
    let value = |k: char| match (elem, given) {
        (Elem::Half, "u32") => format!("f16(bitcast<f32>(v.{k}))"),
        (Elem::Half, _) => format!("f16(v.{k})"),
        _ => format!("v.{k}"),
    };
    let text = match elem.is_wide() {
        true => format!("    if i.x < p.n {{ {name}[(start + i.x) >> 2u] = v; }}\n"),
        false => {
            ['x', 'y', 'z', 'w'].map(|k| format!("    if i.{k} < p.n {{ {name}[start + i.{k}] = {}; }}\n", value(k))).concat()
        }
    };
    let function = format!("fn put_{name}(start: u32, i: vec4<u32>, v: vec4<{given}>) {{\n{text}}}");
    append(source, &function).writes(name, elem)
}

/// Adds an operand with one element a row or a column: `NAME_at(i)`, and `four_NAME(i)`; without it they give a number.
pub fn optional(source: Source, name: &'static str, elem: Option<Elem>, without: &str) -> Source {
    let four = match elem {
        None => format!("vec4<f32>({without})"),
        Some(elem) if elem.is_wide() => format!("{name}[(p.{name}_at + i.x) >> 2u]"),
        Some(_) => format!("vec4<f32>({name}_at(i.x), {name}_at(i.y), {name}_at(i.z), {name}_at(i.w))"),
    };
    let one = match elem {
        None => format!("return {without};"),
        Some(_) => format!("let at = p.{name}_at + i * p.{name}_step; return load_{name}(at);"),
    };
    let text = format!("fn {name}_at(i: u32) -> f32 {{ {one} }}\nfn four_{name}(i: vec4<u32>) -> vec4<f32> {{ return {four}; }}");
    let source = append(source, &text);
    let Some(elem) = elem else { return source };
    let mut source = source.reads(name, elem);
    for end in ["at", "step"] {
        source.words.push((format!("{name}_{end}"), Number::U32));
    }
    source
}

/// Adds functions.
pub fn append(mut source: Source, text: &str) -> Source {
    source.body.push('\n');
    source.body.push_str(text);
    source.body.push('\n');
    source
}

/// Ways to share rows, one after the other without end: each width with several sizes of subgroups and of what is kept.
pub fn ways() -> impl Iterator<Item = Threads> {
    // What stands beside it has four members or eight: steps that have no divisor in common with these meet all of them.
    (0..).map(|i| {
        let (lanes, kept) = (WIDTHS[i % WIDTHS.len()], KEPT[(i + i / 4) % KEPT.len()]);
        let subgroup = SUBGROUPS[(i + i / 4) % SUBGROUPS.len()];
        let subgroup = if lanes > THREADS { subgroup.max(32) } else { subgroup };
        Threads { kept, subgroup, ..Threads::along(lanes) }
    })
}

/// How rows may lie that kernels read: each stored type, and f32 four at a time.
pub const LAID: [Elem; 5] = [Elem::F32x4, Elem::F32, Elem::F16, Elem::Half, Elem::BF16];
