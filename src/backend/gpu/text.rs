//! Shader text: a body in WGSL with its bindings, numbers and load functions declared in front. Shared with `build.rs`, which validates it.
use std::fmt::Write;

/// How the elements of a binding lie in memory, and what loading one gives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Elem {
    /// f32.
    F32,
    /// IEEE half precision, two in a word; loads as f32.
    F16,
    /// IEEE half precision as the adapter stores it, an element by itself; loads as f32.
    Half,
    /// The same where it is only moved; loads as it is.
    MovedHalf,
    /// bfloat16, two in a word; loads as f32.
    BF16,
    /// 16 bits that are only moved, two in a word; loads as u32.
    Bits16,
    /// i32.
    I32,
    /// Bytes, four in a word; loads as i32.
    U8,
    /// Truth values, four in a word; loads as i32, 0 or 1.
    Bool,
    /// i64, on adapters that have it.
    I64,
    /// An 8-byte element as its low and high word.
    Pair,
    /// A 4-byte element as bits.
    Word,
    /// f32, four in a vector that moves at once; the first lies at a multiple of 16 bytes.
    F32x4,
    /// 4-byte elements as bits, in vectors like these.
    Wordx4,
    /// IEEE half precision as the adapter stores it, four in a vector that moves at once; loads as f32.
    Halfx4,
    /// The counter of values that a kernel refused.
    Flag,
}

impl Elem {
    /// The element type of the array in memory.
    pub const fn stored(self) -> &'static str {
        match self {
            Elem::F32 => "f32",
            Elem::Half | Elem::MovedHalf => "f16",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::Pair => "vec2<u32>",
            Elem::F16 | Elem::BF16 | Elem::Bits16 | Elem::U8 | Elem::Bool | Elem::Word => "u32",
            Elem::F32x4 => "vec4<f32>",
            Elem::Wordx4 => "vec4<u32>",
            Elem::Halfx4 => "vec4<f16>",
            Elem::Flag => "atomic<u32>",
        }
    }

    /// The type that loading gives.
    pub const fn loaded(self) -> &'static str {
        match self {
            Elem::F32 | Elem::F16 | Elem::Half | Elem::BF16 | Elem::F32x4 | Elem::Halfx4 => "f32",
            Elem::I32 | Elem::U8 | Elem::Bool => "i32",
            Elem::I64 => "i64",
            Elem::Pair => "vec2<u32>",
            Elem::Word | Elem::Wordx4 | Elem::Bits16 | Elem::Flag => "u32",
            Elem::MovedHalf => "f16",
        }
    }

    /// How elements that are only moved lie where each has a word to itself.
    pub const fn apart(self) -> Elem {
        match self {
            Elem::Bits16 => Elem::Word,
            Elem::U8 | Elem::Bool => Elem::I32,
            other => other,
        }
    }

    /// Whether four elements move at once, so that the first of a tensor must lie at a multiple of 16 bytes.
    pub const fn is_wide(self) -> bool {
        matches!(self, Elem::F32x4 | Elem::Wordx4)
    }

    /// Elements in one word of memory.
    pub const fn per_word(self) -> usize {
        match self {
            Elem::F16 | Elem::BF16 | Elem::Bits16 => 2,
            Elem::U8 | Elem::Bool => 4,
            _ => 1,
        }
    }
}

/// The type of a number among the immediates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Number {
    /// u32
    U32,
    /// i32
    I32,
    /// f32
    F32,
}

/// One binding of a shader.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Binding {
    /// The variable's name.
    pub name: String,
    /// Its elements.
    pub elem: Elem,
    /// Whether the shader writes to it (it may read it as well).
    pub writes: bool,
}

impl Binding {
    /// Whether several threads write into one word.
    fn is_joint(&self) -> bool {
        self.writes && self.elem.per_word() > 1
    }
}

/// A shader: what stands in front of its body, and the body. `main` is the entry point.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Source {
    /// What it is called in errors and profiles.
    pub name: &'static str,
    /// Extensions of the language that it needs.
    pub enables: &'static [&'static str],
    /// Bindings 0, 1, ... of group 0.
    pub bindings: Vec<Binding>,
    /// Numbers that change from launch to launch: the fields of `p`, 4 bytes each.
    pub words: Vec<(String, Number)>,
    /// Numbers that are part of the shader: `const NAME: u32`.
    pub consts: Vec<(&'static str, u32)>,
    /// The functions, `main` among them.
    pub body: String,
}

impl Source {
    /// A shader of a file under `shaders`.
    pub fn new(name: &'static str, body: &str) -> Source {
        Source { name, body: body.to_owned(), ..Source::default() }
    }

    /// Adds a binding that is only read.
    pub fn reads(mut self, name: impl Into<String>, elem: Elem) -> Source {
        self.bindings.push(Binding { name: name.into(), elem, writes: false });
        self
    }

    /// Adds a binding that is written.
    pub fn writes(mut self, name: impl Into<String>, elem: Elem) -> Source {
        self.bindings.push(Binding { name: name.into(), elem, writes: true });
        self
    }

    /// Adds numbers.
    pub fn words(mut self, kind: Number, names: &[&str]) -> Source {
        self.words.extend(names.iter().map(|&name| (name.to_owned(), kind)));
        self
    }

    /// Adds a constant.
    pub fn constant(mut self, name: &'static str, value: u32) -> Source {
        self.consts.push((name, value));
        self
    }

    /// Sets the extensions.
    pub fn enabling(mut self, extensions: &'static [&'static str]) -> Source {
        self.enables = extensions;
        self
    }

    /// The whole text. `is_shared` says that one buffer is read and written in a dispatch: then every binding must be writable.
    pub fn text(&self, is_shared: bool) -> String {
        let mut out = String::with_capacity(self.body.len() + 512);
        if self.bindings.iter().any(|b| b.elem.stored().contains("f16")) && !self.enables.contains(&"f16") {
            out.push_str("enable f16;\n");
        }
        for extension in self.enables {
            let _ = writeln!(out, "enable {extension};");
        }
        for (name, value) in &self.consts {
            let _ = writeln!(out, "const {name}: u32 = {value}u;");
        }
        for (i, b) in self.bindings.iter().enumerate() {
            let access = if b.writes || is_shared { "read_write" } else { "read" };
            let stored = if b.is_joint() { "atomic<u32>" } else { b.elem.stored() };
            let _ = writeln!(out, "@group(0) @binding({i}) var<storage, {access}> {}: array<{stored}>;", b.name);
        }
        if !self.words.is_empty() {
            out.push_str("struct Numbers {\n");
            for (name, kind) in &self.words {
                let kind = match kind {
                    Number::U32 => "u32",
                    Number::I32 => "i32",
                    Number::F32 => "f32",
                };
                let _ = writeln!(out, "    {name}: {kind},");
            }
            out.push_str("}\nvar<immediate> p: Numbers;\n");
        }
        for b in self.bindings.iter().filter(|b| !b.is_joint()) {
            load(&mut out, b);
        }
        out.push_str(&self.body);
        out
    }
}

/// `load_NAME(i)`: element i; `index_NAME(i)`, for integers: element i as an i32, the least i32 for what does not fit.
fn load(out: &mut String, b: &Binding) {
    let (n, loaded) = (&b.name, b.elem.loaded());
    let value = match b.elem {
        Elem::F32 | Elem::MovedHalf | Elem::I32 | Elem::I64 | Elem::Pair | Elem::Word => format!("return {n}[i];"),
        Elem::F32x4 | Elem::Wordx4 => format!("return {n}[i >> 2u][i & 3u];"),
        Elem::Half => format!("return f32({n}[i]);"),
        Elem::Halfx4 => format!("return f32({n}[i >> 2u][i & 3u]);"),
        Elem::F16 => format!("return unpack2x16float({n}[i >> 1u])[i & 1u];"),
        Elem::BF16 => format!("return bitcast<f32>(select({n}[i >> 1u] << 16u, {n}[i >> 1u] & 0xffff0000u, (i & 1u) == 1u));"),
        Elem::Bits16 => format!("return ({n}[i >> 1u] >> (16u * (i & 1u))) & 0xffffu;"),
        Elem::U8 | Elem::Bool => format!("return i32(({n}[i >> 2u] >> (8u * (i & 3u))) & 0xffu);"),
        Elem::Flag => return,
    };
    let _ = writeln!(out, "fn load_{n}(i: u32) -> {loaded} {{ {value} }}");
    match b.elem {
        Elem::I32 | Elem::U8 | Elem::Bool => {
            let _ = writeln!(out, "fn index_{n}(i: u32) -> i32 {{ return load_{n}(i); }}");
        }
        Elem::Pair => {
            let _ = writeln!(
                out,
                "fn index_{n}(i: u32) -> i32 {{ let v = {n}[i]; let low = bitcast<i32>(v.x); \
                 return select(-2147483647i - 1i, low, bitcast<i32>(v.y) == (low >> 31u)); }}"
            );
        }
        _ => {}
    }
}
