//! The shader that writes an operand of a product by fragments as halves, in the order in which the product reads them.
use super::super::super::text::{Elem, Number, Source};
use super::block::{Block, Parts, REST};

/// The numbers that it is given: positions; steps between lines (rows of the left operand, columns of the right one) and between terms of
/// the sums; how many there are, and in how many tiles and blocks they are packed; where this dispatch's items begin in the batch's last
/// three axes and among all, sizes and steps of those axes.
const WORDS: [&str; 16] = [
    "x_at",
    "x_plus",
    "to_at",
    "x_line",
    "x_term",
    "lines",
    "terms",
    "tiles",
    "blocks",
    "from_item",
    "base",
    "size1",
    "size2",
    "x0",
    "x1",
    "x2",
];
/// And where the largest magnitudes of lines begin, if they are scaled.
const MAGNITUDES: &str = "magnitudes_at";
/// Lines and terms that a workgroup packs.
pub const PACKED: [usize; 2] = [64, 32];

/// How an operand is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packing {
    /// The operand's elements.
    pub elem: Elem,
    /// Whether terms of a sum are nearer to each other in the operand than lines are.
    pub along_k: bool,
    /// The left operand's chunks have lines along the terms of the sums, the right one's across them.
    pub is_left: bool,
    /// Lines are scaled by powers of two; else elements are halves already.
    pub is_scaled: bool,
    /// What an element becomes.
    pub parts: Parts,
}

/// Packs an operand for a block.
pub fn pack(block: Block, packing: Packing) -> Source {
    let Packing { elem, along_k, is_left, is_scaled, parts } = packing;
    let scale = match is_scaled {
        true => concat!(
            include_str!("../../../../../shaders/matrix_scale.wgsl"),
            include_str!("../../../../../shaders/matrix_pack_scale.wgsl")
        ),
        false => "fn scale_of(item: u32, line: u32) -> f32 {\n    return 1.0;\n}\n",
    };
    let split = match parts {
        Parts::High => "fn put_halves(at: u32, v: vec4<f32>) {\n    halves[at] = vec4<f16>(v);\n}\n",
        Parts::HighAndLow => include_str!("../../../../../shaders/matrix_halves.wgsl"),
    };
    let rest = if parts == Parts::HighAndLow { REST } else { "" };
    let body = [scale, rest, split, include_str!("../../../../../shaders/matrix_pack.wgsl")].join("\n");
    let source = Source::new("matmul halves", &body).enabling(&["f16"]).reads("x", elem);
    let source = if is_scaled { source.reads("magnitudes", Elem::F32) } else { source };
    let source = source.writes("halves", Elem::Halfx4).words(Number::U32, &WORDS);
    let source = if is_scaled { source.words(Number::U32, &[MAGNITUDES]) } else { source };
    source
        .constant("LINES", PACKED[0] as u32)
        .constant("TERMS", PACKED[1] as u32)
        .constant("EXTENT", if is_left { block.rows } else { block.cols } as u32)
        .constant("DEPTH", block.depth as u32)
        .constant("ALONG_K", u32::from(along_k))
        .constant("IS_LEFT", u32::from(is_left))
        .constant("PARTS", parts.count() as u32)
}

/// Every specialisation for some blocks.
pub(super) fn all(blocks: &[(Block, Parts)]) -> Vec<Source> {
    let kinds = [(Elem::F32, true), (Elem::BF16, true), (Elem::Half, false)];
    let mut out = Vec::new();
    for &(block, parts) in blocks {
        for (elem, is_scaled) in kinds.into_iter().filter(|&(elem, _)| elem == Elem::F32 || parts == Parts::High) {
            for bits in 0..4u8 {
                let (along_k, is_left) = (bits & 1 != 0, bits & 2 != 0);
                out.push(pack(block, Packing { elem, along_k, is_left, is_scaled, parts }));
            }
        }
    }
    out
}
