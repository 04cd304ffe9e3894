//! The shaders of matrix products that are not tiles of floats: a row times a matrix, integers, the sum of parts.
use super::super::text::{Elem, Number, Source};
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

/// A product's source: bindings a, b and c, its numbers, and where its items lie in front of its body.
pub(super) fn product(source: Source, elem: Elem, out: Elem) -> Source {
    let mut source = source.reads("a", elem).reads("b", elem).writes("c", out).words(Number::U32, &WORDS);
    source.body = format!("{}\n{}", include_str!("../../../../shaders/batch.wgsl"), source.body);
    source
}

/// A row times a matrix.
pub fn vector(elem: Elem, threads: Threads) -> Source {
    let body = include_str!("../../../../shaders/matvec.wgsl");
    product(rows::source("matmul vector", body, threads, false), elem, Elem::F32)
}

/// A product of integers of a type, in their wide form.
pub fn whole(elem: Elem) -> Source {
    let body = include_str!("../../../../shaders/matmul_whole.wgsl");
    let out = if elem == Elem::U8 { Elem::I32 } else { elem };
    let body = format!("alias Whole = {};\n{body}", elem.loaded());
    product(Source::new("matmul of integers", &body), elem, out)
}

/// The sum of the parts of products, or 0 of any type.
pub fn join(out: Elem) -> Source {
    let body = format!("alias Sum = {};\n{}", out.stored(), include_str!("../../../../shaders/matmul_join.wgsl"));
    Source::new("matmul join", &body)
        .reads("parts", out)
        .writes("c", out)
        .words(Number::U32, &["parts_at", "c_at", "elems", "splits"])
}

/// Every specialisation; of tiles the operands' layouts for f32, and each stored type.
pub fn all() -> Vec<Source> {
    let mut out = vec![join(Elem::F32), join(Elem::I32), join(Elem::I64), whole(Elem::I32), whole(Elem::U8), whole(Elem::I64)];
    for lanes in LANES {
        let along = Threads::along(lanes);
        out.extend([along, Threads::across(lanes), Threads { subgroup: 8, ..along }].map(|t| vector(Elem::F32, t)));
    }
    out.extend([Elem::F16, Elem::BF16].map(|elem| vector(elem, Threads::along(64))));
    for size in TILES {
        let layouts = [(false, false), (false, true), (true, false), (true, true)];
        out.extend(layouts.map(|(a_along_k, b_along_k)| tile(size, tile::Layout { a_along_k, b_along_k, elem: Elem::F32 })));
    }
    let layout = tile::Layout { a_along_k: true, b_along_k: false, elem: Elem::F16 };
    out.push(tile(tile::SMALL, layout));
    out.push(tile(tile::SMALL, tile::Layout { elem: Elem::BF16, ..layout }));
    out
}
