//! Shaders of the stable merge sort.
use super::super::text::{Elem, Number, Source};
use super::movement::{store, ways};

/// Where sort keys come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// f32 elements.
    Float,
    /// i32 elements.
    Int,
    /// i64 elements.
    Long,
    /// Words that are keys already.
    Word,
}

impl Order {
    /// Every source.
    pub const ALL: [Order; 4] = [Order::Float, Order::Int, Order::Long, Order::Word];

    const fn elem(self) -> Elem {
        match self {
            Order::Float => Elem::F32,
            Order::Int => Elem::I32,
            Order::Long => Elem::Pair,
            Order::Word => Elem::Word,
        }
    }

    /// How keys lie.
    pub const fn key(self) -> Elem {
        if matches!(self, Order::Long) { Elem::Pair } else { Elem::Word }
    }

    const fn text(self) -> &'static str {
        match self {
            Order::Float => shader!("sort_order_float"),
            Order::Int => shader!("sort_order_int"),
            Order::Long => shader!("sort_order_long"),
            Order::Word => shader!("sort_order_word"),
        }
    }
}

/// Blocks of rows, or several rows, sorted in workgroup memory.
pub fn blocks(order: Order) -> Source {
    Source::new("sort_blocks", &[order.text(), shader!("sort_blocks")].concat())
        .reads("x", order.elem())
        .writes("keys", order.key())
        .writes("places", Elem::Word)
        .words(Number::U32, &["rows", "length", "packed", "blocks", "span", "is_descending", "x_at", "keys_at", "places_at"])
}

/// Runs merged in pairs.
pub fn merge(key: Elem) -> Source {
    let less = if key == Elem::Pair {
        "fn is_less(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }\n"
    } else {
        "fn is_less(a: u32, b: u32) -> bool { return a < b; }\n"
    };
    Source::new("sort_merge", &[less, shader!("sort_merge")].concat())
        .reads("keys", key)
        .reads("places", Elem::Word)
        .writes("sorted_keys", key)
        .writes("sorted_places", Elem::Word)
        .words(Number::U32, &["count", "length", "width", "keys_at", "places_at", "sorted_keys_at", "sorted_places_at"])
}

/// Elements and positions in order.
pub fn values(x: Elem, out: Elem) -> Source {
    Source::new("sort_values", &[&store(x, out), shader!("sort_values")].concat())
        .reads("x", x)
        .reads("places", Elem::Word)
        .writes("out", out)
        .writes("positions", Elem::Pair)
        .words(Number::U32, &["count", "length", "x_at", "places_at", "out_at", "positions_at"])
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    let keys = [Elem::Word, Elem::Pair];
    Order::ALL.map(blocks).into_iter().chain(keys.map(merge)).chain(ways().map(|(x, out)| values(x, out))).collect()
}
