//! Shaders that make values of arguments alone.
use super::super::text::{Elem, Number, Source};
use super::each;

/// A word, or two in turn, all over the output.
pub fn fill() -> Source {
    each("fill", shader!("fill"), 4).writes("out", Elem::Word).words(Number::U32, &["count", "out_at", "low", "high"])
}

/// Start + i * step in floats.
pub fn ramp_float() -> Source {
    Source::new("ramp_float", &[shader!("long"), shader!("ramp_float")].concat())
        .writes("out", Elem::F32)
        .words(Number::U32, &["count", "out_at", "start0", "start1", "start2", "step0", "step1", "step2", "last"])
        .words(Number::U32, &["is_finite", "is_odd"])
        .words(Number::F32, &["start", "step"])
}

/// What becomes of a 64-bit integer when it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Narrow {
    /// Both words.
    Long,
    /// The low word.
    Low,
    /// The low byte.
    Byte,
    /// Whether it is not 0.
    Truth,
}

impl Narrow {
    /// Every way.
    pub const ALL: [Narrow; 4] = [Narrow::Long, Narrow::Low, Narrow::Byte, Narrow::Truth];

    /// The elements that come of it.
    pub const fn elem(self) -> Elem {
        if matches!(self, Narrow::Long) { Elem::Pair } else { Elem::I32 }
    }

    /// The function.
    pub const fn text(self) -> &'static str {
        match self {
            Narrow::Long => "fn narrow(x: vec2<u32>) -> vec2<u32> { return x; }\n",
            Narrow::Low => "fn narrow(x: vec2<u32>) -> i32 { return bitcast<i32>(x.x); }\n",
            Narrow::Byte => "fn narrow(x: vec2<u32>) -> i32 { return bitcast<i32>(x.x & 0xffu); }\n",
            Narrow::Truth => "fn narrow(x: vec2<u32>) -> i32 { return select(0i, 1i, (x.x | x.y) != 0u); }\n",
        }
    }
}

/// Start + i * step in wrapping integers.
pub fn ramp_int(narrow: Narrow) -> Source {
    let body = [narrow.text(), shader!("long"), shader!("ramp_int")].concat();
    Source::new("ramp_int", &body)
        .writes("out", narrow.elem())
        .words(Number::U32, &["count", "out_at", "start_low", "start_high", "step_low", "step_high"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    let mut all = vec![fill(), ramp_float()];
    all.extend(Narrow::ALL.map(ramp_int));
    all
}
