//! `Const` and `Arange`: values made of arguments alone.
use super::super::catalog::generate::{self, Narrow};
use super::super::launch::{Derived, Slot, Steps, Word, spread};
use super::{count, fixed};
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::elems;

/// Words that a thread of `fill` writes.
const ITEMS: usize = 4;

/// Argument 0 everywhere.
pub fn constant(steps: &mut Steps) -> Result<()> {
    let out = steps.outs[0];
    let words = (elems(out.shape) * out.dtype.size_bytes()).div_ceil(4);
    let [low, high] = [false, true].map(|high| Word::Derived(Derived::Fill(out.dtype, high)));
    fill("full", out.slot, words, low, high, steps)
}

/// Fills the first words of a buffer with two words in turn.
pub fn fill(op: &'static str, slot: Slot, words: usize, low: Word, high: Word, steps: &mut Steps) -> Result<()> {
    let groups = spread(words, 256 * ITEMS, steps.caps)?;
    steps.dispatch(generate::fill(), &[slot], vec![fixed(op, words)?, Word::Offset(slot, 4), low, high], groups);
    Ok(())
}

/// Start + i * step.
pub fn ramp(steps: &mut Steps) -> Result<()> {
    let dtype = steps.outs[0].dtype;
    let out = steps.out(0, false);
    let len = count("arange", elems(steps.outs[0].shape))?;
    let groups = spread(len as usize, 256, steps.caps)?;
    let mut words = vec![Word::Fixed(len), out.offset()];
    if dtype.is_float() {
        words.extend((0..8).map(|k| Word::Derived(Derived::Ramp(len, k))));
        words.extend([Word::Fixed(u32::from(dtype != DType::F32)), Word::Float(0), Word::Float(1)]);
        steps.dispatch(generate::ramp_float(), &[out.slot], words, groups);
        return Ok(());
    }
    let narrow = match dtype {
        DType::I64 => Narrow::Long,
        DType::Bool => Narrow::Truth,
        DType::U8 => Narrow::Byte,
        _ => Narrow::Low,
    };
    words.extend([Word::Low(0), Word::High(0), Word::Low(1), Word::High(1)]);
    steps.dispatch(generate::ramp_int(narrow), &[out.slot], words, groups);
    Ok(())
}
