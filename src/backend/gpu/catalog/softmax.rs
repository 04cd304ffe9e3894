//! The shaders of softmax.
use super::super::text::{Elem, Number, Source};
use super::rows::{self, LANES, Threads};

/// Softmax or its logarithm. Words: x's position and step from row to row, y's position, rows, their length, the rows of a matrix for a
/// causal one, and what the input is multiplied by.
pub fn softmax(log: bool, causal: bool, x: Elem, lanes: u32) -> Source {
    rows::source("softmax", include_str!("../../../../shaders/softmax.wgsl"), Threads::along(lanes))
        .constant("LOG", u32::from(log))
        .constant("CAUSAL", u32::from(causal))
        .reads("x", x)
        .writes("y", Elem::Word)
        .words(Number::U32, &["x_at", "x_step", "y_at", "rows", "n", "matrix"])
        .words(Number::F32, &["scale"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    let mut out = Vec::new();
    for lanes in LANES {
        for (log, causal) in [(false, false), (false, true), (true, false), (true, true)] {
            out.push(softmax(log, causal, Elem::F32, lanes));
        }
    }
    out.extend([Elem::F16, Elem::BF16].map(|x| softmax(false, false, x, 64)));
    out
}
