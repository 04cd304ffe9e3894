//! Elements that kernels only move: their bits, whatever they mean. A conversion there and back may make a NaN quiet or flush a denormal.
use super::codegen;
use super::launch::{Caps, Dispatch, Flat, Slot, Steps, View, cast_expr, elem, wide};
use super::text::Elem;
use crate::backend::expr::{EwOp, Expr, Instr, Src, is_half};
use crate::backend::kind::UnaryKind;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{elems, strides};
use smallvec::{SmallVec, smallvec};

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

/// One input as it lies, each packed element in a word of its own where `to` is int32, or packed again from there.
fn moving(from: DType, to: DType) -> Expr {
    if is_half(from) || is_half(to) {
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
        self.packed.push(Packed { output: k, scratch: flat, added_to: None });
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

    /// Output `k`, to which a kernel adds, holding the numbers of input `i` to begin with.
    pub fn out_added(&mut self, k: usize, i: usize) -> Result<Flat> {
        let out = self.out_from(k, i, false)?;
        if let Some(packed) = self.packed.last_mut().filter(|packed| packed.output == k)
            && is_half(self.outs[k].dtype)
        {
            packed.added_to = Some(i);
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

/// An output that a last dispatch packs from scratch with a word an element.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    /// Its number.
    pub output: usize,
    /// Where its wide elements are.
    pub scratch: Flat,
    /// The input to which something was added: where it is NaN the result is too, and as nothing may have been added it is the same one.
    pub added_to: Option<usize>,
}

impl Packed {
    /// The dispatch that packs it.
    pub fn dispatch(self, all: &[View<'_>], outs: &[View<'_>], caps: Caps) -> Result<Dispatch> {
        let out = outs[self.output];
        // Scratch of words holds bits, not numbers.
        let from = if self.scratch.elem == Elem::Word { DType::I32 } else { wide(out.dtype) };
        let steps = strides(out.shape);
        let x = View { slot: self.scratch.slot, dtype: from, shape: out.shape, strides: &steps };
        let mut ins: SmallVec<[View<'_>; 2]> = smallvec![x];
        ins.extend(self.added_to.map(|input| all[input]));
        let expr = match self.added_to {
            Some(_) => sum(from, out.dtype),
            None if self.scratch.elem == Elem::Word => moving(from, out.dtype),
            None => cast_expr(from, out.dtype),
        };
        codegen::fused(&expr, out.shape, &ins, &[out], caps)
    }
}

/// The first input in the type of the second, but the second where that is NaN.
fn sum(from: DType, to: DType) -> Expr {
    let instr = |op, input, out, srcs| Instr { op, input, out, srcs };
    let instrs = vec![
        instr(EwOp::Cast, from, to, smallvec![Src::Input(0)]),
        instr(EwOp::Unary(UnaryKind::IsNan), to, DType::Bool, smallvec![Src::Input(1)]),
        instr(EwOp::Where, to, to, smallvec![Src::Instr(1), Src::Input(1), Src::Instr(0)]),
    ];
    Expr { inputs: smallvec![from, to], instrs, outputs: smallvec![(Src::Instr(2), to)] }
}
