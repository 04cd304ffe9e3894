//! Matrix products: batches merged and folded, and which shader, tile and cut of the sums serve the sizes.
mod fragments;

use super::super::catalog::matmul::{self as shaders, WORDS, join, vector, whole};
use super::super::catalog::rows::Threads;
use super::super::catalog::tile::{LARGE, Layout, MEDIUM, SHALLOW, SMALL, TINY, Tile, tile};
use super::super::codegen::Epilogue;
use super::super::launch::{Caps, Dispatch, Flat, Slot, Steps, View, Word, elem, grid, spread};
use super::super::text::{Elem, Source};
use super::rows::{lanes, subgroup};
use crate::backend::kind::Precision;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{broadcast, elems};
use smallvec::SmallVec;

/// Workgroups of a tile's size that run at a time on a large adapter, and how fast they are relative to the largest.
const SPEEDS: [(Tile, usize, f64); 4] = [(LARGE, 132, 1.0), (SHALLOW, 132, 0.9), (MEDIUM, 264, 0.6), (SMALL, 528, 0.35)];
/// Threads that keep a large adapter busy: with fewer, sums are cut.
const BUSY: usize = 264 * 256;
/// Workgroups that do so where memory limits, and the most parts of a sum.
const BUSY_READING: usize = 512;
const MOST_SPLITS: usize = 64;
/// Terms of a sum that are worth a part of their own, in tiles' depths and in rows of threads.
const OWN_DEPTHS: usize = 4;
const OWN_TERMS: usize = 16;

/// One operand: which input, its steps between the axes of its matrix and between those of the batch.
#[derive(Clone, Debug, PartialEq)]
struct Side {
    input: usize,
    row: isize,
    col: isize,
    steps: Vec<isize>,
}

/// Products of equal sizes over the batch axes that are left after merging.
#[derive(Clone, Debug, PartialEq)]
struct Product {
    m: usize,
    n: usize,
    k: usize,
    a: Side,
    b: Side,
    axes: Vec<usize>,
}

/// Where a product's elements go: to a tensor, or to what follows in the kernel.
#[derive(Clone, Copy)]
enum To<'a> {
    Tensor(Flat),
    Epilogue(&'a Epilogue),
}

impl<'a> To<'a> {
    /// The same for the shader.
    fn shader(self) -> shaders::To<'a> {
        match self {
            To::Tensor(c) => shaders::To::Elem(c.elem),
            To::Epilogue(epilogue) => shaders::To::Ending(&epilogue.ending),
        }
    }

    /// Where the first element goes; what follows is told positions from 0 on.
    fn offset(self) -> Word {
        if let To::Tensor(c) = self { c.offset() } else { Word::Fixed(0) }
    }

    /// Adds a dispatch that ends there.
    fn dispatch(self, steps: &mut Steps, plan: &Plan, slots: &[Slot], mut words: Vec<Word>, groups: [u32; 3]) {
        let (mut slots, mut table) = (SmallVec::from_slice(slots), Vec::new());
        slots.extend_from_slice(&plan.slots);
        words.extend_from_slice(&plan.words);
        match self {
            To::Tensor(c) => slots.push(c.slot),
            To::Epilogue(epilogue) => {
                slots.extend_from_slice(&epilogue.slots);
                words.extend_from_slice(&epilogue.words);
                table.clone_from(&epilogue.table);
            }
        }
        steps.push(Dispatch { source: plan.source.clone(), unaligned: None, slots, words, table, groups, unless_in_place: None });
    }
}

/// What runs a product: the shader, the tiles down and over, the parts of its sums and their length; what the shader binds and is given
/// besides the operands and their numbers.
struct Plan {
    source: Source,
    tiles: [usize; 2],
    splits: usize,
    span: usize,
    slots: Vec<Slot>,
    words: Vec<Word>,
}

impl Plan {
    fn new(source: Source, tiles: [usize; 2], splits: usize, span: usize) -> Plan {
        Plan { source, tiles, splits, span, slots: Vec::new(), words: Vec::new() }
    }
}

/// Products of input 0 (.., m, k) and input 1 (.., k, n) into output 0 (.., m, n), batch axes broadcast; or into what an epilogue makes of
/// them.
pub fn prepare(steps: &mut Steps, precision: Precision, epilogue: Option<&Epilogue>) -> Result<()> {
    let dtype = steps.ins[0].dtype;
    match dtype {
        DType::Bool => return Err(Error::dtype("matmul", "bool is not supported; convert to an integer type first")),
        DType::I64 if !steps.caps.int64 => {
            let message = "the adapter has no 64-bit integers for the product of int64; convert to int32, or use the CPU";
            return Err(Error::value("matmul", message));
        }
        _ => {}
    }
    let p = Product::new(&steps.ins[0], &steps.ins[1])?;
    let c = match epilogue {
        Some(epilogue) => To::Epilogue(epilogue),
        None => To::Tensor(steps.out_rounded(0, true)),
    };
    let elems = elems(steps.outs[0].shape);
    if p.k == 0 {
        let nothing = steps.scratch(4);
        return add_parts(steps, nothing, c, elems, 0);
    }
    let plan = match fragments::plan(&p, dtype, precision, c, steps)? {
        Some(plan) => plan,
        None => p.plan(elem(dtype, true, steps.caps), c, steps.caps),
    };
    if plan.splits == 1 {
        return p.dispatch(steps, &plan, c);
    }
    let parts = steps.scratch(plan.splits * elems * 4);
    p.dispatch(steps, &plan, To::Tensor(Flat { slot: parts, elem: Elem::F32, bytes: 4 }))?;
    add_parts(steps, parts, c, elems, plan.splits)
}

/// Where the elements of a product go, or the parts of their sums if there are several.
fn of_parts(to: To<'_>, splits: usize) -> shaders::To<'_> {
    if splits == 1 { to.shader() } else { shaders::To::Elem(Elem::F32) }
}

/// Adds up the parts of sums.
fn add_parts(steps: &mut Steps, parts: Slot, c: To, elems: usize, splits: usize) -> Result<()> {
    let words = vec![Word::Offset(parts, 4), c.offset(), Word::Fixed(elems as u32), Word::Fixed(splits as u32)];
    let groups = spread(elems, 256, steps.caps)?;
    c.dispatch(steps, &Plan::new(join(c.shader()), [1, 1], 1, 0), &[parts], words, groups);
    Ok(())
}

impl Product {
    fn new(a: &View, b: &View) -> Result<Product> {
        let (ra, rb) = (a.shape.len(), b.shape.len());
        if ra < 2 || rb < 2 || a.shape[ra - 1] != b.shape[rb - 2] || a.dtype != b.dtype {
            return Err(Error::Internal("gpu: operands of a product"));
        }
        let batch = broadcast("matmul", &a.shape[..ra - 2], &b.shape[..rb - 2])?;
        let side = |input, v: &View, rank: usize| {
            let own = rank - 2;
            let step = |i: usize| match (i + own).checked_sub(batch.len()) {
                Some(j) if v.shape[j] != 1 => v.strides[j],
                _ => 0,
            };
            Side { input, row: v.strides[own], col: v.strides[own + 1], steps: (0..batch.len()).map(step).collect() }
        };
        let (m, k, n) = (a.shape[ra - 2], a.shape[ra - 1], b.shape[rb - 1]);
        let mut p = Product { m, n, k, a: side(0, a, ra), b: side(1, b, rb), axes: batch.to_vec() };
        p.merge();
        p.fold();
        Ok(p)
    }

    /// Makes one axis of neighbouring batch axes through which both operands step alike.
    fn merge(&mut self) {
        let (axes, a, b) = (std::mem::take(&mut self.axes), std::mem::take(&mut self.a.steps), std::mem::take(&mut self.b.steps));
        for ((size, a), b) in axes.into_iter().zip(a).zip(b) {
            if size == 1 {
                continue;
            }
            let joins = self.a.steps.last() == Some(&(a * size as isize)) && self.b.steps.last() == Some(&(b * size as isize));
            match (self.axes.last_mut(), self.a.steps.last_mut(), self.b.steps.last_mut()) {
                (Some(last), Some(a_last), Some(b_last)) if joins => (*last, *a_last, *b_last) = (*last * size, a, b),
                _ => {
                    self.axes.push(size);
                    self.a.steps.push(a);
                    self.b.steps.push(b);
                }
            }
        }
    }

    /// Makes one tall product of items that share the right side and whose left sides follow each other, and a row of a column.
    fn fold(&mut self) {
        while let (Some(&size), Some(&a_step), Some(0)) = (self.axes.last(), self.a.steps.last(), self.b.steps.last()) {
            if self.m != 1 && a_step != self.a.row * self.m as isize {
                break;
            }
            if self.m == 1 {
                self.a.row = a_step;
            }
            self.m *= size;
            self.axes.pop();
            self.a.steps.pop();
            self.b.steps.pop();
        }
        if self.n == 1 && self.m > 1 {
            // The transposed product is the same row of results.
            std::mem::swap(&mut self.a, &mut self.b);
            for side in [&mut self.a, &mut self.b] {
                std::mem::swap(&mut side.row, &mut side.col);
            }
            (self.m, self.n) = (1, self.m);
        }
    }

    fn items(&self) -> usize {
        elems(&self.axes)
    }

    fn plan(&self, elem: Elem, to: To, caps: Caps) -> Plan {
        if !matches!(elem, Elem::F32 | Elem::F16 | Elem::Half | Elem::BF16) {
            let tiles = [self.m.div_ceil(16), self.n.div_ceil(16)];
            return Plan::new(whole(elem), tiles, 1, self.k);
        }
        if self.m == 1 {
            return self.plan_vector(elem, to, caps);
        }
        let (t, splits) = self.choose(caps);
        let layout = Layout {
            a_along_k: self.a.col.unsigned_abs() <= self.a.row.unsigned_abs(),
            b_along_k: self.b.row.unsigned_abs() < self.b.col.unsigned_abs(),
            elem,
        };
        let span = self.k.div_ceil(splits).next_multiple_of(t.depth);
        let tiles = [self.m.div_ceil(t.rows), self.n.div_ceil(t.cols)];
        let splits = self.k.div_ceil(span);
        Plan::new(tile(t, layout, of_parts(to, splits)), tiles, splits, span)
    }

    /// A row times a matrix: threads along the matrix' dense axis, long sums cut where there are few columns.
    fn plan_vector(&self, elem: Elem, to: To, caps: Caps) -> Plan {
        let across = self.b.col.unsigned_abs() < self.b.row.unsigned_abs() && self.n > 1;
        let lanes = if across { 4 } else { lanes(self.k, self.n * self.items()) };
        let threads = Threads { across, subgroup: if across { 0 } else { subgroup(caps) }, ..Threads::along(lanes) };
        let columns = self.n.div_ceil(threads.rows() as usize);
        let splits = self.splits(columns, BUSY_READING, lanes as usize * OWN_TERMS, caps);
        let span = self.k.div_ceil(splits);
        let splits = self.k.div_ceil(span);
        Plan::new(vector(elem, threads, of_parts(to, splits)), [1, columns], splits, span)
    }

    /// In how many parts sums are computed: so many that workgroups keep the adapter busy.
    fn splits(&self, groups: usize, busy: usize, own: usize, caps: Caps) -> usize {
        if caps.is_software {
            return 1;
        }
        let wanted = (busy / (groups * self.items())).min(self.k / own).min(MOST_SPLITS);
        caps.parts(wanted, self.m * self.n * self.items() * 4)
    }

    /// The tile that should be fastest, and the parts of the sums.
    fn choose(&self, caps: Caps) -> (Tile, usize) {
        let fits = |t: Tile| t.bytes() <= caps.workgroup_bytes as usize && !caps.is_software;
        let mut best = (if caps.is_software { TINY } else { SMALL }, 1, 0.0);
        for (t, slots, speed) in SPEEDS.into_iter().filter(|&(t, ..)| fits(t)) {
            let tiles = self.m.div_ceil(t.rows) * self.n.div_ceil(t.cols);
            let splits = self.splits(tiles, BUSY / t.threads(), OWN_DEPTHS * t.depth, caps);
            let groups = tiles * self.items() * splits;
            let useful = (self.m * self.n) as f64 / (tiles * t.rows * t.cols) as f64;
            let busy = groups as f64 / (groups.div_ceil(slots) * slots) as f64;
            let score = speed * useful * busy;
            if score > best.2 {
                best = (t, splits, score);
            }
        }
        (best.0, best.1)
    }

    /// The dispatches: one, unless the batch has more axes or items than a dispatch counts.
    fn dispatch(&self, steps: &mut Steps, plan: &Plan, c: To) -> Result<()> {
        let inner = self.axes.len().saturating_sub(3);
        let (outer, last) = (elems(&self.axes[..inner]), elems(&self.axes[inner..]));
        let most = (steps.caps.max_groups as usize / plan.splits).max(1);
        let [x, y, _] = grid(plan.tiles[0] * plan.tiles[1], steps.caps)?;
        for o in 0..outer {
            let pluses = [&self.a, &self.b].map(|side| self.start(side, inner, o));
            for from in (0..last).step_by(most) {
                let count = most.min(last - from);
                let words = self.words(steps, plan, c, pluses, [from, o * last]);
                let slots = [Slot::In(self.a.input), Slot::In(self.b.input)];
                c.dispatch(steps, plan, &slots, words, [x, y, (count * plan.splits) as u32]);
            }
        }
        Ok(())
    }

    /// Where a side's items begin for position `o` of the outer axes.
    fn start(&self, side: &Side, outer: usize, o: usize) -> isize {
        let (mut at, mut rest) = (0, o);
        for (&size, &step) in self.axes[..outer].iter().zip(&side.steps).rev() {
            at += (rest % size) as isize * step;
            rest /= size;
        }
        at
    }

    /// The numbers, in the order of `WORDS`.
    fn words(&self, steps: &Steps, plan: &Plan, c: To, pluses: [isize; 2], [from, base]: [usize; 2]) -> Vec<Word> {
        let at = |side: &Side| Word::Offset(Slot::In(side.input), steps.ins[side.input].dtype.size_bytes());
        let mut words = Vec::with_capacity(WORDS.len());
        words.extend([at(&self.a), at(&self.b), c.offset()]);
        let fixed = |number: isize| Word::Fixed(number as u32);
        words.extend([self.a.row, self.a.col, self.b.row, self.b.col].map(fixed));
        let size = |number: usize| Word::Fixed(number as u32);
        words.extend([self.m, self.n, self.k, plan.tiles[0], plan.tiles[1]].map(size));
        words.extend(pluses.map(fixed));
        words.extend([from, base, self.items()].map(size));
        // The last three axes, the outermost first; axes that are missing have size 1.
        let rank = self.axes.len();
        let axis = |back: usize| rank.checked_sub(back);
        words.extend([2, 1].map(|back| size(axis(back).map_or(1, |i| self.axes[i]))));
        for side in [&self.a, &self.b] {
            words.extend([3, 2, 1].map(|back| fixed(axis(back).map_or(0, |i| side.steps[i]))));
        }
        words.extend([plan.splits, plan.span].map(size));
        words
    }
}

#[cfg(test)]
mod tests;
