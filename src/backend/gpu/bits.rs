//! Elements that kernels only move: their bits, whatever they mean. A conversion there and back may make a NaN quiet or flush a denormal.
use super::codegen;
use super::launch::{Caps, Flat, Slot, Steps, View, cast_expr, elem};
use super::text::Elem;
use crate::backend::expr::{Expr, Src};
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{elems, strides};
use smallvec::smallvec;

/// Elements of which one is written are few: packing all of them again costs more than joining that one to its neighbours.
const FEW: usize = 8;

/// How an element of a tensor that is only moved lies.
pub fn moved(dtype: DType, caps: Caps) -> Elem {
    match elem(dtype, false, caps) {
        Elem::Half => Elem::MovedHalf,
        Elem::F16 | Elem::BF16 => Elem::Bits16,
        packed if packed.per_word() > 1 => packed,
        _ if dtype.size_bytes() == 8 => Elem::Pair,
        _ => Elem::Word,
    }
}

const fn is_16_bits(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// One input as it lies, each packed element in a word of its own where `to` is int32, or packed again from there.
fn moving(from: DType, to: DType) -> Expr {
    if is_16_bits(from) || is_16_bits(to) {
        return Expr { inputs: smallvec![from], outputs: smallvec![(Src::Input(0), to)], ..Expr::default() };
    }
    cast_expr(from, to)
}

impl Steps<'_> {
    /// Input `k` where it lies, which only such kernels may read that go by its strides or are given it row-major.
    pub fn held(&self, k: usize) -> Flat {
        let x = self.ins[k];
        Flat { slot: x.slot, elem: moved(x.dtype, self.caps), bytes: x.dtype.size_bytes() }
    }

    /// Input `k` row-major; a copy is made where it is not.
    pub fn flat_moved(&mut self, k: usize) -> Result<Flat> {
        let elem = self.held(k).elem;
        Ok(Flat { elem, ..self.flat(k, false)? })
    }

    /// Output `k` for kernels that only move elements and write so many: the output itself, or scratch with a word an element, which a
    /// last dispatch packs. Of a few elements, or where there is no room for scratch, each joins the others in its word by itself.
    pub fn out_moved(&mut self, k: usize, written: usize) -> Flat {
        let x = self.outs[k];
        let (elem, words) = (moved(x.dtype, self.caps), elems(x.shape));
        if elem.per_word() == 1 || written.saturating_mul(FEW) <= words || words.saturating_mul(4) > self.caps.max_bytes {
            return Flat { slot: x.slot, elem, bytes: x.dtype.size_bytes() };
        }
        let flat = Flat { slot: self.scratch(words * 4), elem: elem.apart(), bytes: 4 };
        self.packed.push((k, flat));
        flat
    }

    /// The same, holding the elements of input `i` to begin with. In place where the plan put the output where the input is.
    pub fn out_moved_from(&mut self, k: usize, i: usize, written: usize) -> Result<Flat> {
        let (out, x) = (self.out_moved(k, written), self.ins[i]);
        let is_output = matches!(out.slot, Slot::Out(_));
        self.moved_into(x, out.slot, if is_output { x.dtype } else { DType::I32 })?;
        if is_output && let Some(copy) = self.made.dispatches.last_mut() {
            copy.unless_in_place = Some((k, i));
        }
        Ok(out)
    }

    fn moved_into(&mut self, x: View<'_>, slot: Slot, to: DType) -> Result<()> {
        let steps = strides(x.shape);
        let out = View { slot, dtype: to, shape: x.shape, strides: &steps };
        let dispatch = codegen::fused(&moving(x.dtype, to), x.shape, &[x], &[out], self.caps)?;
        self.push(dispatch);
        Ok(())
    }
}

/// The type of what lies in scratch for an output of a type, and what packs it.
pub fn packing(scratch: Elem, wide: DType, out: DType) -> (DType, Expr) {
    // Scratch of words holds bits, not numbers.
    let from = if scratch == Elem::Word { DType::I32 } else { wide };
    (from, if scratch == Elem::Word { moving(from, out) } else { cast_expr(from, out) })
}
