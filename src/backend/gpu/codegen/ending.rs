//! Expressions over the elements of a product as a part of the product's kernel.
use super::fused::Parts;
use super::numbers::Numbers;
use crate::backend::expr::Expr;
use crate::backend::gpu::catalog::matmul::{Ending, WORDS};
use crate::backend::gpu::launch::{Caps, Slot, View, Word, elem};
use crate::backend::gpu::text::{Number, Source};
use crate::dtype::DType;
use crate::error::Result;
use smallvec::SmallVec;

/// What follows a product in its kernel, and what it is given.
#[derive(Clone, Debug)]
pub struct Epilogue {
    /// The shader's part.
    pub ending: Ending,
    /// What its bindings are.
    pub slots: SmallVec<[Slot; 8]>,
    /// What its numbers are.
    pub words: Vec<Word>,
    /// The content of its table.
    pub table: Vec<u32>,
}

/// The epilogue that computes an expression over `shape`, whose input 0 is the product. `None` where a kernel of its own must do it: threads
/// of a product do not have whole words of packed elements, and an adapter takes only so many numbers and bindings.
pub fn ending(expr: &Expr, shape: &[usize], ins: &[View], outs: &[View], caps: Caps) -> Result<Option<Epilogue>> {
    let is_packed = |v: &View| elem(v.dtype, false, caps).per_word() > 1;
    if expr.inputs.first() != Some(&DType::F32) || outs.iter().any(is_packed) {
        return Ok(None);
    }
    let product = Source::new("", "").words(Number::U32, &WORDS);
    let Parts { mut source, mut slots, numbers, functions, lines } =
        Parts::new(expr, ins, outs, shape, (product, Numbers::default()), true, caps)?;
    if !numbers.fit(caps, &source) {
        return Ok(None);
    }
    let placed = numbers.place(caps, &mut source, &mut slots)?;
    // The factors are bound as well.
    if slots.len() + 2 > caps.max_bindings as usize {
        return Ok(None);
    }
    let text = format!(
        "{functions}fn epilogue(i: vec4u, total: u32, x_0: vec4f) {{\n{}    let inside = min(i, vec4u(total - 1u));\n{lines}}}\n",
        placed.lets,
    );
    let words = source.words.split_off(WORDS.len());
    let ending = Ending { text, bindings: source.bindings, words };
    Ok(Some(Epilogue { ending, slots, words: placed.words, table: placed.table }))
}
