//! `ScatterAdd` and `IndexPut`: rows added or written at index tensors, the same result bit for bit on any number of threads.
use super::copy::fill_from;
use super::index::Indices;
use super::team;
use super::view::{Collapsed, View, collapse};
use super::walk::{CHUNK, PARALLEL_BYTES, runs, split};
use crate::backend::kind::Caller;
use crate::backend::op::Indexed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape;
use half::{bf16, f16};
use rayon::prelude::*;
use smallvec::SmallVec;
use std::ops::Range;

/// How one element joins what is there. Sums of 16-bit floats are kept in f32 and rounded once, after the last of them.
pub(super) trait Join {
    type Elem: Copy + Send + Sync;
    type Sum: Copy + Default;
    /// Whether the sum is wider than the elements, so that it has to be kept until a row is complete.
    const WIDENS: bool = false;
    /// Whether only the last element counts.
    const REPLACES: bool = false;
    fn open(at: Self::Elem) -> Self::Sum;
    fn join(sum: Self::Sum, v: Self::Elem) -> Self::Sum;
    fn close(sum: Self::Sum) -> Self::Elem;
}

/// Addition, by element type.
pub(super) struct Add<T>(std::marker::PhantomData<T>);
/// Replacement, by element width.
pub(super) struct Put<T>(std::marker::PhantomData<T>);

/// Implements addition for types that are their own sum.
macro_rules! plain_add {
    ($($t:ty: |$a:ident, $b:ident| $sum:expr;)*) => {$(
        impl Join for Add<$t> {
            type Elem = $t;
            type Sum = $t;
            fn open(at: $t) -> $t { at }
            fn join($a: $t, $b: $t) -> $t { $sum }
            fn close(sum: $t) -> $t { sum }
        }
    )*};
}
plain_add! {
    f32: |a, b| a + b;
    f64: |a, b| a + b;
    u8: |a, b| a.wrapping_add(b);
    i32: |a, b| a.wrapping_add(b);
    i64: |a, b| a.wrapping_add(b);
}

/// A truth value as the byte that stores it: sums are logical or.
#[derive(Clone, Copy, Default)]
pub(super) struct Truth(u8);

impl Join for Add<Truth> {
    type Elem = Truth;
    type Sum = Truth;
    fn open(at: Truth) -> Truth {
        at
    }
    fn join(sum: Truth, v: Truth) -> Truth {
        Truth(sum.0 | v.0)
    }
    fn close(sum: Truth) -> Truth {
        sum
    }
}

/// Implements addition for floats that are summed in f32.
macro_rules! wide_add {
    ($($t:ty: $open:expr;)*) => {$(
        impl Join for Add<$t> {
            type Elem = $t;
            type Sum = f32;
            const WIDENS: bool = true;
            fn open(at: $t) -> f32 { $open(at) }
            fn join(sum: f32, v: $t) -> f32 { sum + $open(v) }
            fn close(sum: f32) -> $t { <$t>::from_f32(sum) }
        }
    )*};
}
wide_add! {
    f16: f16::to_f32;
    bf16: |x: bf16| f32::from_bits(u32::from(x.to_bits()) << 16);
}

impl<T: Copy + Default + Send + Sync> Join for Put<T> {
    type Elem = T;
    type Sum = T;
    const REPLACES: bool = true;
    fn open(at: T) -> T {
        at
    }
    fn join(_: T, v: T) -> T {
        v
    }
    fn close(sum: T) -> T {
        sum
    }
}

/// Calls a function that is generic over a `Join` with the addition of a dtype.
macro_rules! by_sum {
    ($dtype:expr, $call:ident($($arg:expr),* $(,)?)) => {
        match $dtype {
            DType::Bool => $call::<Add<Truth>>($($arg),*),
            DType::U8 => $call::<Add<u8>>($($arg),*),
            DType::I32 => $call::<Add<i32>>($($arg),*),
            DType::I64 => $call::<Add<i64>>($($arg),*),
            DType::F16 => $call::<Add<f16>>($($arg),*),
            DType::BF16 => $call::<Add<bf16>>($($arg),*),
            DType::F32 => $call::<Add<f32>>($($arg),*),
            DType::F64 => $call::<Add<f64>>($($arg),*),
        }
    };
}
pub(super) use by_sum;

/// `ScatterAdd(k)`: inputs x, k index tensors of shape I, v of shape I + rest (any strides): x with v added at the indices, repeated
/// ones in index order.
pub fn run_add(at: Indexed, ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let Some(task) = Task::prepare("scatter_add", at, ins, outs)? else { return Ok(()) };
    by_sum!(task.out.dtype, scatter(&task))
}

/// `IndexPut(k)`: as `ScatterAdd(k)`, but v replaces; the last of repeated indices wins.
pub fn run_put(at: Indexed, ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let Some(task) = Task::prepare("index_put", at, ins, outs)? else { return Ok(()) };
    match task.out.dtype.size_bytes() {
        1 => scatter::<Put<u8>>(&task),
        2 => scatter::<Put<u16>>(&task),
        4 => scatter::<Put<u32>>(&task),
        _ => scatter::<Put<u64>>(&task),
    }
}

/// What to scatter where; the output already holds x.
struct Task<'a> {
    out: View<'a>,
    views: &'a [View<'a>],
    by: Caller,
    v: View<'a>,
    /// Strides of the output.
    to: SmallVec<[isize; 4]>,
    /// How v steps over the positions of I.
    places: Collapsed<1>,
    columns: Columns,
    /// Elements in a row: what one position of I names.
    width: usize,
}

/// Where the elements of a row lie in v, from the row's first one.
enum Columns {
    /// At equal steps.
    Steps(isize),
    /// At these offsets.
    Table(Vec<isize>),
}

impl<'a> Task<'a> {
    /// Checks everything, indices included, then makes the output a copy of x; `None` if nothing is left to do.
    fn prepare(op: &'static str, at: Indexed, ins: &'a [View<'a>], outs: &[View<'a>]) -> Result<Option<Task<'a>>> {
        let ([x, views @ .., v], [out]) = (ins, outs) else { return Err(Error::Internal("scatter: operands")) };
        let k = at.n;
        if views.len() != k || k > out.shape.len() || v.dtype != out.dtype {
            return Err(Error::Internal("scatter: operands"));
        }
        let to = shape::strides(out.shape);
        let rest = &out.shape[k..];
        let indices = Indices::new((op, at.by), views, 0, &out.shape[..k], &to[..k])?;
        let rank = indices.shape().len();
        if v.shape.len() != rank + rest.len() || v.shape[..rank] != *indices.shape() || v.shape[rank..] != *rest {
            return Err(Error::Internal("scatter: shape of the values"));
        }
        // An in-place scatter must not stop half-way, so every index is checked before the first write.
        indices.check()?;
        fill_from(x, out)?;
        if v.elems() == 0 {
            return Ok(None);
        }
        let places = collapse(&v.shape[..rank], [&v.strides[..rank]]);
        let columns = Columns::new(rest, &v.strides[rank..]);
        Ok(Some(Task { out: *out, views, by: at.by, v: *v, places, columns, width: shape::elems(rest), to }))
    }

    fn indices(&self) -> Result<Indices<'_>> {
        let k = self.views.len();
        Indices::new(("scatter", self.by), self.views, 0, &self.out.shape[..k], &self.to[..k])
    }

    /// The offset in v of the row for position `at` of I.
    fn place(&self, at: usize) -> isize {
        let (mut rest, mut offset) = (at, 0);
        for (&d, &s) in self.places.shape.iter().zip(&self.places.strides[0]).rev() {
            offset += (rest % d) as isize * s;
            rest /= d;
        }
        offset
    }
}

impl Columns {
    fn new(rest: &[usize], strides: &[isize]) -> Columns {
        let merged = collapse(rest, [strides]);
        let steps = &merged.strides[0];
        if let [step] = steps[..] {
            return Columns::Steps(step);
        }
        let mut table = Vec::with_capacity(shape::elems(rest));
        let step = steps.last().copied().unwrap_or(0);
        runs(&merged.shape, [steps], 0..shape::elems(rest), |_, [from], run| {
            table.extend((0..run as isize).map(|i| from + i * step));
        });
        Columns::Table(table)
    }
}

/// Picks the way that suits the sizes; all give the same bits.
fn scatter<J: Join>(task: &Task) -> Result<()> {
    let count = shape::elems(&task.places.shape);
    let bytes = count.saturating_mul(task.width * size_of::<J::Elem>());
    // Sorting the positions of single elements would cost more than adding them.
    let pays = task.width >= 16 && bytes >= PARALLEL_BYTES && rayon::current_num_threads() > 1;
    if J::WIDENS || pays { by_row::<J>(task, count) } else { in_order::<J>(task, count) }
}

/// Position by position, straight into the output.
fn in_order<J: Join>(task: &Task, count: usize) -> Result<()> {
    let indices = task.indices()?;
    let (out, v) = (task.out.as_ptr::<J::Elem>(), task.v.as_ptr::<J::Elem>().cast_const());
    let places = (&task.places.shape[..], &task.places.strides[0][..]);
    let step = places.1.last().copied().unwrap_or(0);
    indices.chunks(0..count, |at, offsets| {
        runs(places.0, [places.1], at..at + offsets.len(), |flat, [from], run| {
            for (i, &row) in offsets[flat - at..][..run].iter().enumerate() {
                let from = from + i as isize * step;
                // SAFETY: the indices were checked against the output, whose rows are dense; the place lies in v.
                unsafe {
                    each::<J>(v.offset(from), &task.columns, 0..task.width, |c, x| {
                        let at = out.offset(row).add(c);
                        *at = J::close(J::join(J::open(*at), x));
                    });
                }
            }
        });
        Ok(())
    })
}

/// Calls `visit(i, element)` for the columns in `range` of the row of v that starts at `row`; `i` counts from the range's start.
///
/// # Safety
/// The row and its columns lie inside v.
#[inline(always)]
unsafe fn each<J: Join>(row: *const J::Elem, columns: &Columns, range: Range<usize>, mut visit: impl FnMut(usize, J::Elem)) {
    let first = range.start as isize;
    // SAFETY: as the caller promised.
    unsafe {
        match columns {
            Columns::Steps(1) => (0..range.len()).for_each(|c| visit(c, *row.offset(first).add(c))),
            Columns::Steps(step) => (0..range.len()).for_each(|c| visit(c, *row.offset((first + c as isize) * step))),
            Columns::Table(table) => table[range].iter().enumerate().for_each(|(c, &o)| visit(c, *row.offset(o))),
        }
    }
}

/// Row by row: positions are sorted by the row they name, in index order within each, so that every row belongs to one task.
fn by_row<J: Join>(task: &Task, count: usize) -> Result<()> {
    let mut sorted: SmallVec<[(isize, usize); 16]> = SmallVec::new();
    // Index tensors that broadcast name more positions than memory holds.
    sorted.try_reserve_exact(count).map_err(|_| Error::no_room("scatter", count, size_of::<(isize, usize)>()))?;
    task.indices()?.chunks(0..count, |at, offsets| {
        sorted.extend(offsets.iter().enumerate().map(|(i, &row)| (row, at + i)));
        Ok(())
    })?;
    if count < 1 << 15 {
        sorted.sort_unstable()
    } else {
        team::rouse();
        sorted.par_sort_unstable()
    }
    let mut rows: SmallVec<[(usize, usize); 16]> = SmallVec::new();
    for (i, at) in sorted.iter().enumerate() {
        match rows.last_mut() {
            Some(last) if sorted[last.0].0 == at.0 => last.1 = i + 1,
            _ => rows.push((i, i + 1)),
        }
    }
    // A few rows that get everything are shared out by columns: 128 of them touch no cache line of another task's.
    let blocks = task.width.div_ceil(CHUNK);
    let each = count * task.width * size_of::<J::Elem>() / (rows.len() * blocks);
    split(rows.len() * blocks, each, |range| {
        for i in range {
            let (first, end) = rows[i / blocks];
            let start = i % blocks * CHUNK;
            one_row::<J>(task, &sorted[first..end], start..(start + CHUNK).min(task.width));
        }
        Ok(())
    })
}

/// Joins some columns of all the rows of v that go to one row of the output.
fn one_row<J: Join>(task: &Task, sorted: &[(isize, usize)], columns: Range<usize>) {
    let sorted = if J::REPLACES { &sorted[sorted.len() - 1..] } else { sorted };
    let v = task.v.as_ptr::<J::Elem>().cast_const();
    let mut sums = [J::Sum::default(); CHUNK];
    let sums = &mut sums[..columns.len()];
    // SAFETY: the row was checked against the output; row and columns belong to this task alone.
    let out = unsafe {
        let first = task.out.as_ptr::<J::Elem>().offset(sorted[0].0).add(columns.start);
        std::slice::from_raw_parts_mut(first, columns.len())
    };
    for (sum, &at) in sums.iter_mut().zip(&*out) {
        *sum = J::open(at);
    }
    for &(_, at) in sorted {
        // SAFETY: `at` is a position of I, so its row lies in v.
        unsafe {
            each::<J>(v.offset(task.place(at)), &task.columns, columns.clone(), |c, x| {
                if let Some(sum) = sums.get_mut(c) {
                    *sum = J::join(*sum, x);
                }
            });
        }
    }
    for (at, &sum) in out.iter_mut().zip(&*sums) {
        *at = J::close(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::tests::{indices, shapes};
    use super::super::walk::sample::{Draw, Sample, coordinates, position, same};
    use super::*;

    proptest::proptest! {
        #[test]
        fn scatters(seed: u64, rank in 1usize..4, dtype in 0usize..8, put: bool, in_place: bool) {
            let mut draw = Draw(seed);
            let k = 1 + draw.below(rank);
            let (shape, of) = shapes(&mut draw, rank, k);
            let dtype = DType::ALL[dtype];
            let x = Sample::strided(&mut draw, dtype, &shape, |d| d.below(5) as f64);
            let x = if in_place { Sample::of(dtype, &shape, &x.values()) } else { x };
            let (idx, named) = indices(&mut draw, k, &shape, &of);
            let v_shape: Vec<usize> = of.iter().chain(&shape[k..]).copied().collect();
            let v = Sample::strided(&mut draw, dtype, &v_shape, |d| d.below(5) as f64);
            let mut expected = x.values();
            let n = shape[k..].iter().product::<usize>();
            for (i, &value) in v.values().iter().enumerate() {
                let at: Vec<usize> = named[i / n].iter().copied().chain(coordinates(&shape[k..], i % n)).collect();
                let to = &mut expected[position(&shape, &at)];
                *to = if put { value } else if dtype == DType::Bool { to.max(value) } else { *to + value };
                if dtype == DType::U8 { *to %= 256.0 }
            }
            let out = if in_place { x.clone() } else { Sample::zeros(dtype, &shape) };
            let first = if in_place { out.view() } else { x.view() };
            let ins: Vec<View> = std::iter::once(first).chain(idx.iter().map(Sample::view)).chain([v.view()]).collect();
            if put { run_put(k.into(), &ins, &[out.view()], &[]) } else { run_add(k.into(), &ins, &[out.view()], &[]) }.unwrap();
            if dtype == DType::F16 || dtype == DType::BF16 {
                // The sum is rounded once.
                let expected = Sample::of(dtype, &shape, &expected).values();
                proptest::prop_assert_eq!(out.values(), expected);
            } else {
                proptest::prop_assert_eq!(out.values(), expected);
            }
        }

        #[test]
        fn both_ways_give_the_same_bits(seed: u64, width in 1usize..300, put: bool) {
            let mut draw = Draw(seed);
            let (idx, _) = indices(&mut draw, 1, &[7], &[40]);
            let v = Sample::strided(&mut draw, DType::F32, &[40, width], |d| d.below(1 << 20) as f64 / 777.0);
            let x = Sample::zeros(DType::F32, &[7, width]);
            let outs = [0, 1].map(|_| Sample::zeros(DType::F32, &[7, width]));
            let ins = [x.view(), idx[0].view(), v.view()];
            for (i, out) in outs.iter().enumerate() {
                let outs = [out.view()];
                let task = Task::prepare("scatter_add", 1.into(), &ins, &outs).unwrap().unwrap();
                match (i, put) {
                    (0, false) => in_order::<Add<f32>>(&task, 40),
                    (0, true) => in_order::<Put<u32>>(&task, 40),
                    (_, false) => by_row::<Add<f32>>(&task, 40),
                    (_, true) => by_row::<Put<u32>>(&task, 40),
                }.unwrap();
            }
            proptest::prop_assert!(same(&outs[0].values(), &outs[1].values()));
        }
    }

    #[test]
    fn large_embedding_gradients_do_not_depend_on_threads() {
        for (rows, count, width) in [(1000usize, 4096usize, 96usize), (2, 4096, 200), (100_000, 70_000, 1)] {
            let mut draw = Draw(3);
            let ids: Vec<f64> = (0..count).map(|_| draw.below(rows) as f64).collect();
            let idx = Sample::of(DType::I64, &[count], &ids);
            let v = Sample::strided(&mut Draw(0), DType::F32, &[count, width], |d| d.below(1 << 20) as f64 / 777.0);
            let mut zero = Sample::zeros(DType::F32, &[1]);
            (zero.shape, zero.strides) = (vec![rows, width], vec![0, 0]);
            let out = Sample::zeros(DType::F32, &[rows, width]);
            run_add(1.into(), &[zero.view(), idx.view(), v.view()], &[out.view()], &[]).unwrap();
            let mut expected = vec![0f32; rows * width];
            for (i, &value) in v.values().iter().enumerate() {
                expected[ids[i / width] as usize * width + i % width] += value as f32;
            }
            assert!(out.values().iter().zip(&expected).all(|(a, b)| *a as f32 == *b));
        }
    }

    #[test]
    fn sixteen_bit_sums_do_not_stall_and_bad_indices_leave_the_target_alone() {
        let idx = Sample::zeros(DType::I32, &[1000]);
        let ones = Sample::of(DType::BF16, &[1000], &[1.0; 1000]);
        let out = Sample::zeros(DType::BF16, &[1]);
        run_add(1.into(), &[out.view(), idx.view(), ones.view()], &[out.view()], &[]).unwrap();
        assert_eq!(out.values(), [1000.0]);
        let idx = Sample::of(DType::I64, &[2], &[0.0, 3.0]);
        let x = Sample::of(DType::F32, &[3], &[1.0, 2.0, 3.0]);
        let v = Sample::of(DType::F32, &[2], &[5.0, 5.0]);
        let error = run_put(1.into(), &[x.view(), idx.view(), v.view()], &[x.view()], &[]).unwrap_err();
        assert_eq!(error.to_string(), "index_put: index 3 is out of range for axis 0 of size 3");
        assert_eq!(x.values(), [1.0, 2.0, 3.0]);
    }
}
