//! Shaders that move elements unchanged.
use super::super::text::{Elem, Number, Source};
use super::each;

/// How elements that are only moved may lie.
pub const MOVED: [Elem; 6] = [Elem::Word, Elem::Pair, Elem::MovedHalf, Elem::Bits16, Elem::U8, Elem::Bool];

/// A strided copy into a window; the table has size, step in x and step in out of every axis, the last first.
pub fn place(x: Elem) -> Source {
    each("place", shader!("place"), 4)
        .reads("x", x)
        .reads("table", Elem::Word)
        .writes("out", x.apart())
        .words(Number::U32, &["count", "rank", "first", "x_at", "out_at"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    MOVED.map(place).into()
}
