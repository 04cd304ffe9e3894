//! Strided copies of any dtype: merged axes, runs of `memcpy`, tiles where the fast axes of the two sides differ.
use super::parallel;
use super::view::{Collapsed, View, collapse};
use super::walk::{PARALLEL_BYTES, TASK_BYTES, by_size, runs};
use crate::error::{Error, Result};
use crate::shape;
use smallvec::SmallVec;
use std::ops::Range;

/// Side of a tile: a few cache lines of the source and as many of the destination.
const TILE: usize = 16;
/// Side of the square within which tiles are visited: its rows lie on few enough pages for the address caches to keep.
const SQUARE: usize = 128;
/// Side of the block that is transposed in registers.
const BLOCK: usize = 8;

/// Copies the input, whatever its strides, to the row-major output of the same shape and dtype.
pub fn run(ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let ([x], [out]) = (ins, outs) else { return Err(Error::Internal("copy: operands")) };
    fill_from(x, out)
}

/// Makes the row-major `out` equal to `x`; nothing to do when they are the same memory, as in an update in place.
pub(super) fn fill_from(x: &View, out: &View) -> Result<()> {
    if x.shape != out.shape || x.dtype != out.dtype {
        return Err(Error::Internal("copy: shapes or dtypes differ"));
    }
    if out.elems() == 0 {
        return Ok(());
    }
    if x.ptr == out.ptr {
        // Reading and writing one place through different strides would mix old and new values.
        return if x.is_contiguous() { Ok(()) } else { Err(Error::Internal("copy: in place with strides")) };
    }
    let to = shape::strides(out.shape);
    // SAFETY: both views are large enough for their shape and strides, and the plan keeps outputs apart from inputs.
    unsafe { Move::new(x.dtype.size_bytes(), x.shape, x.strides, &to).run(x.ptr, out.ptr) };
    Ok(())
}

/// Writes `src` (any strides) to `dst`, whose steps along the axes of `src` are `dst_strides`, in elements.
///
/// # Safety
/// `dst` is aligned, writable at every offset that the shape of `src` and `dst_strides` reach, and apart from `src`; no two elements
/// of `src` may go to one place.
pub unsafe fn write_strided(src: &View, dst: *mut u8, dst_strides: &[isize]) {
    if src.elems() > 0 {
        // SAFETY: the view vouches for the source, the caller for the destination.
        unsafe { Move::new(src.dtype.size_bytes(), src.shape, src.strides, dst_strides).run(src.ptr, dst) };
    }
}

/// A copy between two strided windows of one shape, with its axes merged: made once, run at many places.
#[derive(Clone)]
pub(super) struct Move {
    size: usize,
    shape: SmallVec<[usize; 4]>,
    from: SmallVec<[isize; 4]>,
    to: SmallVec<[isize; 4]>,
}

/// Two addresses that travel to another thread together.
#[derive(Clone, Copy)]
struct Ends(*const u8, *mut u8);

// SAFETY: the tasks of a copy write disjoint places and read what nobody writes.
unsafe impl Send for Ends {}
// SAFETY: as above.
unsafe impl Sync for Ends {}

impl Ends {
    /// Both ends moved on, in bytes.
    fn offset(self, from: isize, to: isize) -> Ends {
        Ends(self.0.wrapping_offset(from), self.1.wrapping_offset(to))
    }
}

impl Move {
    /// A copy of elements of `size` bytes. No axis may be empty.
    pub(super) fn new(size: usize, shape: &[usize], from: &[isize], to: &[isize]) -> Move {
        let Collapsed { shape, strides: [from, to] } = collapse(shape, [from, to]);
        Move { size, shape, from, to }
    }

    /// Bytes that one run moves.
    pub(super) fn bytes(&self) -> usize {
        self.size * shape::elems(&self.shape)
    }

    /// The number of elements, if both sides are dense: then the copy is one `memcpy`.
    pub(super) fn dense(&self) -> Option<usize> {
        let is_dense = self.shape.len() == 1 && (self.shape[0] == 1 || (self.from[0] == 1 && self.to[0] == 1));
        is_dense.then(|| self.shape[0])
    }

    /// Copies, on several threads if that pays.
    ///
    /// # Safety
    /// Both windows are aligned and valid for the shape and strides given to `new`, and do not overlap.
    pub(super) unsafe fn run(&self, from: *const u8, to: *mut u8) {
        if self.bytes() < PARALLEL_BYTES || rayon::current_num_threads() < 2 {
            // SAFETY: as the caller promised.
            unsafe { self.run_serial(from, to) }
        } else {
            let mut pieces = Vec::new();
            self.clone().halve(Ends(from, to), &mut pieces);
            // SAFETY: pieces of the caller's windows, which write disjoint parts.
            parallel::for_each(pieces.len(), |i| unsafe { pieces[i].0.run_serial(pieces[i].1.0, pieces[i].1.1) });
        }
    }

    /// Splits the outermost axis (planes last, and so that they stay square) until the pieces are worth one task each.
    fn halve(mut self, ends: Ends, pieces: &mut Vec<(Move, Ends)>) {
        let Some(axis) = self.longest().filter(|_| self.bytes() > TASK_BYTES) else {
            return pieces.push((self, ends));
        };
        let mut tail = self.clone();
        // Whole tiles on one side.
        let half = self.shape[axis] / 2;
        let half = if half > TILE { half.next_multiple_of(TILE) } else { half };
        self.shape[axis] = half;
        tail.shape[axis] -= half;
        let step = (half * self.size) as isize;
        let rest = ends.offset(step * self.from[axis], step * self.to[axis]);
        self.halve(ends, pieces);
        tail.halve(rest, pieces);
    }

    /// The axis to split next.
    fn longest(&self) -> Option<usize> {
        let (a, b) = self.crossed().unwrap_or((usize::MAX, usize::MAX));
        let outer = (0..self.shape.len()).find(|&i| self.shape[i] > 1 && i != a && i != b);
        outer.or_else(|| if self.shape.get(a)? > self.shape.get(b)? { Some(a) } else { Some(b) })
    }

    /// Copies on this thread.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn run_serial(&self, from: *const u8, to: *mut u8) {
        // SAFETY: as the caller promised; the size picks a type of the element's width.
        unsafe { by_size!(self.size, Move::typed(self, from, to)) }
    }

    /// # Safety
    /// As for `run`, with elements of the width of `T`.
    unsafe fn typed<T: Copy>(&self, from: *const u8, to: *mut u8) {
        let (from, to) = (from.cast::<T>(), to.cast::<T>());
        if let Some((a, b)) = self.crossed() {
            let mut outer = self.shape.clone();
            (outer[a], outer[b]) = (1, 1);
            let all = 0..shape::elems(&outer);
            return runs(&outer, [&self.from, &self.to], all, |_, [f, t], run| {
                for i in 0..run as isize {
                    let last = self.shape.len() - 1;
                    let (f, t) = (f + i * self.from[last], t + i * self.to[last]);
                    // SAFETY: `f` and `t` reach the first element of a plane of the windows.
                    unsafe { self.plane(a, b, from.offset(f), to.offset(t)) }
                }
            });
        }
        let last = self.shape.len() - 1;
        let (s, d) = (self.from[last], self.to[last]);
        runs(&self.shape, [&self.from, &self.to], 0..shape::elems(&self.shape), |_, [f, t], run| {
            // SAFETY: a run along the innermost axis stays inside both windows.
            unsafe { line(from.offset(f), s, to.offset(t), d, run) }
        });
    }

    /// The axes along which the source and the destination are dense, if these differ and are long enough for tiles.
    fn crossed(&self) -> Option<(usize, usize)> {
        let unit = |strides: &[isize]| (0..strides.len()).rev().find(|&i| strides[i] == 1 && self.shape[i] >= BLOCK);
        let (a, b) = (unit(&self.from)?, unit(&self.to)?);
        (a != b && self.from[b] != 1 && self.to[a] != 1).then_some((a, b))
    }

    /// Copies the plane of axes `a` (the source is dense along it) and `b` (the destination is), square by square and tile by tile.
    ///
    /// # Safety
    /// As for `run`, from the first element of the plane.
    unsafe fn plane<T: Copy>(&self, a: usize, b: usize, from: *const T, to: *mut T) {
        let (sb, da) = (self.from[b], self.to[a]);
        for square in squares((0..self.shape[a], 0..self.shape[b]), SQUARE) {
            for tile in squares(square, TILE) {
                for (rows, columns) in squares(tile, BLOCK) {
                    // SAFETY: the block lies in the plane.
                    unsafe {
                        let f = from.offset(rows.start as isize + columns.start as isize * sb);
                        let t = to.offset(rows.start as isize * da + columns.start as isize);
                        match (rows.len(), columns.len()) {
                            (BLOCK, BLOCK) => block(f, sb, t, da),
                            (h, w) => edge(f, sb, t, da, h, w),
                        }
                    }
                }
            }
        }
    }
}

/// A rectangle's parts of the given side (smaller at its edges), row by row.
fn squares((rows, columns): (Range<usize>, Range<usize>), side: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    rows.clone().step_by(side).flat_map(move |i| {
        let rows = i..rows.end.min(i + side);
        let end = columns.end;
        columns.clone().step_by(side).map(move |j| (rows.clone(), j..end.min(j + side)))
    })
}

/// Transposes a full block; the constant size lets the compiler keep it in registers.
///
/// # Safety
/// `BLOCK` rows of `BLOCK` elements are readable from `from` (rows `sb` apart) and writable at `to` (rows `da` apart).
#[inline(always)]
unsafe fn block<T: Copy>(from: *const T, sb: isize, to: *mut T, da: isize) {
    // SAFETY: as the caller promised; arrays of T have T's alignment.
    unsafe {
        let rows: [[T; BLOCK]; BLOCK] = std::array::from_fn(|j| from.offset(j as isize * sb).cast::<[T; BLOCK]>().read());
        for i in 0..BLOCK {
            let column = rows.map(|row| row[i]);
            to.offset(i as isize * da).cast::<[T; BLOCK]>().write(column);
        }
    }
}

/// Transposes what is left at the edges of a plane.
///
/// # Safety
/// As for `block`, for `w` rows of `h` elements.
unsafe fn edge<T: Copy>(from: *const T, sb: isize, to: *mut T, da: isize, h: usize, w: usize) {
    for i in 0..h as isize {
        for j in 0..w as isize {
            // SAFETY: as the caller promised.
            unsafe { *to.offset(i * da + j) = *from.offset(i + j * sb) }
        }
    }
}

/// Copies `n` elements between two lines.
///
/// # Safety
/// Both lines are valid for `n` elements at their steps and do not overlap.
#[inline]
pub(super) unsafe fn line<T: Copy>(from: *const T, s: isize, to: *mut T, d: isize, n: usize) {
    // SAFETY: as the caller promised.
    unsafe {
        match (s, d) {
            (1, 1) => std::ptr::copy_nonoverlapping(from, to, n),
            (0, 1) => {
                std::slice::from_raw_parts_mut(to.cast::<std::mem::MaybeUninit<T>>(), n).fill(std::mem::MaybeUninit::new(*from))
            }
            (_, 1) => {
                for i in 0..n as isize {
                    *to.offset(i) = *from.offset(i * s);
                }
            }
            _ => {
                for i in 0..n as isize {
                    *to.offset(i * d) = *from.offset(i * s);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::sample::{Draw, Sample};
    use super::*;
    use crate::dtype::DType;

    proptest::proptest! {
        #[test]
        fn copies_every_layout(seed: u64, rank in 0usize..5, dtype in 0usize..8) {
            let mut draw = Draw(seed);
            let shape = draw.shape(rank);
            let x = Sample::strided(&mut draw, DType::ALL[dtype], &shape, |d| d.below(200) as f64);
            let out = Sample::zeros(x.dtype, &shape);
            run(&[x.view()], &[out.view()], &[]).unwrap();
            proptest::prop_assert_eq!(out.values(), x.values());
        }

        #[test]
        fn writes_to_every_layout(seed: u64, rank in 1usize..5) {
            let mut draw = Draw(seed);
            let shape = draw.shape(rank);
            let x = Sample::strided(&mut draw, DType::F32, &shape, |d| d.below(1000) as f64);
            let mut out = Sample::zeros(DType::F32, &shape);
            // Permuted strides: a destination without overlaps.
            let mut step = 1;
            for i in 0..rank {
                out.strides[i] = step;
                step *= shape[i].max(1) as isize;
            }
            unsafe { write_strided(&x.view(), out.view().ptr, &out.strides) };
            proptest::prop_assert_eq!(out.values(), x.values());
        }
    }

    #[test]
    fn large_copies_are_split_right() {
        for (shape, strides) in [
            (vec![700, 901], vec![1isize, 700]),
            (vec![1, 631, 1000], vec![0, 1000, 1]),
            (vec![4, 3, 8, 128, 32], vec![128 * 768, 256, 32, 768, 1]),
            (vec![40, 128, 130], vec![128 * 130, 1, 128]),
            (vec![1_000_003], vec![0]),
        ] {
            for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
                let n = shape.iter().product::<usize>();
                let mut x = Sample::of(dtype, &[n], &(0..n).map(|i| (i * 7 % 251) as f64).collect::<Vec<_>>());
                (x.shape, x.strides) = (shape.clone(), strides.clone());
                let out = Sample::zeros(dtype, &shape);
                run(&[x.view()], &[out.view()], &[]).unwrap();
                assert!(out.values() == x.values(), "{shape:?}");
            }
        }
    }

    #[test]
    fn in_place_copies_nothing_and_refuses_other_strides() {
        let x = Sample::of(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        run(&[x.view()], &[x.view()], &[]).unwrap();
        assert_eq!(x.values(), [1.0, 2.0, 3.0, 4.0]);
        let turned = Sample { strides: vec![1, 2], ..x.clone() };
        assert!(run(&[View { ptr: x.view().ptr, ..turned.view() }], &[x.view()], &[]).is_err());
    }
}
