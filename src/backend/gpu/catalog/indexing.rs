//! Shaders that turn index tensors into offsets and read there.
use super::super::text::{Elem, Number, Source};
use super::each;
use super::movement::{store, ways};

/// How index tensors may lie.
pub const INDICES: [Elem; 3] = [Elem::U8, Elem::I32, Elem::Pair];

/// Offsets that index tensors name, one tensor after the other.
pub fn offsets(idx: Elem) -> Source {
    each("index_offsets", shader!("index_offsets"), 1)
        .reads("idx", idx)
        .writes("offsets", Elem::Word)
        .writes("flag", Elem::Flag)
        .words(
            Number::U32,
            &["count", "idx_at", "offsets_at", "size", "wrap", "step", "is_first", "block", "block_step", "inner"],
        )
        .words(Number::U32, &["ticket"])
}

/// Rows at offsets; elements are given as they are loaded.
pub fn gather(x: Elem, out: Elem) -> Source {
    each("gather", &[&store(x, out), shader!("gather")].concat(), 4)
        .reads("x", x)
        .reads("offsets", Elem::Word)
        .writes("out", out)
        .words(Number::U32, &["count", "width", "step", "x_at", "offsets_at", "out_at"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    INDICES.map(offsets).into_iter().chain(ways().map(|(x, out)| gather(x, out))).collect()
}
