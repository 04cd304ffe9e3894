//! What the shaders of row kernels have in common: the threads of a row, and optional operands.
use super::super::text::{Elem, Number, Source};

/// Threads of a workgroup of a row kernel.
pub const THREADS: u32 = 256;
/// How many threads may share a row.
pub const LANES: [u32; 5] = [1, 4, 16, 64, 256];

/// The threads of a row: how many, and whether neighbouring threads work on neighbouring rows instead of neighbouring elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threads {
    /// One of `LANES`.
    pub lanes: u32,
    /// Neighbouring threads work on neighbouring rows.
    pub across: bool,
}

impl Threads {
    /// Threads that lie along a row.
    pub const fn along(lanes: u32) -> Threads {
        Threads { lanes, across: false }
    }

    /// Rows that a workgroup works on.
    pub const fn rows(self) -> u32 {
        THREADS / self.lanes
    }
}

/// A shader of a row kernel, its own body behind the common one.
pub fn source(name: &'static str, body: &str, threads: Threads) -> Source {
    let all = format!("{}\n{body}", include_str!("../../../../shaders/rows.wgsl"));
    Source::new(name, &all).constant("LANES", threads.lanes).constant("STRIDE", if threads.across { threads.rows() } else { 1 })
}

/// Adds an operand with one element a row or a column, `NAME_at(i)`; without it the function gives a number.
pub fn optional(source: Source, name: &'static str, elem: Option<Elem>, without: &str) -> Source {
    let Some(elem) = elem else {
        return append(source, &format!("fn {name}_at(i: u32) -> f32 {{ return {without}; }}"));
    };
    let source = append(
        source,
        &format!("fn {name}_at(i: u32) -> f32 {{ let at = p.{name}_at + i * p.{name}_step; return load_{name}(at); }}"),
    );
    let mut source = source.reads(name, elem);
    for end in ["at", "step"] {
        source.words.push((format!("{name}_{end}"), Number::U32));
    }
    source
}

/// Adds functions.
pub fn append(mut source: Source, text: &str) -> Source {
    source.body.push('\n');
    source.body.push_str(text);
    source.body.push('\n');
    source
}
