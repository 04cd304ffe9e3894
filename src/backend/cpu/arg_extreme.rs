//! `ArgExtreme`: the position of the largest or smallest element along an axis, the first of equal ones; NaN wins.
use super::order::{Ordered, by_order};
use super::view::{Collapsed, View, collapse};
use super::walk::{CHUNK, runs, split};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{Shape, elems};
use smallvec::SmallVec;
use std::ops::Range;

/// Elements looked at together: their keys need no order among each other.
const LANES: usize = 16;

/// Writes the int64 positions along `axis`, which is dropped from the output.
pub fn run(is_max: bool, axis: usize, ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let ([x], [out]) = (ins, outs) else { return Err(Error::Internal("argmax: operands")) };
    if axis >= x.shape.len() || out.dtype != DType::I64 {
        return Err(Error::Internal("argmax: axis or output"));
    }
    let drop = |i: &usize| *i != axis;
    let shape: Shape = (0..x.shape.len()).filter(drop).map(|i| x.shape[i]).collect();
    let strides: SmallVec<[isize; 4]> = (0..x.shape.len()).filter(drop).map(|i| x.strides[i]).collect();
    if out.elems() != elems(&shape) {
        return Err(Error::Internal("argmax: output shape"));
    }
    if out.elems() == 0 {
        return Ok(());
    }
    let search = Search { is_max, n: x.shape[axis], step: x.strides[axis], outer: collapse(&shape, [&strides]) };
    if search.n == 0 {
        return Err(Error::value(
            if is_max { "argmax" } else { "argmin" },
            format!("axis {axis} of shape {:?} is empty", x.shape),
        ));
    }
    split(out.elems(), search.n * x.dtype.size_bytes(), |range| {
        by_order!(x.dtype, part(&search, x, out, range));
        Ok(())
    })
}

/// What to look for, and where the lines along the axis start.
struct Search {
    is_max: bool,
    n: usize,
    step: isize,
    outer: Collapsed<1>,
}

/// Searches the lines in `range`.
fn part<T: Ordered>(search: &Search, x: &View, out: &View, range: Range<usize>) {
    let (x, out) = (x.as_ptr::<T>().cast_const(), out.as_ptr::<i64>());
    let across = search.outer.strides[0].last().copied().unwrap_or(0);
    // Memory is read in the order in which it lies: line by line, or step by step for many lines at once.
    let by_line = search.step.unsigned_abs() <= across.unsigned_abs() || across == 0;
    runs(&search.outer.shape, [&search.outer.strides[0]], range, |flat, [from], run| {
        let mut done = 0;
        while done < run {
            let many = if by_line || run - done == 1 { 1 } else { CHUNK.min(run - done) };
            // SAFETY: the lines lie in x, and their outputs belong to this task.
            unsafe {
                let (from, to) = (x.offset(from + done as isize * across), out.add(flat + done));
                match many {
                    1 if search.step == 1 => *to = in_slice(search.is_max, std::slice::from_raw_parts(from, search.n)) as i64,
                    _ => columns(search, from, across, std::slice::from_raw_parts_mut(to, many)),
                }
            }
            done += many;
        }
    });
}

/// The first position with the largest key of a dense line.
fn in_slice<T: Ordered>(is_max: bool, line: &[T]) -> usize {
    if line.len() < 2 * LANES {
        let keys = line.iter().map(|x| x.key(!is_max)).enumerate();
        return keys.reduce(|best, next| if next.1 > best.1 { next } else { best }).map_or(0, |(i, _)| i);
    }
    // First the largest key, then where it is: two simple passes that the compiler can vectorize.
    let mut best = [T::LEAST; LANES];
    let blocks = line.chunks_exact(LANES);
    let mut most = blocks.remainder().iter().fold(T::LEAST, |m, x| m.max(x.key(!is_max)));
    for block in blocks {
        for (b, x) in best.iter_mut().zip(block) {
            *b = (*b).max(x.key(!is_max));
        }
    }
    for b in best {
        most = most.max(b);
    }
    let is_best = |x: &T| x.key(!is_max) == most;
    let block = line.chunks(LANES).position(|block| block.iter().fold(false, |any, x| any | is_best(x))).unwrap_or(0);
    block * LANES + line[block * LANES..].iter().position(is_best).unwrap_or(0)
}

/// Searches `to.len()` (at most `CHUNK`) lines side by side, the first at `from` and the next ones `across` further on each.
///
/// # Safety
/// All elements of the lines are readable.
unsafe fn columns<T: Ordered>(search: &Search, from: *const T, across: isize, to: &mut [i64]) {
    let mut best = [T::LEAST; CHUNK];
    for j in 0..search.n {
        // SAFETY: as the caller promised.
        let row = unsafe { from.offset(j as isize * search.step) };
        for (c, (to, best)) in to.iter_mut().zip(&mut best).enumerate() {
            // SAFETY: as the caller promised.
            let key = unsafe { *row.offset(c as isize * across) }.key(!search.is_max);
            if key > *best || j == 0 {
                (*best, *to) = (key, j as i64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::sample::{Draw, Sample, coordinates, position};
    use super::*;

    fn naive(x: &Sample, is_max: bool, axis: usize) -> Vec<usize> {
        let (from, mut rest) = (x.values(), x.shape.clone());
        rest.remove(axis);
        let find = |i| {
            let at = |j| {
                let mut at = coordinates(&rest, i);
                at.insert(axis, j);
                from[position(&x.shape, &at)]
            };
            (0..x.shape[axis]).reduce(|best, j| {
                let (a, b) = (at(best), at(j));
                let wins = !a.is_nan() && (b.is_nan() || if is_max { b > a } else { b < a });
                if wins { j } else { best }
            })
        };
        (0..rest.iter().product()).map(|i| find(i).unwrap()).collect()
    }

    fn check(x: &Sample, is_max: bool, axis: usize) -> bool {
        let mut rest = x.shape.clone();
        rest.remove(axis);
        let out = Sample::zeros(DType::I64, &rest);
        run(is_max, axis, &[x.view()], &[out.view()], &[]).unwrap();
        out.values().iter().zip(naive(x, is_max, axis)).all(|(&a, b)| a as usize == b)
    }

    proptest::proptest! {
        #[test]
        fn finds_the_first(seed: u64, rank in 1usize..5, dtype in 0usize..8, is_max: bool, large in 0usize..4) {
            let mut draw = Draw(seed);
            let axis = draw.below(rank);
            let mut shape = draw.shape(rank);
            shape[axis] = if large == 0 { 53 } else { shape[axis].max(1) };
            let dtype = DType::ALL[dtype];
            let special = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, -1.5];
            let value = |d: &mut Draw| match (dtype.is_float(), d.below(12)) {
                (true, 0) => special[d.below(6)],
                (true, 1) => special[1 + d.below(2)],
                (false, 0) if dtype == DType::I32 => f64::from([i32::MIN, i32::MAX][d.below(2)]),
                _ => d.below(9) as f64 - if dtype == DType::U8 { 0.0 } else { 4.0 },
            };
            let x = Sample::strided(&mut draw, dtype, &shape, value);
            proptest::prop_assert!(check(&x, is_max, axis));
        }
    }

    #[test]
    fn large_ones_are_split_right() {
        let mut draw = Draw(5);
        let n = 600 * 700;
        let x = Sample::of(DType::F32, &[600, 700], &(0..n).map(|_| draw.below(5000) as f64).collect::<Vec<_>>());
        for axis in 0..2 {
            assert!(check(&x, true, axis) && check(&x, false, axis));
        }
    }

    #[test]
    fn an_empty_axis_is_an_error() {
        let (x, out) = (Sample::zeros(DType::F32, &[2, 0]), Sample::zeros(DType::I64, &[2]));
        assert_eq!(run(true, 1, &[x.view()], &[out.view()], &[]).unwrap_err().code(), "value");
    }
}
