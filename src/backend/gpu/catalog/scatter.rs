//! Shaders that write or add rows at targets.
use super::super::text::{Elem, Number, Source};
use super::each;
use super::movement::{store, ways};

/// How an element joins what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// Float sum.
    Float,
    /// Wrapping sum of 32-bit integers.
    Int,
    /// Wrapping sum of 64-bit integers.
    Long,
    /// Logical or.
    Truth,
}

impl Join {
    /// Every way.
    pub const ALL: [Join; 4] = [Join::Float, Join::Int, Join::Long, Join::Truth];

    const fn elem(self) -> Elem {
        match self {
            Join::Float => Elem::F32,
            Join::Int | Join::Truth => Elem::I32,
            Join::Long => Elem::Pair,
        }
    }

    fn text(self, body: &str) -> String {
        let join = match self {
            Join::Float => "alias Value = f32;\nfn join(a: f32, b: f32) -> f32 { return a + b; }\n",
            Join::Int => "alias Value = i32;\nfn join(a: i32, b: i32) -> i32 { return a + b; }\n",
            Join::Truth => "alias Value = i32;\nfn join(a: i32, b: i32) -> i32 { return a | b; }\n",
            Join::Long => "alias Value = vec2<u32>;\nfn join(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return add(a, b); }\n",
        };
        let long = if self == Join::Long { shader!("long") } else { "" };
        [long, join, body].concat()
    }
}

/// Which position writes to a target.
pub fn claim() -> Source {
    each("put_claim", shader!("put_claim"), 1)
        .reads("targets", Elem::Word)
        .writes("last", Elem::Flag)
        .words(Number::U32, &["count", "targets_at", "last_at"])
}

/// Rows written by the positions that claimed their targets.
pub fn put(v: Elem, out: Elem) -> Source {
    each("put", &[&store(v, out), shader!("put")].concat(), 1)
        .reads("targets", Elem::Word)
        .reads("last", Elem::Word)
        .reads("v", v)
        .writes("out", out)
        .words(Number::U32, &["count", "width", "targets_at", "last_at", "v_at", "out_at"])
}

/// Elements added line by line.
pub fn lines(join: Join) -> Source {
    each("scatter_lines", &join.text(shader!("scatter_lines")), 1)
        .reads("targets", Elem::Word)
        .reads("v", join.elem())
        .writes("out", join.elem())
        .words(Number::U32, &["count", "inner", "length", "targets_at", "v_at", "out_at"])
}

/// Sums over chunks of the sorted positions.
pub fn runs(join: Join) -> Source {
    Source::new("scatter_runs", &join.text(shader!("scatter_runs")))
        .reads("keys", Elem::Word)
        .reads("places", Elem::Word)
        .reads("v", join.elem())
        .writes("out", join.elem())
        .writes("heads", join.elem())
        .writes("tails", join.elem())
        .words(Number::U32, &["count", "width", "length", "keys_at", "places_at", "v_at", "out_at", "heads_at", "tails_at"])
}

/// Sums that cross chunks.
pub fn crossing(join: Join) -> Source {
    each("scatter_join", &join.text(shader!("scatter_join")), 1)
        .reads("keys", Elem::Word)
        .reads("heads", join.elem())
        .reads("tails", join.elem())
        .writes("out", join.elem())
        .words(Number::U32, &["count", "places", "width", "length", "keys_at", "heads_at", "tails_at", "out_at"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    let mut all = vec![claim()];
    all.extend(ways().map(|(v, out)| put(v, out)));
    for join in Join::ALL {
        all.extend([lines(join), runs(join), crossing(join)]);
    }
    all
}
