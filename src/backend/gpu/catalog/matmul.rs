//! The shaders of matrix products that are not tiles of floats: a row times a matrix, integers, the sum of parts.
use super::super::text::{Binding, Elem, Number, Source};
use super::rows::{self, LANES, Threads};
use super::tile::{self, TILES, tile};

/// The numbers that every product is given, in this order: positions; steps between elements; sizes; where this dispatch's items begin
/// in the batch's last three axes and in the output, and how many the batch has; sizes and steps of those axes; how sums are cut.
pub const WORDS: [&str; 27] = [
    "a_at",
    "b_at",
    "c_at",
    "a_row",
    "a_col",
    "b_row",
    "b_col",
    "m",
    "n",
    "k",
    "tiles_m",
    "tiles_n",
    "a_plus",
    "b_plus",
    "from_item",
    "base",
    "items",
    "size1",
    "size2",
    "a0",
    "a1",
    "a2",
    "b0",
    "b1",
    "b2",
    "splits",
    "span",
];

/// What follows a product within its kernel: a function `epilogue(i, total, v)` of four elements of the product and their positions, of
/// which those below `total` count, and what it needs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ending {
    /// The functions.
    pub text: String,
    /// The tensors that it reads and writes.
    pub bindings: Vec<Binding>,
    /// Its numbers.
    pub words: Vec<(String, Number)>,
}

/// Where a product's elements go.
#[derive(Clone, Copy, Debug)]
pub enum To<'a> {
    /// To a tensor, binding c.
    Elem(Elem),
    /// To what follows.
    Ending(&'a Ending),
}

/// A product's source: bindings a, b and c or those of what follows, its numbers, and where its items lie in front of its body.
pub(super) fn product(source: Source, elem: Elem, to: To) -> Source {
    items(source.reads("a", elem).reads("b", elem).words(Number::U32, &WORDS), to)
}

/// Adds where a product's elements go, and in front where its items lie.
pub(super) fn items(source: Source, to: To) -> Source {
    let mut source = ended(source, to);
    source.body = format!("{}\n{}", include_str!("../../../../shaders/batch.wgsl"), source.body);
    source
}

/// Adds where elements go; `put_one` and `put_four` bring them there.
fn ended(mut source: Source, to: To) -> Source {
    match to {
        To::Elem(elem) => {
            let store = include_str!("../../../../shaders/matmul_store.wgsl");
            source.body = format!("alias Sum = {};\nalias Kept = {};\n{store}\n{}", elem.loaded(), elem.stored(), source.body);
            source.writes("c", elem)
        }
        To::Ending(ending) => {
            let store = include_str!("../../../../shaders/matmul_end.wgsl");
            source.body = format!("alias Sum = f32;\n{}\n{store}\n{}", ending.text, source.body);
            source.bindings.extend_from_slice(&ending.bindings);
            source.words.extend_from_slice(&ending.words);
            source
        }
    }
}

/// A row times a matrix.
pub fn vector(elem: Elem, threads: Threads, to: To) -> Source {
    let body = include_str!("../../../../shaders/matvec.wgsl");
    product(rows::source("matmul vector", body, threads, false), elem, to)
}

/// A product of integers of a type, in their wide form.
pub fn whole(elem: Elem) -> Source {
    let body = include_str!("../../../../shaders/matmul_whole.wgsl");
    let out = if elem == Elem::U8 { Elem::I32 } else { elem };
    let body = format!("alias Whole = {};\n{body}", elem.loaded());
    product(Source::new("matmul of integers", &body), elem, To::Elem(out))
}

/// The sum of the parts of products, or 0 of any type.
pub fn join(to: To) -> Source {
    let parts = match to {
        To::Elem(Elem::Half) | To::Ending(_) => Elem::F32,
        To::Elem(elem) => elem,
    };
    let source = Source::new("matmul join", include_str!("../../../../shaders/matmul_join.wgsl")).reads("parts", parts);
    ended(source.words(Number::U32, &["parts_at", "c_at", "elems", "splits"]), to)
}

/// An ending like those that are generated, for validation.
pub(super) fn sample() -> Ending {
    let text = "fn epilogue(i: vec4u, total: u32, v: vec4f) {\n    let inside = min(i, vec4u(total - 1u));\n    \
                let y = v + vec4f(in_1[inside.x], in_1[inside.y], in_1[inside.z], in_1[inside.w]);\n    \
                out_0[i.x] = y.x;\n    if (i.y < total) {\n        out_0[i.y] = y.y;\n    }\n}\n";
    let tensor = |name: &str, writes| Binding { name: name.into(), elem: Elem::F32, writes };
    Ending { text: text.into(), bindings: vec![tensor("in_1", false), tensor("out_0", true)], words: Vec::new() }
}

/// Every specialisation; of tiles the operands' layouts for f32, and each stored type.
pub fn all() -> Vec<Source> {
    let (short, f32) = (sample(), To::Elem(Elem::F32));
    let long = Ending { text: format!("{}{}", short.text, "\n".repeat(5000)), ..short.clone() };
    let mut out: Vec<Source> = [Elem::F32, Elem::Half, Elem::I32, Elem::I64].map(|elem| join(To::Elem(elem))).into();
    out.extend([Elem::I32, Elem::U8, Elem::I64].map(whole));
    out.push(join(To::Ending(&short)));
    out.push(vector(Elem::F32, Threads::along(64), To::Ending(&short)));
    for lanes in LANES {
        let along = Threads::along(lanes);
        out.extend([along, Threads::across(lanes), Threads { subgroup: 8, ..along }].map(|t| vector(Elem::F32, t, f32)));
    }
    out.extend([Elem::F16, Elem::BF16].map(|elem| vector(elem, Threads::along(64), f32)));
    for size in TILES {
        let layouts = [(false, false), (false, true), (true, false), (true, true)];
        let layouts = layouts.map(|(a_along_k, b_along_k)| tile::Layout { a_along_k, b_along_k, elem: Elem::F32 });
        out.extend(layouts.map(|layout| tile(size, layout, f32)));
        out.extend([&short, &long].map(|ending| tile(size, layouts[0], To::Ending(ending))));
    }
    let layout = tile::Layout { a_along_k: true, b_along_k: false, elem: Elem::F16 };
    out.push(tile(tile::SMALL, layout, f32));
    out.push(tile(tile::SMALL, tile::Layout { elem: Elem::BF16, ..layout }, f32));
    let half = To::Elem(Elem::Half);
    out.extend(TILES.map(|size| tile(size, tile::Layout { elem: Elem::Half, ..layout }, half)));
    out.push(vector(Elem::Half, Threads::along(64), half));
    out
}
