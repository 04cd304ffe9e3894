//! The shaders of normalizations and of their gradients.
use super::super::text::{Elem, Number, Source};
use super::rows::{self, LAID, Threads, append, optional};

/// The forward kernel. Bindings x, y, rstd, and if there are any mean, weight, bias; words their positions (x's step behind its
/// position, those of weight and bias last, each with its step), rows, their length, eps.
pub fn forward(centres: bool, [x, y]: [Elem; 2], weight: Option<Elem>, bias: Option<Elem>, threads: Threads) -> Source {
    let source = rows::source("norm", include_str!("../../../../shaders/norm.wgsl"), threads, x.is_wide())
        .constant("CENTRES", u32::from(centres));
    let source = rows::writes_rows(rows::reads_rows(source, "x", x), "y", y)
        .writes("rstd_out", Elem::F32)
        .words(Number::U32, &["x_at", "x_step", "y_at", "rstd_at", "rows", "n"])
        .words(Number::F32, &["eps"]);
    let source = if centres {
        let text = "fn put_mean(row: u32, mean: f32) { mean_out[p.mean_at + row] = mean; }";
        append(source, text).writes("mean_out", Elem::F32).words(Number::U32, &["mean_at"])
    } else {
        append(source, "fn put_mean(row: u32, mean: f32) {}")
    };
    optional(optional(source, "weight", weight, "1.0"), "bias", bias, "0.0")
}

/// The gradient of the input. Bindings g, x, rstd, dx, and if there are any mean, weight; words their positions and steps, rows, their
/// length.
pub fn input([g, x, dx]: [Elem; 3], mean: bool, weight: Option<Elem>, threads: Threads) -> Source {
    let source = rows::source("norm gradient", include_str!("../../../../shaders/norm_input.wgsl"), threads, x.is_wide())
        .constant("CENTRES", u32::from(mean));
    let source = rows::reads_rows(rows::reads_rows(source, "g", g), "x", x).reads("rstd", Elem::F32);
    let source = rows::writes_rows(source, "dx", dx)
        .words(Number::U32, &["g_at", "g_step", "x_at", "x_step", "rstd_at", "rstd_step", "dx_at", "rows", "n"]);
    optional(optional(source, "mean", mean.then_some(Elem::F32), "0.0"), "weight", weight, "1.0")
}

/// The sums of chunks of rows for weight and bias. Bindings g, x, rstd, the sums, and if there is one the mean.
pub fn columns(g: Elem, x: Elem, mean: bool) -> Source {
    let source = Source::new("norm columns", include_str!("../../../../shaders/norm_columns.wgsl"))
        .reads("g", g)
        .reads("x", x)
        .reads("rstd", Elem::F32)
        .writes("sums_out", Elem::F32)
        .words(Number::U32, &["g_at", "g_step", "x_at", "x_step", "rstd_at", "rstd_step", "sums_at"])
        .words(Number::U32, &["rows", "n", "span", "chunks", "blocks"]);
    optional(source, "mean", mean.then_some(Elem::F32), "0.0")
}

/// The chunks' sums added up. Bindings the sums and the result.
pub fn total() -> Source {
    Source::new("norm total", include_str!("../../../../shaders/norm_total.wgsl"))
        .reads("sums", Elem::F32)
        .writes("total", Elem::F32)
        .words(Number::U32, &["sums_at", "total_at", "n", "chunks", "which"])
}

/// Every specialisation, with different ways to share a row.
pub fn all() -> Vec<Source> {
    let mut out = vec![total()];
    let elems = [Elem::F32, Elem::F16, Elem::Half, Elem::BF16];
    for (elem, threads) in LAID.into_iter().cycle().zip(rows::ways()).take(33) {
        for centres in [false, true] {
            for (weight, bias) in [(None, None), (Some(elem), None), (None, Some(elem)), (Some(elem), Some(elem))] {
                out.push(forward(centres, [elem, rows::written(elem)], weight, bias, threads));
            }
            let elems = [elem, elem, rows::written(elem)];
            out.extend([None, Some(elem)].map(|weight| input(elems, centres, weight, threads)));
        }
    }
    out.extend(elems.into_iter().flat_map(|e| [false, true].map(|mean| columns(e, e, mean))));
    out
}
