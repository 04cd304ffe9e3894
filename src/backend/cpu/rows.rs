//! Rows along the last axis: how row kernels read and write them, share them out between threads and add them up.
use super::real::{Float, Real};
use super::view::View;
use super::walk::runs;
use super::{math, parallel};
use crate::error::{Error, Result};
use half::slice::HalfFloatSliceExt;
use std::ops::Range;

/// Elements that are worked on side by side; the order of a row's sum depends on its length alone.
pub(super) const LANES: usize = 16;
/// Elements that are worth a task of their own.
const GRAIN: usize = 16 << 10;
/// A row up to this length always has room.
const LONG_ROW: usize = 1 << 20;

/// A type that row kernels compute in.
pub(super) trait Lane: Float + Default + Into<f64> {
    /// e^x.
    fn exp(self) -> Self;
}

impl Lane for f32 {
    #[inline(always)]
    fn exp(self) -> f32 {
        math::exp(self)
    }
}

impl Lane for f64 {
    #[inline(always)]
    fn exp(self) -> f64 {
        f64::exp(self)
    }
}

/// A stored float whose rows are widened and rounded as a whole.
pub(super) trait Row: Real<Wide: Lane> {
    /// Widens a row.
    fn read(from: &[Self], to: &mut [Self::Wide]);

    /// Rounds a row to the stored type.
    fn write(from: &[Self::Wide], to: &mut [Self]);

    /// The row itself, if it is stored in the compute type.
    fn as_wide(row: &[Self]) -> Option<&[Self::Wide]>;

    /// The same to write to.
    fn as_wide_mut(row: &mut [Self]) -> Option<&mut [Self::Wide]>;
}

macro_rules! wide_rows {
    ($($t:ty),*) => {$(
        impl Row for $t {
            fn read(from: &[$t], to: &mut [$t]) {
                to.copy_from_slice(from);
            }
            fn write(from: &[$t], to: &mut [$t]) {
                to.copy_from_slice(from);
            }
            fn as_wide(row: &[$t]) -> Option<&[$t]> {
                Some(row)
            }
            fn as_wide_mut(row: &mut [$t]) -> Option<&mut [$t]> {
                Some(row)
            }
        }
    )*};
}
wide_rows!(f32, f64);

macro_rules! narrow_rows {
    ($($t:ty),*) => {$(
        impl Row for $t {
            fn read(from: &[$t], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }
            fn write(from: &[f32], to: &mut [$t]) {
                to.convert_from_f32_slice(from);
            }
            fn as_wide(_: &[$t]) -> Option<&[f32]> {
                None
            }
            fn as_wide_mut(_: &mut [$t]) -> Option<&mut [f32]> {
                None
            }
        }
    )*};
}
narrow_rows!(half::f16, half::bf16);

/// Room for a row of a tensor whose rows cannot be used where they lie.
fn room<T: Row>(step: isize, n: usize) -> Vec<T::Wide> {
    let is_used_in_place = step == 1 && T::as_wide(&[]).is_some();
    vec![T::Wide::default(); if is_used_in_place { 0 } else { n }]
}

/// Refuses rows that are too long for a task's copy of one; where the result has such rows itself, it was refused before.
pub(super) fn check_room<T: Row>(op: &'static str, view: &View) -> Result<()> {
    let n = view.shape.last().copied().unwrap_or(1);
    let mut room: Vec<T::Wide> = Vec::new();
    if n > LONG_ROW && room.try_reserve_exact(n).is_err() {
        return Err(Error::no_room(op, n, size_of::<T::Wide>()));
    }
    Ok(())
}

/// One task's reader of a tensor's rows.
pub(super) struct Rows<T: Row> {
    ptr: *const T,
    step: isize,
    n: usize,
    room: Vec<T::Wide>,
}

impl<T: Row> Rows<T> {
    /// A reader of rows along the last axis, which the view has.
    pub(super) fn new(view: &View) -> Rows<T> {
        let (n, step) = match (view.shape, view.strides) {
            ([.., n], [.., step]) => (*n, *step),
            _ => (1, 1),
        };
        Rows { ptr: view.as_ptr::<T>().cast_const(), step, n, room: room::<T>(step, n) }
    }

    /// The row that begins at an offset, in the compute type: where it lies, or widened.
    ///
    /// # Safety
    /// The offset is that of a row of the view, which nobody writes to meanwhile.
    pub(super) unsafe fn at(&mut self, offset: isize) -> &[T::Wide] {
        // SAFETY: the caller vouches for the row.
        unsafe {
            let from = self.ptr.offset(offset);
            if self.step == 1 {
                let row = std::slice::from_raw_parts(from, self.n);
                if let Some(wide) = T::as_wide(row) {
                    return wide;
                }
                T::read(row, &mut self.room);
            } else {
                self.room.iter_mut().enumerate().for_each(|(i, w)| *w = (*from.offset(i as isize * self.step)).widen());
            }
        }
        &self.room
    }
}

/// One task's writer of the rows of a row-major tensor.
pub(super) struct OutRows<T: Row> {
    ptr: *mut T,
    n: usize,
    room: Vec<T::Wide>,
}

impl<T: Row> OutRows<T> {
    /// A writer of rows of `n` elements.
    pub(super) fn new(view: &View, n: usize) -> OutRows<T> {
        OutRows { ptr: view.as_ptr(), n, room: room::<T>(1, n) }
    }

    /// Lets `fill` compute a row, by its number, and rounds it.
    ///
    /// # Safety
    /// The tensor has the row, and nobody else uses it meanwhile.
    pub(super) unsafe fn put(&mut self, row: usize, fill: impl FnOnce(&mut [T::Wide])) {
        // SAFETY: the caller vouches for the row.
        let to = unsafe { std::slice::from_raw_parts_mut(self.ptr.add(row * self.n), self.n) };
        match T::as_wide_mut(to) {
            Some(wide) => fill(wide),
            None => {
                fill(&mut self.room);
                T::write(&self.room, to);
            }
        }
    }
}

/// Calls `task` with ranges that cover `count` rows of `n` elements, on this thread if that is little work.
pub(super) fn split(count: usize, n: usize, task: impl Fn(Range<usize>) + Sync) {
    let per_task = GRAIN.div_ceil(n.max(1));
    if count * n <= 2 * GRAIN {
        return task(0..count);
    }
    parallel::for_each(count.div_ceil(per_task), |t| task(t * per_task..((t + 1) * per_task).min(count)));
}

/// Rows of `n` elements in a part, when at most `most` parts are to cover `count` rows: sizes alone decide.
pub(super) fn rows_per_part(count: usize, n: usize, most: usize) -> usize {
    (2 * GRAIN).div_ceil(n.max(1)).max(count.div_ceil(most.max(1)))
}

/// Visits the rows `range` of tensors that share the leading axes `lead`: the row's number, and where it begins in each, in elements.
pub(super) fn walk<const N: usize>(
    lead: &[usize],
    strides: [&[isize]; N],
    range: Range<usize>,
    mut visit: impl FnMut(usize, [isize; N]),
) {
    let Some(last) = lead.len().checked_sub(1) else { return range.for_each(|row| visit(row, [0; N])) };
    let steps = strides.map(|s| s[last]);
    runs(lead, strides.map(|s| &s[..=last]), range, |flat, offsets, run| {
        for r in 0..run {
            visit(flat + r, std::array::from_fn(|k| offsets[k] + r as isize * steps[k]));
        }
    });
}

/// The lanes' value, halves folded onto each other.
#[inline(always)]
pub(super) fn fold<T: Copy>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = f(lanes[l], lanes[l + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// The rest of a row behind its whole chunks, filled up.
#[inline(always)]
pub(super) fn filled<W: Copy>(rest: &[W], filler: W) -> [W; LANES] {
    let mut last = [filler; LANES];
    last[..rest.len()].copy_from_slice(rest);
    last
}

/// The largest element, -infinity of none. A NaN is passed over, or stays if it comes last.
#[inline(always)]
pub(super) fn largest<W: Lane>(row: &[W]) -> W {
    let (full, rest) = row.as_chunks::<LANES>();
    let mut tops = filled(rest, W::of(f64::NEG_INFINITY));
    for chunk in full {
        for l in 0..LANES {
            tops[l] = if chunk[l] > tops[l] { chunk[l] } else { tops[l] };
        }
    }
    fold(tops, |a, b| if b > a { b } else { a })
}

/// The sum of a term of each element in f64; that of the filler, which makes the last chunk whole, is 0.
#[inline(always)]
pub(super) fn sum<W: Lane>(row: &[W], filler: W, term: impl Fn(W) -> f64) -> f64 {
    let (full, rest) = row.as_chunks::<LANES>();
    let mut sums = [0f64; LANES];
    for chunk in full {
        for l in 0..LANES {
            sums[l] += term(chunk[l]);
        }
    }
    if !rest.is_empty() {
        let last = filled(rest, filler);
        for l in 0..LANES {
            sums[l] += term(last[l]);
        }
    }
    fold(sums, |a, b| a + b)
}

/// The sums of two terms of the elements of three rows in f64; those of zeros, which make the last chunk whole, are 0.
#[inline(always)]
pub(super) fn sums<W: Lane>(rows: [&[W]; 3], term: impl Fn(W, W, W) -> [f64; 2]) -> [f64; 2] {
    let [a, b, c] = rows;
    let ((a, a_rest), (b, b_rest), (c, c_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>(), c.as_chunks::<LANES>());
    let (mut first, mut second) = ([0f64; LANES], [0f64; LANES]);
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        for l in 0..LANES {
            let [p, q] = term(a[l], b[l], c[l]);
            first[l] += p;
            second[l] += q;
        }
    }
    if !a_rest.is_empty() {
        let (a, b, c) = (filled(a_rest, W::default()), filled(b_rest, W::default()), filled(c_rest, W::default()));
        for l in 0..LANES {
            let [p, q] = term(a[l], b[l], c[l]);
            first[l] += p;
            second[l] += q;
        }
    }
    [fold(first, |a, b| a + b), fold(second, |a, b| a + b)]
}
