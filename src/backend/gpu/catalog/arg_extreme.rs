//! The shaders that find the largest or smallest element.
use super::super::text::{Elem, Number, Source};
use super::rows::{self, LANES, Threads, append};

/// What a dispatch reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Elements to positions.
    Whole,
    /// Elements to the best of each part of a line.
    Parts,
    /// The best of the parts to positions.
    Last,
}

/// Finds the extremes. Bindings x and y; words their positions, lines, their length, the step between lines and between elements,
/// parts of a line, the elements of one.
pub fn arg_extreme(largest: bool, x: Elem, stage: Stage, threads: Threads) -> Source {
    let reverse = |key: &str| if largest { key.to_owned() } else { format!("~({key})") };
    let element = match (stage, x) {
        (Stage::Last, _) => {
            "let i = p.x_at + 3u * (at - p.x_at); return Best(bitcast<i32>(x[i]), bitcast<i32>(x[i + 1u]), x[i + 2u]);".to_owned()
        }
        (_, Elem::F32 | Elem::F16 | Elem::Half | Elem::BF16) => format!(
            "let key = keys_of(vec4<u32>(bitcast<u32>(load_x(at)))).x; return Best(select({}, key, key == 0x7fffffff), 0, j);",
            if largest { "key" } else { "-key" }
        ),
        (_, Elem::Pair) => format!(
            "let v = load_x(at); return Best({}, {}, j);",
            reverse("bitcast<i32>(v.y)"),
            reverse("bitcast<i32>(v.x ^ 0x80000000u)")
        ),
        _ => format!("return Best({}, 0, j);", reverse("load_x(at)")),
    };
    let put = match stage {
        Stage::Parts => {
            "let i = p.y_at + 3u * line; y[i] = bitcast<u32>(b.high); y[i + 1u] = bitcast<u32>(b.low); y[i + 2u] = b.at;"
        }
        _ => "y[p.y_at + line] = vec2<u32>(b.at, 0u);",
    };
    let text = format!(
        "const LEAST: i32 = -2147483647i - 1i;\nfn element(at: u32, j: u32) -> Best {{ {element} }}\n\
         fn put(line: u32, b: Best) {{ {put} }}"
    );
    let y = if stage == Stage::Parts { Elem::Word } else { Elem::Pair };
    let source = rows::source("argmax", include_str!("../../../../shaders/arg_extreme.wgsl"), threads, false);
    append(source, &text)
        .reads("x", if stage == Stage::Last { Elem::Word } else { x })
        .writes("y", y)
        .words(Number::U32, &["x_at", "y_at", "lines", "n", "x_step", "inner", "parts", "span"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    let mut out = Vec::new();
    let elems = [Elem::F32, Elem::F16, Elem::Half, Elem::BF16, Elem::I32, Elem::U8, Elem::Bool, Elem::Pair];
    for threads in LANES.into_iter().flat_map(|lanes| [Threads::along(lanes), Threads::across(lanes)]) {
        out.push(arg_extreme(true, Elem::F32, Stage::Whole, threads));
    }
    for (x, largest) in elems.into_iter().flat_map(|x| [(x, false), (x, true)]) {
        out.push(arg_extreme(largest, x, Stage::Parts, Threads::along(256)));
    }
    out.push(arg_extreme(true, Elem::Word, Stage::Last, Threads::along(256)));
    out
}
