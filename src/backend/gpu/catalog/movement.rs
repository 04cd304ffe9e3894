//! Shaders that move elements unchanged.
use super::super::text::{Elem, Number, Source};
use super::each;

/// A strided copy into a window; the table has size, step in x and step in out of every axis, the last first.
pub fn place(elem: Elem) -> Source {
    each("place", shader!("place"), 4)
        .reads("x", elem)
        .reads("table", Elem::Word)
        .writes("out", elem)
        .words(Number::U32, &["count", "rank", "first", "x_at", "out_at"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    vec![place(Elem::Word), place(Elem::Pair)]
}
