//! Products by fragments: when they serve, which blocks, and the magnitudes of rows and columns that they are given.
use super::super::super::catalog::matrix::{self, Block, Fragments, Layout, Parts};
use super::super::super::codegen;
use super::super::super::launch::{Caps, Slot, Steps, View, Word};
use super::{BUSY, OWN_DEPTHS, Plan, Product, Side, To, of_parts};
use crate::backend::expr::{EwOp, Expr, Instr, Src};
use crate::backend::kind::{Precision, ReduceKind, UnaryKind};
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{elems, strides};
use smallvec::smallvec;

/// Blocks for products as exact as f32, and the workgroups from which each serves. Measured on one H200 (driver 580, Vulkan) with square
/// products: the first is ahead from 2048 on, the second below, and at 512 it is twice as fast as sums of single multiply-adds.
const EXACT: [(Block, usize); 2] = [
    (Block { rows: 128, cols: 128, depth: 32, own_rows: 64, own_cols: 32 }, 256),
    (Block { rows: 64, cols: 64, depth: 32, own_rows: 32, own_cols: 32 }, 0),
];
/// The same for products of halves: the first from 2048 on, the second at 1024, the third at 512.
const SHORT: [(Block, usize); 3] = [
    (Block { rows: 128, cols: 128, depth: 32, own_rows: 64, own_cols: 64 }, 256),
    (Block { rows: 64, cols: 64, depth: 64, own_rows: 32, own_cols: 32 }, 256),
    (Block { rows: 32, cols: 32, depth: 64, own_rows: 16, own_cols: 16 }, 0),
];
/// Multiply-adds below which the magnitudes' own dispatches cost more than fragments gain: those of 512 x 512 x 512.
const LEAST: usize = 1 << 27;
/// The part of a workgroup's block that must lie within the product, in percent.
const USEFUL: usize = 50;

/// The plan of a product by fragments, with the dispatches that find the magnitudes; `None` where other shaders serve.
pub(super) fn plan(p: &Product, dtype: DType, precision: Precision, to: To, steps: &mut Steps) -> Result<Option<Plan>> {
    let caps = steps.caps;
    let (Some(fragments), DType::F32, Some(layout)) = (caps.fragments, dtype, layout(p)) else { return Ok(None) };
    let (parts, blocks) = match precision {
        Precision::Highest => (Parts::HighAndLow, &EXACT[..]),
        Precision::High | Precision::Medium => (Parts::High, &SHORT[..]),
    };
    let Some(block) = block(p, parts, blocks, fragments, caps).filter(|_| p.m > 1 && fits(p, to, caps)) else { return Ok(None) };
    let tiles = [p.m.div_ceil(block.rows), p.n.div_ceil(block.cols)];
    let splits = p.splits(tiles[0] * tiles[1], BUSY / block.threads(), OWN_DEPTHS * block.depth, caps);
    let span = p.k.div_ceil(splits).next_multiple_of(block.depth);
    let splits = p.k.div_ceil(span);
    let source = |layout| matrix::product(block, parts, layout, fragments, of_parts(to, splits));
    let narrow = Layout { a_is_wide: false, b_is_wide: false, ..layout };
    let mut plan = Plan::new(source(layout), tiles, splits, span);
    plan.unaligned = (narrow != layout).then(|| Box::new(source(narrow)));
    plan.slots = vec![
        magnitudes(p, &p.a, [p.m, p.k], [p.a.row, p.a.col], steps)?,
        magnitudes(p, &p.b, [p.n, p.k], [p.b.col, p.b.row], steps)?,
    ];
    plan.words = plan.slots.iter().map(|&slot| Word::Offset(slot, 4)).collect();
    Ok(Some(plan))
}

/// How the operands lie, if lines of both are dense.
fn layout(p: &Product) -> Option<Layout> {
    let along = |dense: isize, other: isize| {
        if dense == 1 {
            Some(true)
        } else if other == 1 {
            Some(false)
        } else {
            None
        }
    };
    let is_wide = |side: &Side, line: isize| line % 4 == 0 && side.steps.iter().all(|step| step % 4 == 0);
    let (a_along_k, b_along_k) = (along(p.a.col, p.a.row)?, along(p.b.row, p.b.col)?);
    Some(Layout {
        a_along_k,
        b_along_k,
        a_is_wide: is_wide(&p.a, if a_along_k { p.a.row } else { p.a.col }),
        b_is_wide: is_wide(&p.b, if b_along_k { p.b.col } else { p.b.row }),
    })
}

/// The first block that fills the adapter, if one is worth it. Where threads stand for fragments, for tests, theirs is always.
fn block(p: &Product, parts: Parts, blocks: &[(Block, usize)], fragments: Fragments, caps: Caps) -> Option<Block> {
    if fragments == Fragments::Scalar {
        return Some(matrix::TEST);
    }
    let fits = |b: &Block| b.bytes(parts) <= caps.workgroup_bytes as usize && b.threads() <= caps.max_threads as usize;
    let tiles = |b: &Block| p.m.div_ceil(b.rows) * p.n.div_ceil(b.cols);
    let (block, _) = *blocks.iter().find(|(b, least)| fits(b) && tiles(b) * p.items() >= *least)?;
    let is_useful = 100 * p.m * p.n >= USEFUL * tiles(&block) * block.rows * block.cols;
    let is_large = p.m.saturating_mul(p.n).saturating_mul(p.k).saturating_mul(p.items()) >= LEAST;
    (is_useful && is_large).then_some(block)
}

/// Whether the shader's numbers and bindings are not too many, nor the elements that a reduction counts.
fn fits(p: &Product, to: To, caps: Caps) -> bool {
    let (bindings, words) = match to {
        To::Tensor(_) => (1, 0),
        To::Epilogue(epilogue) => (epilogue.slots.len(), epilogue.words.len()),
    };
    let words = super::WORDS.len() + matrix::MORE_WORDS.len() + words;
    let most = p.m.max(p.n).saturating_mul(p.k).saturating_mul(p.items());
    4 + bindings <= caps.max_bindings as usize && 4 * words <= caps.max_immediates as usize && most <= u32::MAX as usize
}

/// The largest magnitude of each of an operand's lines across the terms of the sums, for each item of the batch: infinite or NaN where an
/// element is.
fn magnitudes(p: &Product, side: &Side, lines: [usize; 2], line_steps: [isize; 2], steps: &mut Steps) -> Result<Slot> {
    let shape = [&p.axes[..], &lines[..]].concat();
    let own = [&side.steps[..], &line_steps[..]].concat();
    let last = shape.len() - 1;
    let slot = steps.scratch(4 * elems(&shape[..last]));
    let instr = Instr { op: EwOp::Unary(UnaryKind::Abs), input: DType::F32, out: DType::F32, srcs: smallvec![Src::Input(0)] };
    let expr = Expr { inputs: smallvec![DType::F32], instrs: vec![instr], outputs: smallvec![(Src::Instr(0), DType::F32)] };
    let ins = [View { slot: Slot::In(side.input), dtype: DType::F32, shape: &shape, strides: &own }];
    let outs = [View { slot, dtype: DType::F32, shape: &shape[..last], strides: &strides(&shape[..last]) }];
    steps.within(&shape, &ins, &outs, |inner| codegen::reduce(ReduceKind::Max, 1 << last, &expr, inner))?;
    Ok(slot)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
