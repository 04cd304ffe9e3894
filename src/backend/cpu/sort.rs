//! `Sort`: stable along the last axis, NaN larger than every number, -0.0 equal to 0.0.
use super::interrupt::is_stopped;
use super::order::{Key, Ordered, by_order};
use super::team;
use super::view::{View, collapse};
use super::walk::{runs, split};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape;
use rayon::prelude::*;
use smallvec::SmallVec;

/// Rows from this length on are sorted by several threads.
const LONG: usize = 1 << 16;

/// Rows from this length on are sorted in runs of it, between which the user's interrupt is looked for.
const RUN: usize = 1 << 20;

/// Outputs the sorted values and their int64 positions. Equal elements, NaNs among them, keep their order in both directions; NaN comes
/// last ascending (as in NumPy) and first descending.
pub fn run(descending: bool, ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let ([x], [values, positions]) = (ins, outs) else { return Err(Error::Internal("sort: operands")) };
    let is_right = values.dtype == x.dtype && positions.dtype == DType::I64;
    if !is_right || values.shape != x.shape || positions.shape != x.shape {
        return Err(Error::Internal("sort: outputs"));
    }
    if x.elems() == 0 {
        return Ok(());
    }
    by_order!(x.dtype, rows(descending, x, values, positions))
}

/// An element's key and, to keep the sort stable, its position.
type Entry<T> = <<T as Ordered>::Key as Key>::Entry;

/// Sorts every row.
fn rows<T: Ordered>(descending: bool, x: &View, values: &View, positions: &View) -> Result<()> {
    let (outer, n, step) = match (x.shape.split_last(), x.strides.split_last()) {
        (Some((&n, outer)), Some((&step, strides))) => (collapse(outer, [strides]), n, step),
        _ => (collapse(&[], [&[]]), 1, 0),
    };
    if n > u32::MAX as usize {
        return Err(Error::value("sort", format!("an axis of {n} elements is longer than 2^32 - 1")));
    }
    let count = shape::elems(&outer.shape);
    let outer_step = outer.strides[0].last().copied().unwrap_or(0);
    // Sorting costs more than moving: a row is worth about its bytes times the depth of the sort.
    let each = n * size_of::<Entry<T>>() * (1 + n.ilog2() as usize);
    split(count, each, |range| {
        let mut entries: SmallVec<[Entry<T>; 32]> = SmallVec::new();
        entries.try_reserve_exact(n).map_err(|_| Error::no_room("sort", n, size_of::<Entry<T>>()))?;
        runs(&outer.shape, [&outer.strides[0]], range, |row, [from], run| {
            for i in 0..run {
                let from = x.as_ptr::<T>().cast_const().wrapping_offset(from + i as isize * outer_step);
                let at = (row + i) * n;
                // SAFETY: the row lies in x and in both outputs, and belongs to this task.
                unsafe {
                    one_row(
                        descending,
                        from,
                        step,
                        &mut entries,
                        n,
                        values.as_ptr::<T>().add(at),
                        positions.as_ptr::<i64>().add(at),
                    )
                }
            }
        });
        Ok(())
    })
}

/// Sorts one row of `n` elements.
///
/// # Safety
/// `from` is readable at `n` steps; `values` and `positions` are writable for `n` elements.
unsafe fn one_row<T: Ordered>(
    descending: bool,
    from: *const T,
    step: isize,
    entries: &mut SmallVec<[Entry<T>; 32]>,
    n: usize,
    values: *mut T,
    positions: *mut i64,
) {
    entries.clear();
    // SAFETY: as the caller promised.
    entries.extend((0..n).map(|i| {
        let x = unsafe { *from.offset(i as isize * step) };
        let key = x.key(false);
        (if descending { !key } else { key }).with(i as u32)
    }));
    // No two entries are equal, so an unstable sort gives the stable order.
    if n < LONG {
        entries.sort_unstable()
    } else if n < RUN {
        team::rouse();
        entries.par_sort_unstable()
    } else {
        sort_in_runs(entries)
    }
    for (i, &entry) in entries.iter().enumerate() {
        if i % RUN == 0 && is_stopped() {
            return;
        }
        let at = T::Key::position(entry);
        // SAFETY: as the caller promised; the values are copied from x to keep the sign of zeros and the payload of NaN.
        unsafe {
            *values.add(i) = *from.offset(at as isize * step);
            *positions.add(i) = i64::from(at);
        }
    }
}

/// Sorts runs and merges them pair by pair; leaves off when the user asked to stop, with the entries in any order.
fn sort_in_runs<E: Copy + Ord + Send + Sync>(entries: &mut [E]) {
    team::rouse();
    entries.par_chunks_mut(RUN).filter(|_| !is_stopped()).for_each(|run| run.sort_unstable());
    if is_stopped() {
        return;
    }
    let mut scratch = Vec::new();
    if scratch.try_reserve_exact(entries.len()).is_err() {
        // Slower to interrupt, but in place.
        return entries.par_sort_unstable();
    }
    scratch.extend_from_slice(entries);
    let (mut from, mut to) = (&mut *entries, &mut scratch[..]);
    let (mut width, mut is_swapped) = (RUN, false);
    while width < from.len() && !is_stopped() {
        from.par_chunks(2 * width).zip(to.par_chunks_mut(2 * width)).for_each(|(pair, out)| merge(pair, width, out));
        std::mem::swap(&mut from, &mut to);
        width *= 2;
        is_swapped = !is_swapped;
    }
    if is_swapped && !is_stopped() {
        to.copy_from_slice(from);
    }
}

/// Merges the sorted runs on both sides of `middle`.
fn merge<E: Copy + Ord>(pair: &[E], middle: usize, out: &mut [E]) {
    let (left, right) = pair.split_at(middle.min(pair.len()));
    let (mut l, mut r) = (0, 0);
    for block in out.chunks_mut(RUN) {
        if is_stopped() {
            return;
        }
        for slot in block {
            let takes_left = r == right.len() || (l < left.len() && left[l] < right[r]);
            *slot = if takes_left { left[l] } else { right[r] };
            l += usize::from(takes_left);
            r += usize::from(!takes_left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::sample::{Draw, Sample, same};
    use super::*;

    #[test]
    fn runs_are_merged() {
        for n in [RUN, RUN + 1, 2 * RUN + 17, 3 * RUN] {
            let mut entries: Vec<u64> = (0..n as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7).collect();
            let mut expected = entries.clone();
            expected.sort_unstable();
            sort_in_runs(&mut entries);
            assert!(entries == expected, "{n}");
        }
    }

    const SPECIAL: [f64; 6] = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, -1.5];

    /// A stable sort with NaN as the largest.
    fn naive(row: &[f64], descending: bool) -> Vec<usize> {
        let mut at: Vec<usize> = (0..row.len()).collect();
        at.sort_by(|&i, &j| match (row[i].is_nan(), row[j].is_nan()) {
            (false, false) => {
                let order = row[i].partial_cmp(&row[j]).unwrap();
                if descending { order.reverse() } else { order }
            }
            (a, b) if descending => b.cmp(&a),
            (a, b) => a.cmp(&b),
        });
        at
    }

    fn check(x: &Sample, descending: bool) -> bool {
        let (values, positions) = (Sample::zeros(x.dtype, &x.shape), Sample::zeros(DType::I64, &x.shape));
        run(descending, &[x.view()], &[values.view(), positions.view()], &[]).unwrap();
        let (from, n) = (x.values(), x.shape.last().copied().unwrap_or(1).max(1));
        let order: Vec<usize> = from.chunks(n).flat_map(|row| naive(row, descending)).collect();
        let expected: Vec<f64> = order.iter().enumerate().map(|(i, &at)| from[i / n * n + at]).collect();
        same(&values.values(), &expected) && positions.values().iter().zip(&order).all(|(&a, &b)| a as usize == b)
    }

    proptest::proptest! {
        #[test]
        fn sorts(seed: u64, rank in 0usize..4, dtype in 0usize..8, descending: bool) {
            let mut draw = Draw(seed);
            let shape = draw.shape(rank);
            let dtype = DType::ALL[dtype];
            let value = |d: &mut Draw| match (dtype.is_float(), d.below(3)) {
                (true, 0) => SPECIAL[d.below(6)],
                (false, 0) if dtype == DType::I32 => f64::from([i32::MIN, i32::MAX][d.below(2)]),
                (false, 0) if dtype == DType::I64 => [i64::MIN as f64, i64::MAX as f64][d.below(2)],
                _ => d.below(9) as f64 - if dtype == DType::U8 { 0.0 } else { 4.0 },
            };
            let x = Sample::strided(&mut draw, dtype, &shape, value);
            proptest::prop_assert!(check(&x, descending));
        }
    }

    #[test]
    fn long_rows_and_many_rows() {
        let mut draw = Draw(5);
        for shape in [vec![70_001], vec![300, 500], vec![3]] {
            let x =
                Sample::of(DType::F32, &shape, &(0..shape.iter().product()).map(|_| draw.below(5000) as f64).collect::<Vec<_>>());
            assert!(check(&x, false) && check(&x, true));
        }
    }
}
