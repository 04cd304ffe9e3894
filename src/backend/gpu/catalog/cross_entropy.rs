//! The shaders of cross-entropy and of its gradient.
use super::super::text::{Elem, Number, Source};
use super::rows::{self, LAID, Threads, append, optional};

/// Which of its parts a cross-entropy has, and how its labels lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Class weights.
    pub weight: Option<Elem>,
    /// An ignored label.
    pub ignores: bool,
    /// A smoothed target.
    pub smooths: bool,
    /// The labels' elements.
    pub labels: Elem,
}

/// What both kernels have: labels, flag, and what is optional.
fn with_labels(source: Source, form: Form) -> Source {
    let wide = match form.labels {
        Elem::Pair => "return load_labels(at);",
        _ => "let v = load_labels(at); return vec2<u32>(bitcast<u32>(v), bitcast<u32>(v >> 31u));",
    };
    let label = format!("fn label_at(row: u32) -> vec2<u32> {{ let at = p.labels_at + row * p.labels_step; {wide} }}");
    let mut source = append(source, include_str!("../../../../shaders/labels.wgsl"));
    source = append(source, &label)
        .constant("IGNORES", u32::from(form.ignores))
        .constant("SMOOTHS", u32::from(form.smooths))
        .constant("WEIGHTS", u32::from(form.weight.is_some()))
        .reads("labels", form.labels)
        .writes("flag", Elem::Flag)
        .words(Number::U32, &["labels_at", "labels_step", "rows", "n", "ticket"]);
    if form.ignores {
        source = source.words(Number::U32, &["ignored_low", "ignored_high"]);
    } else {
        // The comparison with the ignored label is compiled, if never made.
        source.body = source.body.replace("vec2<u32>(p.ignored_low, p.ignored_high)", "vec2<u32>(0u)");
    }
    source = if form.smooths {
        append(source, "fn smoothing_of() -> f32 { return p.smoothing; }").words(Number::F32, &["smoothing"])
    } else {
        append(source, "fn smoothing_of() -> f32 { return 0.0; }")
    };
    optional(source, "weight", form.weight, "1.0")
}

/// The forward kernel. Bindings x, loss, top, sum, and if there are weights or ignored rows the share; labels, flag, weight.
pub fn forward(form: Form, x: Elem, threads: Threads) -> Source {
    let source = rows::source("cross entropy", include_str!("../../../../shaders/cross_entropy.wgsl"), threads, x.is_wide());
    let source = rows::reads_rows(source, "x", x)
        .writes("loss_out", Elem::Word)
        .writes("top_out", Elem::Word)
        .writes("sum_out", Elem::Word)
        .words(Number::U32, &["x_at", "x_step", "loss_at", "top_at", "sum_at"]);
    let source = if form.weight.is_some() || form.ignores {
        let text = "fn put_share(row: u32, share: f32) { share_out[p.share_at + row] = share; }";
        append(source, text).writes("share_out", Elem::F32).words(Number::U32, &["share_at"])
    } else {
        append(source, "fn put_share(row: u32, share: f32) {}")
    };
    with_labels(source, form)
}

/// The gradient. Bindings x, g, top, sum, y; labels, flag, weight.
pub fn gradient(form: Form, [x, y]: [Elem; 2], threads: Threads) -> Source {
    let body = include_str!("../../../../shaders/cross_entropy_gradient.wgsl");
    let source = rows::source("cross entropy gradient", body, threads, x.is_wide());
    let source = rows::reads_rows(source, "x", x).reads("g", Elem::F32).reads("top", Elem::F32).reads("sum", Elem::F32);
    let source = rows::writes_rows(source, "y", rows::bits(y))
        .words(Number::U32, &["x_at", "x_step", "g_at", "g_step", "top_at", "top_step", "sum_at", "sum_step", "y_at"]);
    with_labels(source, form)
}

/// Every form, with different ways to share a row.
pub fn all() -> Vec<Source> {
    let mut out = Vec::new();
    let labels = [Elem::Pair, Elem::I32, Elem::U8];
    let ways = LAID.into_iter().zip(labels.into_iter().cycle()).flat_map(|each| (0..8).map(move |bits| (each, bits)));
    for (((x, labels), bits), threads) in ways.zip(rows::ways()) {
        let weight = (bits & 1 != 0).then_some(x);
        let form = Form { weight, ignores: bits & 2 != 0, smooths: bits & 4 != 0, labels };
        out.push(forward(form, x, threads));
        out.push(gradient(form, [x, rows::written(x)], threads));
    }
    out
}
