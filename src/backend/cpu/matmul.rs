//! Matrix products: batches broadcast, large products split over threads, each element's sum taken in an order that depends on k alone.
mod block;
mod epilogue;
mod half;
mod room;
mod vector;

pub use epilogue::FusedProduct;

use super::elementwise::isa::{Isa, versions};
use super::parallel;
use super::view::{View, collapse};
use crate::backend::MAX_UNSTORED_TERMS;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{self, Shape};
use block::{Product, product};
use epilogue::{Epilogue, Running};
use smallvec::SmallVec;
use vector::Lanes;

/// Multiply-adds below which a second thread costs more than it brings.
const PARALLEL_WORK: usize = 1 << 20;
/// Multiply-adds of a small batch item's group that are worth a task of their own.
const GROUP_WORK: usize = 1 << 18;
/// Most multiply-adds in one task: between rounds of tasks an interrupt is noticed.
const TASK_WORK: usize = 1 << 31;
/// Most terms of each sum in one round.
const ROUND_DEPTH: usize = MAX_UNSTORED_TERMS;
/// Columns of a task come in multiples of this, rows in multiples of `TASK_ROWS`.
const TASK_COLS: usize = 64;
const TASK_ROWS: usize = 8;

/// What a family of dtypes does with a part of a product.
trait Kernel: Copy + Send + Sync + 'static {
    /// Most rows and columns of a task.
    const MOST: usize = usize::MAX;
    /// Most terms of each sum in one call.
    const TERMS: usize = ROUND_DEPTH;

    /// Runs the product on this thread.
    ///
    /// # Safety
    /// The matrices must lie in valid memory, c apart from a and b and used by nobody else; the machine has `isa`.
    unsafe fn product(isa: Isa, p: &Product<'_, Self>);
}

/// Implements `Kernel` with a register type for each machine version.
macro_rules! float_kernel {
    ($t:ty, $avx512:ident, $avx2:ident, $lanes:literal) => {
        impl Kernel for $t {
            #[inline]
            unsafe fn product(isa: Isa, p: &Product<'_, $t>) {
                #[cfg(target_arch = "x86_64")]
                {
                    #[target_feature(enable = "avx2,fma,bmi1,bmi2,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
                    unsafe fn v4(p: &Product<'_, $t>) {
                        // SAFETY: the features are on; the rest is passed on.
                        unsafe { product::<vector::$avx512>(p) }
                    }
                    #[target_feature(enable = "avx2,fma,bmi1,bmi2,f16c")]
                    unsafe fn v3(p: &Product<'_, $t>) {
                        // SAFETY: the features are on; the rest is passed on.
                        unsafe { product::<vector::$avx2>(p) }
                    }
                    match isa {
                        // SAFETY: `Isa::get` found these features.
                        Isa::Avx512 => return unsafe { v4(p) },
                        // SAFETY: as above.
                        Isa::Avx2 => return unsafe { v3(p) },
                        Isa::Base => {}
                    }
                }
                let _ = isa;
                // SAFETY: every machine has this version.
                unsafe { product::<Lanes<$t, $lanes>>(p) }
            }
        }
    };
}
float_kernel!(f32, F32x16, F32x8, 4);
float_kernel!(f64, F64x8, F64x4, 2);

/// Implements `Kernel` for an integer: wrapping arithmetic that the compiler vectorises.
macro_rules! int_kernel {
    ($t:ty, $name:ident, $lanes:literal) => {
        versions!(
            /// The product of integers.
            $name(p: &Product<'_, $t>) = product::<Lanes<$t, $lanes>>
        );
        impl Kernel for $t {
            unsafe fn product(isa: Isa, p: &Product<'_, $t>) {
                // SAFETY: passed on.
                unsafe { $name(isa, p) }
            }
        }
    };
}
int_kernel!(u8, product_u8, 32);
int_kernel!(i32, product_i32, 8);
int_kernel!(i64, product_i64, 8);

/// Products of `ins[0]` (.., m, k) and `ins[1]` (.., k, n) into `outs[0]` (.., m, n), batch axes broadcast; bool is not supported.
pub fn run(ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let ([a, b], [out]) = (ins, outs) else { return Err(Error::Internal("matmul: operands")) };
    multiply(a, b, out, None)
}

/// The product into `out`, and the epilogue on its elements.
fn multiply(a: &View, b: &View, out: &View, epilogue: Option<&Epilogue>) -> Result<()> {
    if a.dtype != out.dtype || b.dtype != out.dtype {
        return Err(Error::Internal("matmul: dtypes differ"));
    }
    match out.dtype {
        DType::F32 => run_as::<f32>(a, b, out, epilogue),
        DType::F64 => run_as::<f64>(a, b, out, epilogue),
        DType::F16 => run_as::<::half::f16>(a, b, out, epilogue),
        DType::BF16 => run_as::<::half::bf16>(a, b, out, epilogue),
        DType::I32 => run_as::<i32>(a, b, out, epilogue),
        DType::I64 => run_as::<i64>(a, b, out, epilogue),
        DType::U8 => run_as::<u8>(a, b, out, epilogue),
        DType::Bool => Err(Error::dtype("matmul", "bool is not supported; convert to an integer type first")),
    }
}

fn run_as<E: Kernel>(a: &View, b: &View, out: &View, epilogue: Option<&Epilogue>) -> Result<()> {
    let batch = Batch::<E>::new(a, b, out)?;
    let p = &batch.first;
    if batch.items == 0 || p.m == 0 || p.n == 0 {
        return Ok(());
    }
    if epilogue.is_some_and(|e| p.k == 0 || e.is_in_room() && p.k > ROUND_DEPTH) {
        return Err(Error::Internal("matmul: terms of a product with an epilogue"));
    }
    if p.k == 0 {
        // SAFETY: the output is row-major and ours; every dtype's zero is all zero bits.
        unsafe { out.ptr.write_bytes(0, out.elems() * size_of::<E>()) };
        return Ok(());
    }
    batch.run(epilogue)
}

/// Products of equal sizes over the batch axes that are left after merging.
struct Batch<E: 'static> {
    first: Product<'static, E>,
    items: usize,
    shape: SmallVec<[usize; 4]>,
    a_steps: SmallVec<[isize; 4]>,
    b_steps: SmallVec<[isize; 4]>,
}

impl<E: Kernel> Batch<E> {
    fn new(a: &View, b: &View, out: &View) -> Result<Self> {
        let (ra, rb) = (a.shape.len(), b.shape.len());
        if ra < 2 || rb < 2 || a.shape[ra - 1] != b.shape[rb - 2] || !out.is_contiguous() {
            return Err(Error::Internal("matmul: shapes"));
        }
        let (m, k, n) = (a.shape[ra - 2], a.shape[ra - 1], b.shape[rb - 1]);
        let axes: Shape = shape::broadcast("matmul", &a.shape[..ra - 2], &b.shape[..rb - 2])?;
        let items = shape::elems(&axes);
        if out.elems() != items * m * n {
            return Err(Error::Internal("matmul: output"));
        }
        let spread = |v: &View, rank: usize| -> SmallVec<[isize; 4]> {
            let own = rank - 2;
            let step = |i: usize| match (i + own).checked_sub(axes.len()) {
                Some(j) if v.shape[j] != 1 => v.strides[j],
                _ => 0,
            };
            (0..axes.len()).map(step).collect()
        };
        let merged = collapse(&axes, [&spread(a, ra), &spread(b, rb)]);
        let [a_steps, b_steps] = merged.strides;
        let first = Product {
            m,
            n,
            k,
            a: a.as_ptr::<E>().cast_const(),
            a_row: a.strides[ra - 2],
            a_col: a.strides[ra - 1],
            b: b.as_ptr::<E>().cast_const(),
            b_row: b.strides[rb - 2],
            b_col: b.strides[rb - 1],
            c: out.as_ptr::<E>(),
            c_row: n as isize,
            add: false,
            finished: None,
        };
        let mut batch = Batch { first, items, shape: merged.shape, a_steps, b_steps };
        batch.fold();
        Ok(batch)
    }

    /// Makes one tall product of items that share the right side and whose left sides follow each other, and a row of a column.
    fn fold(&mut self) {
        let p = &mut self.first;
        while let (Some(&size), Some(&a_step), Some(0)) = (self.shape.last(), self.a_steps.last(), self.b_steps.last()) {
            if size != 1 && p.m != 1 && a_step != p.a_row * p.m as isize {
                break;
            }
            if p.m == 1 {
                p.a_row = a_step;
            }
            p.m *= size;
            self.items /= size.max(1);
            self.shape.pop();
            self.a_steps.pop();
            self.b_steps.pop();
        }
        if p.n == 1 && p.m > 1 {
            // c^T = b^T a^T: vectors then run along the m results instead of holding one each.
            *p = Product {
                m: 1,
                n: p.m,
                a: p.b,
                a_row: p.b_col,
                a_col: p.b_row,
                b: p.a,
                b_row: p.a_col,
                b_col: p.a_row,
                c_row: p.m as isize,
                ..*p
            };
            std::mem::swap(&mut self.a_steps, &mut self.b_steps);
        }
    }

    /// The product of item `i`.
    fn item(&self, i: usize) -> Product<'static, E> {
        let (mut a, mut b, mut rest) = (0, 0, i);
        for (axis, &size) in self.shape.iter().enumerate().rev() {
            let at = (rest % size) as isize;
            rest /= size;
            a += at * self.a_steps[axis];
            b += at * self.b_steps[axis];
        }
        let p = &self.first;
        Product { a: p.a.wrapping_offset(a), b: p.b.wrapping_offset(b), c: p.c.wrapping_add(i * p.m * p.n), ..*p }
    }

    fn run(&self, epilogue: Option<&Epilogue>) -> Result<()> {
        let isa = Isa::get();
        let p = &self.first;
        let work = p.m.saturating_mul(p.n).saturating_mul(p.k);
        // A thin product waits for memory, not for arithmetic.
        let weight = (TASK_ROWS / p.m).max(1);
        let total = work.saturating_mul(self.items).saturating_mul(weight);
        let most = E::MOST.min(epilogue.map_or(usize::MAX, Epilogue::most));
        if total <= PARALLEL_WORK && p.m.max(p.n) <= most && p.k <= E::TERMS {
            let running = epilogue.map(Epilogue::begin);
            // SAFETY: the views vouch for the memory, and the plan keeps the outputs apart from the inputs.
            (0..self.items).for_each(|i| unsafe { part(isa, &self.item(i), running.as_ref()) });
            return Ok(());
        }
        let grid = Grid::new(p, self.items, most);
        let group =
            if grid.tasks() == 1 { (GROUP_WORK / work.max(1)).clamp(1, self.items.div_ceil(parallel::threads())) } else { 1 };
        let tasks = self.items.div_ceil(group) * grid.tasks();
        // A round is as many tasks as keep every thread busy for a while, but not for long.
        let round = (TASK_WORK / (work / grid.tasks() * group).max(1)).max(1).saturating_mul(2 * parallel::threads());
        for from in (0..tasks).step_by(round) {
            for p0 in (0..p.k).step_by(E::TERMS) {
                parallel::for_each(round.min(tasks - from), |t| {
                    let (g, cell) = ((from + t) / grid.tasks(), (from + t) % grid.tasks());
                    // Sums are complete with the last terms.
                    let running = epilogue.filter(|_| p.k - p0 <= E::TERMS).map(Epilogue::begin);
                    for i in g * group..((g + 1) * group).min(self.items) {
                        let item = self.item(i).terms(p0, E::TERMS);
                        // SAFETY: as above; tasks have parts of the output of their own.
                        unsafe { part(isa, &grid.part(&item, cell), running.as_ref()) };
                    }
                });
                if tasks > round || p.k > E::TERMS {
                    super::poll()?;
                }
            }
        }
        Ok(())
    }
}

/// Runs a part of a product, and the epilogue on its elements.
///
/// # Safety
/// As `Kernel::product` and `Running::product`.
unsafe fn part<E: Kernel>(isa: Isa, p: &Product<'_, E>, running: Option<&Running>) {
    // SAFETY: passed on.
    unsafe {
        match running {
            Some(running) => running.product(isa, p),
            None => E::product(isa, p),
        }
    }
}

impl<E> Product<'_, E> {
    /// The part of the product that sums the terms from `p0` on, at most `most` of them.
    fn terms(self, p0: usize, most: usize) -> Self {
        Product {
            k: most.min(self.k - p0),
            a: self.a.wrapping_offset(p0 as isize * self.a_col),
            b: self.b.wrapping_offset(p0 as isize * self.b_row),
            add: self.add || p0 > 0,
            finished: if most < self.k - p0 { None } else { self.finished },
            ..self
        }
    }
}

/// How one product is cut into tasks.
struct Grid {
    rows: usize,
    cols: usize,
    down: usize,
    across: usize,
}

impl Grid {
    fn new<E>(p: &Product<'_, E>, items: usize, most: usize) -> Grid {
        let threads = parallel::threads();
        // Tasks are handed out as threads ask for them: numbers that halving does not reach get more of them to even out.
        let wanted = if threads == 1 {
            1
        } else if threads.is_power_of_two() {
            threads
        } else {
            3 * threads
        };
        let (mut rows, mut cols) = (p.m, p.n);
        loop {
            let tasks = p.m.div_ceil(rows) * p.n.div_ceil(cols);
            let work = rows.saturating_mul(cols).saturating_mul(p.k.min(ROUND_DEPTH));
            let weight = (TASK_ROWS / p.m).max(1);
            let idle = tasks * items < wanted && work.saturating_mul(weight) > PARALLEL_WORK / 2;
            if !idle && work <= TASK_WORK && rows.max(cols) <= most {
                break;
            }
            let (less_rows, less_cols) = ((rows / 2).next_multiple_of(TASK_ROWS), (cols / 2).next_multiple_of(TASK_COLS));
            if less_rows < rows && (rows >= cols || less_cols >= cols) {
                rows = less_rows;
            } else if less_cols < cols {
                cols = less_cols;
            } else {
                break;
            }
        }
        Grid { rows, cols, down: p.m.div_ceil(rows), across: p.n.div_ceil(cols) }
    }

    fn tasks(&self) -> usize {
        self.down * self.across
    }

    /// Part `i` of a product.
    fn part<'a, E>(&self, p: &Product<'a, E>, i: usize) -> Product<'a, E> {
        let (i0, j0) = (i % self.down * self.rows, i / self.down * self.cols);
        Product {
            m: self.rows.min(p.m - i0),
            n: self.cols.min(p.n - j0),
            a: p.a.wrapping_offset(i0 as isize * p.a_row),
            b: p.b.wrapping_offset(j0 as isize * p.b_col),
            c: p.c.wrapping_offset(i0 as isize * p.c_row + j0 as isize),
            ..*p
        }
    }
}

#[cfg(test)]
mod tests;
