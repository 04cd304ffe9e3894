//! The shaders of softmax.
use super::super::text::{Elem, Number, Source};
use super::rows::{self, LAID, Threads};

/// Softmax or its logarithm. Words: x's position and step from row to row, y's position, rows, their length, the rows of a matrix for a
/// causal one, and what the input is multiplied by.
pub fn softmax(log: bool, causal: bool, [x, y]: [Elem; 2], threads: Threads) -> Source {
    let source = rows::source("softmax", include_str!("../../../../shaders/softmax.wgsl"), threads, x.is_wide())
        .constant("LOG", u32::from(log))
        .constant("CAUSAL", u32::from(causal));
    rows::writes_rows(rows::reads_rows(source, "x", x), "y", rows::bits(y))
        .words(Number::U32, &["x_at", "x_step", "y_at", "rows", "n", "matrix"])
        .words(Number::F32, &["scale"])
}

/// Every specialisation, with different ways to share a row.
pub fn all() -> Vec<Source> {
    let forms = [(false, false), (false, true), (true, false), (true, true)];
    let many = LAID.into_iter().cycle().zip(rows::ways()).take(33);
    many.flat_map(|(x, threads)| forms.map(|(log, causal)| softmax(log, causal, [x, rows::written(x)], threads))).collect()
}
