//! Reductions of fused expressions: rows and columns are evaluated in cache and combined in an order that shapes alone fix.
mod fold;
mod store;
#[cfg(test)]
mod tests;

use super::elementwise::Program;
use super::elementwise::isa::{Isa, LANES};
use super::elementwise::machine::Machine;
use super::parallel;
use super::view::View;
use crate::backend::expr::Expr;
use crate::backend::kind::ReduceKind;
use crate::dtype::DType;
use crate::error::{Error, Result};
use fold::*;
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use store::{Store, Target};

/// Elements of a row that one partial result covers.
const ROW_CHUNK: usize = 4096;
/// Columns that are accumulated side by side.
const COLUMNS: usize = 1024;
/// Elements that a chunk of rows holds, about, when columns are reduced.
const CHUNK_ELEMS: usize = 64 * 1024;
/// Narrow rows are joined until they have this many elements.
const WIDE_ROW: usize = 128;
/// Work, in additions, of the largest piece: the user's interrupt is looked for between pieces.
const MAX_PIECE_WORK: usize = 64 << 20;
/// Work, in additions, below which other threads are not worth waking.
const THREAD_WORK: usize = 96 * 1024;

/// A reduction kernel, prepared once and run at each step.
#[derive(Clone, Debug)]
pub struct ReduceProgram {
    kind: ReduceKind,
    mask: u32,
    program: Program,
    dtype: DType,
    /// Whether the expression is an input as it is.
    plain: bool,
}

/// Sizes of the canonical form: reduce the middle axis of (outer, reduced, inner).
#[derive(Clone, Copy, Debug)]
struct Form {
    outer: usize,
    reduced: usize,
    inner: usize,
}

/// A launch in canonical form.
struct Launch<'a> {
    program: &'a ReduceProgram,
    ins: &'a [View<'a>],
    args: &'a [u64],
    form: Form,
    target: Target,
}

/// Scratch for the largest piece that is evaluated at once.
type Buffer = MaybeUninit<[u64; ROW_GROUP * COLUMNS + LANES]>;

impl ReduceProgram {
    /// Prepares the reduction `kind` over the axes in `mask` of an expression with one output.
    pub fn new(kind: ReduceKind, mask: u32, expr: &Expr) -> Result<ReduceProgram> {
        let program = Program::new(expr, true)?;
        let [(_, dtype)] = expr.outputs[..] else {
            return Err(Error::Internal("reduction of an expression without exactly one output"));
        };
        let fits = match kind {
            ReduceKind::Any | ReduceKind::All => dtype == DType::Bool,
            ReduceKind::Mean => dtype.is_float(),
            ReduceKind::Sum | ReduceKind::Prod => dtype != DType::Bool,
            ReduceKind::Max | ReduceKind::Min => true,
        };
        if !fits {
            return Err(Error::Internal("reduction of an unsupported dtype"));
        }
        let plain = program.is_plain();
        Ok(ReduceProgram { kind, mask, program, dtype, plain })
    }

    /// Reduces; inputs have the shape `in_shape`, the output is row-major over the axes that are kept.
    pub fn run(&self, ins: &[View], in_shape: &[usize], out: View, args: &[u64]) -> Result<()> {
        let dtypes = ins.iter().map(|v| v.dtype).eq(self.program.inputs.iter().copied());
        if !dtypes || out.dtype != self.dtype || args.len() < self.program.args || ins.iter().any(|v| v.shape != in_shape) {
            return Err(Error::Internal("reduction launch: tensors do not fit the kernel"));
        }
        let (order, form) = canonical(in_shape, self.mask);
        if out.elems() != form.outer * form.inner {
            return Err(Error::Internal("reduction launch: the output's size is not that of the kept axes"));
        }
        let shape: SmallVec<[usize; 4]> = order.iter().map(|&a| in_shape[a]).collect();
        let strides: SmallVec<[SmallVec<[isize; 4]>; 4]> =
            ins.iter().map(|v| order.iter().map(|&a| v.strides[a]).collect()).collect();
        let views: SmallVec<[View; 4]> =
            ins.iter().zip(&strides).map(|(v, s)| View { ptr: v.ptr, dtype: v.dtype, shape: &shape, strides: s }).collect();
        let divisor = (self.kind == ReduceKind::Mean).then_some(form.reduced as f64);
        let target = Target { ptr: out.ptr, dtype: self.dtype, divisor };
        self.launch(&Launch { program: self, ins: &views, args, form, target })
    }

    fn launch(&self, l: &Launch) -> Result<()> {
        use ReduceKind::*;
        match (self.kind, self.dtype.compute()) {
            (Sum | Mean, DType::F32) => l.run::<SumF32>(),
            (Sum | Mean, DType::F64) => l.run::<SumF64>(),
            (Sum, DType::I64) => l.run::<SumI64>(),
            (Sum, DType::I32) => l.run::<SumI32>(),
            (Sum, DType::U8) => l.run::<SumU8>(),
            (Prod, DType::F32) => l.run::<ProdF32>(),
            (Prod, DType::F64) => l.run::<ProdF64>(),
            (Prod, DType::I64) => l.run::<ProdI64>(),
            (Prod, DType::I32) => l.run::<ProdI32>(),
            (Prod, DType::U8) => l.run::<ProdU8>(),
            (Max, DType::F32) => l.run::<MaxF32>(),
            (Max, DType::F64) => l.run::<MaxF64>(),
            (Max, DType::I64) => l.run::<MaxI64>(),
            (Max, DType::I32) => l.run::<MaxI32>(),
            (Max | Any, DType::U8 | DType::Bool) => l.run::<MaxU8>(),
            (Min, DType::F32) => l.run::<MinF32>(),
            (Min, DType::F64) => l.run::<MinF64>(),
            (Min, DType::I64) => l.run::<MinI64>(),
            (Min, DType::I32) => l.run::<MinI32>(),
            (Min, DType::U8) => l.run::<MinU8>(),
            (Min | All, DType::Bool) => l.run::<AllBool>(),
            _ => Err(Error::Internal("reduction of an unsupported dtype")),
        }
    }
}

/// The order of axes that puts kept ones outside and reduced ones next, with the kept ones behind the last reduced axis innermost.
/// It depends on sizes and mask only: not on strides, which fusion may change.
fn canonical(shape: &[usize], mask: u32) -> (SmallVec<[usize; 4]>, Form) {
    let reduces = |a: usize| mask >> a & 1 == 1;
    let last = (0..shape.len()).rev().find(|&a| reduces(a) && shape[a] != 1);
    let inner_from = last.map_or(shape.len(), |a| a + 1);
    let outer = (0..inner_from).filter(|&a| !reduces(a));
    let middle = (0..shape.len()).filter(|&a| reduces(a));
    let inner = (inner_from..shape.len()).filter(|&a| !reduces(a));
    let size = |axes: &mut dyn Iterator<Item = usize>| axes.map(|a| shape[a]).product::<usize>();
    let form = Form { outer: size(&mut outer.clone()), reduced: size(&mut middle.clone()), inner: size(&mut inner.clone()) };
    (outer.chain(middle).chain(inner).collect(), form)
}

/// Calls `f` on ranges that cover `0 .. units`: on this thread for little work, else on several.
fn split(units: usize, work: usize, f: impl Fn(std::ops::Range<usize>) + Sync) {
    let threads = rayon::current_num_threads();
    if work < THREAD_WORK || (threads < 2 && work < MAX_PIECE_WORK) || units < 2 {
        return f(0..units);
    }
    let pieces = (work * 2 / THREAD_WORK).clamp(2, threads * 4).max(work / MAX_PIECE_WORK).min(units);
    parallel::for_each(pieces, |k| f(units * k / pieces..units * (k + 1) / pieces));
}

/// Partial results that threads fill at disjoint places.
struct Parts<A>(*mut A);

// SAFETY: every unit of work writes its own places.
unsafe impl<A: Send> Sync for Parts<A> {}

impl<A> Parts<A> {
    /// Places `from .. from + n`.
    ///
    /// # Safety
    /// They lie within the list, and no one else uses them now.
    #[allow(clippy::mut_from_ref)]
    unsafe fn at(&self, from: usize, n: usize) -> &mut [A] {
        // SAFETY: the caller vouches for it.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(from), n) }
    }
}

impl Launch<'_> {
    fn run<F: Fold<A: Store>>(&self) -> Result<()> {
        let Form { outer, reduced, inner } = self.form;
        if reduced == 0 || outer * inner == 0 {
            for k in 0..outer * inner {
                // SAFETY: the output has `outer * inner` elements.
                unsafe { F::EMPTY.store(&self.target, k) };
            }
            Ok(())
        } else if inner > 1 {
            self.columns::<F>()
        } else if reduced <= ROW_CHUNK {
            self.short_rows::<F>();
            Ok(())
        } else {
            self.long_rows::<F>()
        }
    }

    /// Empty partial results. What broadcasts may have more of them than memory holds.
    fn parts<A: Copy>(&self, n: usize, empty: A) -> Result<SmallVec<[A; 64]>> {
        let mut parts: SmallVec<[A; 64]> = SmallVec::new();
        parts.try_reserve_exact(n).map_err(|_| Error::no_room(self.program.kind.name(), n, size_of::<A>()))?;
        parts.resize(n, empty);
        Ok(parts)
    }

    fn total(&self) -> usize {
        self.form.outer * self.form.reduced * self.form.inner
    }

    fn work(&self) -> usize {
        self.total().saturating_mul(self.program.program.weight)
    }

    fn machine(&self) -> Machine<'_> {
        Machine::new(&self.program.program, self.ins, self.args, self.total(), &[])
    }

    /// Elements `start .. start + n` of the expression: where the input has them, or evaluated to `to`.
    unsafe fn values<T>(&self, m: &mut Machine, start: usize, n: usize, to: *mut T) -> *const T {
        if self.program.plain
            && let Some(p) = m.in_place(start)
        {
            return p.cast();
        }
        // SAFETY: the caller vouches for the range, and for room for it and a block at `to`, which is scratch.
        unsafe { m.eval(start, n, &[to.cast()], true) };
        to
    }

    /// Rows no longer than a chunk, several at a time.
    fn short_rows<F: Fold<A: Store>>(&self) {
        let Form { outer, reduced, .. } = self.form;
        let at_once = (ROW_CHUNK / reduced).min(64);
        split(outer.div_ceil(at_once), self.work(), |units| {
            let mut m = self.machine();
            let mut buf = Buffer::uninit();
            let mut acc = [F::EMPTY; 64];
            for u in units {
                let (row, n) = (u * at_once, at_once.min(outer - u * at_once));
                // SAFETY: the rows lie within the expression's shape and fit the buffer; the output has an element for each.
                unsafe {
                    let x = self.values::<F::T>(&mut m, row * reduced, n * reduced, buf.as_mut_ptr().cast());
                    fold_rows::<F>(Isa::get(), x, reduced, &mut acc[..n]);
                    for (k, a) in acc[..n].iter().enumerate() {
                        a.store(&self.target, row + k);
                    }
                }
            }
        });
    }

    /// Rows of several chunks: a partial result for each, combined in pairs.
    fn long_rows<F: Fold<A: Store>>(&self) -> Result<()> {
        let Form { outer, reduced, .. } = self.form;
        let chunks = reduced.div_ceil(ROW_CHUNK);
        let mut parts = self.parts(outer * chunks, F::EMPTY)?;
        let shared = Parts(parts.as_mut_ptr());
        split(outer * chunks, self.work(), |units| {
            let mut m = self.machine();
            let mut buf = Buffer::uninit();
            for u in units {
                let (row, from) = (u / chunks, u % chunks * ROW_CHUNK);
                let n = ROW_CHUNK.min(reduced - from);
                // SAFETY: the chunk lies within the expression's shape and fits the buffer; each unit has its own part.
                unsafe {
                    let x = self.values::<F::T>(&mut m, row * reduced + from, n, buf.as_mut_ptr().cast());
                    fold_rows::<F>(Isa::get(), x, n, shared.at(u, 1));
                }
            }
        });
        for (k, parts) in parts.chunks(chunks).enumerate() {
            // SAFETY: the output has an element for each row.
            unsafe { pairwise::<F>(parts).store(&self.target, k) };
        }
        Ok(())
    }

    /// Columns: chunks of rows, and blocks of columns where rows are long.
    fn columns<F: Fold<A: Store>>(&self) -> Result<()> {
        let Form { outer, reduced, inner } = self.form;
        let rows = (CHUNK_ELEMS / inner).clamp(ROW_GROUP, 4096) / ROW_GROUP * ROW_GROUP;
        let chunks = reduced.div_ceil(rows);
        let blocks = inner.div_ceil(COLUMNS);
        let mut parts = self.parts(if chunks > 1 { outer * chunks * inner } else { 0 }, F::EMPTY)?;
        let shared = Parts(parts.as_mut_ptr());
        split(outer * chunks * blocks, self.work(), |units| {
            let mut m = self.machine();
            let mut buf = Buffer::uninit();
            let mut acc = [F::EMPTY; COLUMNS];
            for u in units {
                let (o, c, b) = (u / blocks / chunks, u / blocks % chunks, u % blocks);
                let (first, col) = (c * rows, b * COLUMNS);
                let (n, width) = (rows.min(reduced - first), COLUMNS.min(inner - col));
                // SAFETY: rows and columns lie within the expression's shape; each unit has its own columns of its chunk.
                unsafe {
                    let start = (o * reduced + first) * inner + col;
                    self.column_block::<F>(&mut m, start, n, width, &mut acc, buf.as_mut_ptr().cast());
                    if chunks > 1 {
                        shared.at((o * chunks + c) * inner + col, width).copy_from_slice(&acc[..width]);
                    } else {
                        acc[..width].iter().enumerate().for_each(|(k, a)| a.store(&self.target, o * inner + col + k));
                    }
                }
            }
        });
        if chunks > 1 {
            self.join_chunks::<F>(&mut parts, chunks);
        }
        Ok(())
    }

    /// Reduces `rows` rows of `width` columns from element `start` on to `acc[..width]`.
    unsafe fn column_block<F: Fold>(
        &self,
        m: &mut Machine,
        start: usize,
        rows: usize,
        width: usize,
        acc: &mut [F::A; COLUMNS],
        buf: *mut F::T,
    ) {
        let inner = self.form.inner;
        // Narrow rows are taken several at a time as one wide row; the groups are combined at the end.
        let join = if inner < WIDE_ROW { WIDE_ROW.div_ceil(inner) } else { 1 };
        let used = (join * width).min(COLUMNS);
        acc[..used].fill(F::EMPTY);
        let mut row = 0;
        while row < rows {
            let wide = ((rows - row) / join).min(ROW_GROUP);
            // SAFETY: passed on; the buffer takes eight rows of up to `COLUMNS` elements and a block.
            unsafe {
                if wide == 0 {
                    let n = (rows - row) * width;
                    let x = self.values(m, start + row * inner, n, buf);
                    fold_columns::<F>(Isa::get(), x, n, 1, &mut acc[..n]);
                    break;
                }
                if width == inner {
                    let n = join * width;
                    let x = self.values(m, start + row * inner, wide * n, buf);
                    fold_columns::<F>(Isa::get(), x, n, wide, &mut acc[..n]);
                } else if self.program.plain && m.in_place(0).is_some() {
                    let x = self.values(m, start + row * inner, width, buf);
                    fold_columns::<F>(Isa::get(), x, inner, wide, &mut acc[..width]);
                } else {
                    for k in 0..wide {
                        self.values(m, start + (row + k) * inner, width, buf.add(k * COLUMNS));
                    }
                    fold_columns::<F>(Isa::get(), buf, COLUMNS, wide, &mut acc[..width]);
                }
            }
            row += wide * join;
        }
        for k in width..used {
            acc[k % width] = F::join(acc[k % width], acc[k]);
        }
    }

    /// Combines the chunks' results of each column in pairs.
    fn join_chunks<F: Fold<A: Store>>(&self, parts: &mut [F::A], chunks: usize) {
        let inner = self.form.inner;
        for (o, parts) in parts.chunks_mut(chunks * inner).enumerate() {
            let mut step = 1;
            while step < chunks {
                for c in (0..chunks - step).step_by(2 * step) {
                    let (low, high) = parts.split_at_mut((c + step) * inner);
                    for (a, b) in low[c * inner..(c + 1) * inner].iter_mut().zip(&high[..inner]) {
                        *a = F::join(*a, *b);
                    }
                }
                step *= 2;
            }
            // SAFETY: the output has `outer * inner` elements.
            parts[..inner].iter().enumerate().for_each(|(k, a)| unsafe { a.store(&self.target, o * inner + k) });
        }
    }
}
