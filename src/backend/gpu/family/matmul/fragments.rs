//! Products by fragments: when they serve, which blocks, and the dispatches in front of them that find magnitudes and pack operands.
use super::super::super::catalog::matrix::pack::{PACKED, Packing, pack};
use super::super::super::catalog::matrix::{self, Block, EXACT, Fragments, Parts, SHORT};
use super::super::super::codegen;
use super::super::super::launch::{Caps, Slot, Steps, View, Word, grid};
use super::super::super::text::Elem;
use super::{OWN_DEPTHS, Plan, Product, Side, To, of_parts};
use crate::backend::expr::{EwOp, Expr, Instr, Src};
use crate::backend::kind::{Precision, ReduceKind, UnaryKind};
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{elems, strides};
use smallvec::smallvec;

/// Multiply-adds below which the dispatches in front cost more than fragments gain: half as many, those of 512 x 512 x 512, took longer on
/// the large GPU that was measured than single multiply-adds did.
const LEAST: usize = 1 << 28;
/// Workgroups that keep a large adapter busy: with fewer, sums are cut.
const BUSY_GROUPS: usize = 132;
/// The part of a workgroup's block that must lie within the product, in percent.
const USEFUL: usize = 50;
/// Bytes that packed operands may always take, and how many times as many as operands and results they may beyond.
const MODEST: usize = 64 << 20;
const TIMES: usize = 2;
/// Bytes of what a thread moves at a time: positions in packed operands count these.
const TOGETHER: usize = 8;

/// How an operand is packed, and found again.
struct Packed {
    /// The halves, and the magnitudes of lines where they are scaled.
    halves: Slot,
    magnitudes: Option<Slot>,
    /// Whether each item of a batch has its own.
    is_each: bool,
}

/// One operand as it is packed: its lines, and the steps between them and between terms.
struct Lines<'a> {
    p: &'a Product,
    side: &'a Side,
    is_left: bool,
    count: usize,
    steps: [isize; 2],
}

/// The plan of a product by fragments, with the dispatches in front of it; `None` where other shaders serve.
pub(super) fn plan(p: &Product, dtype: DType, precision: Precision, to: To, steps: &mut Steps) -> Result<Option<Plan>> {
    let caps = steps.caps;
    let Some(fragments) = caps.fragments else { return Ok(None) };
    let (elem, parts) = match (dtype, precision) {
        (DType::F32, Precision::Highest) => (Elem::F32, Parts::HighAndLow),
        (DType::F32, Precision::High | Precision::Medium) => (Elem::F32, Parts::High),
        // All bits of theirs are in a half, where it is scaled.
        (DType::F16, _) if caps.f16 => (Elem::Half, Parts::High),
        (DType::BF16, _) => (Elem::BF16, Parts::High),
        _ => return Ok(None),
    };
    let Some(block) = block(p, parts, fragments, caps).filter(|&b| p.m > 1 && fits(p, b, parts, dtype, to, caps)) else {
        return Ok(None);
    };
    let tiles = [p.m.div_ceil(block.rows), p.n.div_ceil(block.cols)];
    let splits = p.splits(tiles[0] * tiles[1], BUSY_GROUPS, OWN_DEPTHS * block.depth, caps);
    let span = p.k.div_ceil(splits).next_multiple_of(block.depth);
    let splits = p.k.div_ceil(span);
    let packed = lines(p).map(|lines| lines.pack(block, parts, elem, steps));
    let [a, b] = packed;
    let (a, b) = (a?, b?);
    let mut plan = Plan::new(matrix::product(block, parts, elem, fragments, of_parts(to, splits)), tiles, splits, span);
    plan.slots = vec![a.halves, b.halves];
    plan.words = [&a, &b].map(|packed| Word::Offset(packed.halves, TOGETHER)).into();
    plan.words.extend([&a, &b].map(|packed| Word::Fixed(u32::from(packed.is_each))));
    let magnitudes = [a.magnitudes, b.magnitudes].into_iter().flatten();
    plan.words.extend(magnitudes.clone().map(|slot| Word::Offset(slot, 4)));
    plan.slots.extend(magnitudes);
    Ok(Some(plan))
}

/// The first block that fills the adapter, if one is worth it. Where threads stand for fragments, for tests, theirs is always.
fn block(p: &Product, parts: Parts, fragments: Fragments, caps: Caps) -> Option<Block> {
    if fragments == Fragments::Scalar {
        return Some(caps.block.unwrap_or(matrix::TEST));
    }
    let fits = |b: &Block| b.bytes(parts) <= caps.workgroup_bytes as usize && b.threads() <= caps.max_threads as usize;
    let table = if parts == Parts::High { &SHORT[..] } else { &EXACT[..] };
    let tiles = |b: &Block| p.m.div_ceil(b.rows) * p.n.div_ceil(b.cols);
    let chosen = || table.iter().find(|(b, least)| fits(b) && tiles(b) * p.items() >= *least).map(|&(b, _)| b);
    let block = caps.block.filter(fits).or_else(chosen)?;
    let is_useful = 100 * p.m * p.n >= USEFUL * tiles(&block) * block.rows * block.cols;
    let is_large = p.m.saturating_mul(p.n).saturating_mul(p.k).saturating_mul(p.items()) >= LEAST;
    (is_useful && is_large).then_some(block)
}

/// Whether the shader's numbers and bindings are not too many, nor the elements that dispatches count, and what is packed is neither more
/// than one binding holds nor out of proportion to the product.
fn fits(p: &Product, block: Block, parts: Parts, dtype: DType, to: To, caps: Caps) -> bool {
    let (bindings, words) = match to {
        To::Tensor(_) => (1, 0),
        To::Epilogue(epilogue) => (epilogue.slots.len(), epilogue.words.len()),
    };
    let words = super::WORDS.len() + matrix::MORE_WORDS.len() + matrix::SCALE_WORDS.len() + words;
    let most = p.m.max(p.n).saturating_mul(p.k).saturating_mul(p.items());
    if 6 + bindings > caps.max_bindings as usize || 4 * words > caps.max_immediates as usize || most > u32::MAX as usize {
        return false;
    }
    let (mut own, mut packed, mut largest) = (p.m * p.n * p.items(), 0, 0);
    for lines in lines(p) {
        let bytes = lines.bytes(block, parts);
        own += lines.count * p.k * lines.items_in_memory();
        packed += bytes;
        largest = largest.max(bytes);
    }
    largest <= caps.max_bytes && packed <= MODEST.max(TIMES * own * dtype.size_bytes())
}

/// Both operands.
fn lines(p: &Product) -> [Lines<'_>; 2] {
    [
        Lines { p, side: &p.a, is_left: true, count: p.m, steps: [p.a.row, p.a.col] },
        Lines { p, side: &p.b, is_left: false, count: p.n, steps: [p.b.col, p.b.row] },
    ]
}

impl Lines<'_> {
    /// Whether each item of the batch has lines of its own.
    fn is_each(&self) -> bool {
        self.side.steps.iter().any(|&step| step != 0)
    }

    fn items(&self) -> usize {
        if self.is_each() { self.p.items() } else { 1 }
    }

    /// Items that do not share their memory.
    fn items_in_memory(&self) -> usize {
        self.p.axes.iter().zip(&self.side.steps).filter(|&(_, &step)| step != 0).map(|(&size, _)| size).product()
    }

    /// The batch axes along which there are lines of their own, and the steps along these.
    fn batch(&self) -> (&[usize], &[isize]) {
        if self.is_each() { (&self.p.axes, &self.side.steps) } else { (&[], &[]) }
    }

    /// The tiles that hold the lines, and the blocks that hold the terms.
    fn chunks(&self, block: Block) -> [usize; 2] {
        let extent = if self.is_left { block.rows } else { block.cols };
        [self.count.div_ceil(extent), self.p.k.div_ceil(block.depth)]
    }

    /// Bytes of the halves.
    fn bytes(&self, block: Block, parts: Parts) -> usize {
        let [tiles, blocks] = self.chunks(block);
        let extent = if self.is_left { block.rows } else { block.cols };
        self.items() * tiles * extent * blocks * block.depth * parts.count() * 2
    }

    /// Adds the dispatches that pack them.
    fn pack(&self, block: Block, parts: Parts, elem: Elem, steps: &mut Steps) -> Result<Packed> {
        let magnitudes = if elem == Elem::Half { None } else { Some(self.magnitudes(steps)?) };
        let halves = steps.scratch(self.bytes(block, parts));
        let along_k = self.steps[1].unsigned_abs() <= self.steps[0].unsigned_abs();
        let packing = Packing { elem, along_k, is_left: self.is_left, is_scaled: magnitudes.is_some(), parts };
        let source = pack(block, packing);
        let [tiles, blocks] = self.chunks(block);
        let extent = if self.is_left { block.rows } else { block.cols };
        let [x, y, _] = grid((tiles * extent).div_ceil(PACKED[0]) * (blocks * block.depth).div_ceil(PACKED[1]), steps.caps)?;
        let (axes, axis_steps) = self.batch();
        let inner = axes.len().saturating_sub(3);
        let (outer, last) = (elems(&axes[..inner]), elems(&axes[inner..]));
        let most = steps.caps.max_groups as usize;
        let (input, size) = (Slot::In(self.side.input), steps.ins[self.side.input].dtype.size_bytes());
        for o in 0..outer {
            let plus = self.p.start(self.side, inner, o);
            for from in (0..last).step_by(most) {
                let fixed = |number: isize| Word::Fixed(number as u32);
                let mut words = vec![Word::Offset(input, size), fixed(plus), Word::Offset(halves, TOGETHER)];
                words.extend(self.steps.map(fixed));
                words.extend([self.count, self.p.k, tiles, blocks, from, o * last].map(|number| Word::Fixed(number as u32)));
                // The last three axes, the outermost first; axes that are missing have size 1.
                let axis = |back: usize| axes.len().checked_sub(back);
                words.extend([2, 1].map(|back| Word::Fixed(axis(back).map_or(1, |i| axes[i]) as u32)));
                words.extend([3, 2, 1].map(|back| fixed(axis(back).map_or(0, |i| axis_steps[i]))));
                let mut slots = vec![input, halves];
                if let Some(magnitudes) = magnitudes {
                    words.push(Word::Offset(magnitudes, 4));
                    slots.insert(1, magnitudes);
                }
                steps.dispatch(source.clone(), &slots, words, [x, y, most.min(last - from) as u32]);
            }
        }
        Ok(Packed { halves, magnitudes, is_each: self.is_each() })
    }

    /// The largest magnitude of each line across the terms of the sums: infinite or NaN where an element is.
    fn magnitudes(&self, steps: &mut Steps) -> Result<Slot> {
        let (axes, axis_steps) = self.batch();
        let shape = [axes, &[self.count, self.p.k]].concat();
        let own = [axis_steps, &self.steps].concat();
        let last = shape.len() - 1;
        let slot = steps.scratch(4 * elems(&shape[..last]));
        let dtype = steps.ins[self.side.input].dtype;
        let mut expr = Expr { inputs: smallvec![dtype], ..Expr::default() };
        let mut from = Src::Input(0);
        if dtype != DType::F32 {
            expr.instrs.push(Instr { op: EwOp::Cast, input: dtype, out: DType::F32, srcs: smallvec![from] });
            from = Src::Instr(0);
        }
        let abs = Instr { op: EwOp::Unary(UnaryKind::Abs), input: DType::F32, out: DType::F32, srcs: smallvec![from] };
        expr.outputs.push((Src::Instr(expr.instrs.len() as u8), DType::F32));
        expr.instrs.push(abs);
        let ins = [View { slot: Slot::In(self.side.input), dtype, shape: &shape, strides: &own }];
        let outs = [View { slot, dtype: DType::F32, shape: &shape[..last], strides: &strides(&shape[..last]) }];
        steps.within(&shape, &ins, &outs, |inner| codegen::reduce(ReduceKind::Max, 1 << last, &expr, inner))?;
        Ok(slot)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
