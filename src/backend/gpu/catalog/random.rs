//! Shaders of random numbers.
use super::super::text::{Elem, Number, Source};
use super::generate::Narrow;

fn drawn(name: &'static str, body: &str) -> Source {
    let body = [shader!("long"), shader!("philox"), body].concat();
    Source::new(name, &body)
        .words(Number::U32, &["count", "counters", "out_at", "key_low", "key_high", "counter_low", "counter_high", "zero"])
}

/// Uniform floats.
pub fn uniform() -> Source {
    drawn("random_uniform", shader!("random_uniform")).writes("out", Elem::F32).words(Number::F32, &["low", "span", "top"])
}

/// Normal floats.
pub fn normal() -> Source {
    drawn("random_normal", shader!("random_normal")).writes("out", Elem::F32).words(Number::F32, &["mean", "deviation"])
}

/// Integers.
pub fn integers(narrow: Narrow) -> Source {
    drawn("random_int", &[narrow.text(), shader!("random_int")].concat())
        .writes("out", narrow.elem())
        .words(Number::U32, &["low_low", "low_high", "high_low", "high_high"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    let integers = [Narrow::Long, Narrow::Low, Narrow::Byte].map(integers);
    [uniform(), normal()].into_iter().chain(integers).collect()
}
