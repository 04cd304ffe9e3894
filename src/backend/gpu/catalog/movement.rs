//! Shaders that move elements unchanged.
use super::super::text::{Elem, Number, Source};
use super::each;

/// How elements that are only moved may lie.
pub const MOVED: [Elem; 6] = [Elem::Word, Elem::Pair, Elem::MovedHalf, Elem::Bits16, Elem::U8, Elem::Bool];

/// How they may lie where they come from and where they go: packed ones in a word each, or in words that they share.
pub fn ways() -> impl Iterator<Item = (Elem, Elem)> {
    let packed = MOVED.into_iter().filter(|x| x.per_word() > 1);
    MOVED.into_iter().map(|x| (x, x.apart())).chain(packed.map(|x| (x, x)))
}

/// What stands in front of shaders that write to `out` by `store_out`.
pub fn store(x: Elem, out: Elem) -> String {
    let text = if out.per_word() > 1 { shader!("store_packed") } else { shader!("store") };
    format!("alias Value = {};\nconst BITS: u32 = {}u;\n{text}", x.loaded(), 32 / out.per_word())
}

/// A strided copy into a window; the table has size, step in x and step in out of every axis, the last first.
pub fn place(x: Elem, out: Elem) -> Source {
    each("place", &[&store(x, out), shader!("place")].concat(), 4)
        .reads("x", x)
        .reads("table", Elem::Word)
        .writes("out", out)
        .words(Number::U32, &["count", "rank", "first", "x_at", "out_at"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    ways().map(|(x, out)| place(x, out)).collect()
}
