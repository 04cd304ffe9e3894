//! `TakeAlong` and `ScatterAlong`: one index for each element, along one axis.
use super::copy::fill_from;
use super::index::Indices;
use super::scatter::{Add, Join, Truth, by_sum};
use super::view::{Collapsed, View, collapse};
use super::walk::{by_size, runs, split};
use crate::backend::op::Indexed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{self, Shape};
use half::{bf16, f16};
use smallvec::SmallVec;

/// Whether the index tensor has the other tensor's sizes except along the axis.
fn fits(axis: usize, x: &View, idx: &View) -> bool {
    let same = |(i, (a, b)): (usize, (&usize, &usize))| i == axis || a == b;
    axis < x.shape.len() && x.shape.len() == idx.shape.len() && x.shape.iter().zip(idx.shape).enumerate().all(same)
}

/// The strides with that of one axis, which the indices walk, set to zero.
fn without(axis: usize, strides: &[isize]) -> SmallVec<[isize; 4]> {
    strides.iter().enumerate().map(|(i, &s)| if i == axis { 0 } else { s }).collect()
}

/// `TakeAlong(axis)`: inputs x and idx (same rank, equal sizes except along the axis): NumPy's `take_along_axis`.
pub fn run_take(at: Indexed, ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let axis = at.n;
    let ([x, idx], [out]) = (ins, outs) else { return Err(Error::Internal("take_along_axis: operands")) };
    if !fits(axis, x, idx) || out.shape != idx.shape || out.dtype != x.dtype {
        return Err(Error::Internal("take_along_axis: shapes"));
    }
    let views = [*idx];
    let indices = Indices::new(("take_along_axis", at.by), &views, axis, &x.shape[axis..=axis], &x.strides[axis..=axis])?;
    let walk = collapse(idx.shape, [&without(axis, x.strides)]);
    let size = x.dtype.size_bytes();
    let done = split(out.elems(), size, |range| {
        indices.chunks(range, |at, offsets| {
            by_size!(size, take(x, out, &walk, at, offsets));
            Ok(())
        })
    });
    indices.first_error(done)
}

/// Takes the elements for the positions of `out` from `at` on; elements have the width of `T`.
fn take<T: Copy>(x: &View, out: &View, walk: &Collapsed<1>, at: usize, offsets: &[isize]) {
    let (from, to) = (x.as_ptr::<T>().cast_const(), out.as_ptr::<T>());
    let step = walk.strides[0].last().copied().unwrap_or(0);
    runs(&walk.shape, [&walk.strides[0]], at..at + offsets.len(), |flat, [base], run| {
        for (i, &offset) in offsets[flat - at..][..run].iter().enumerate() {
            // SAFETY: `base` walks x at index 0 of the axis and the offset along the axis was checked; `flat + i` is inside `out`.
            unsafe { *to.add(flat + i) = *from.offset(base + i as isize * step + offset) }
        }
    });
}

/// `ScatterAlong(axis)`: inputs x, idx, v (shaped as idx, any strides): x with v added at idx along the axis, repeated indices in
/// index order. Each sum of 16-bit floats is computed in f32 and rounded to nearest.
pub fn run_scatter(at: Indexed, ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let axis = at.n;
    let ([x, idx, v], [out]) = (ins, outs) else { return Err(Error::Internal("scatter_along_axis: operands")) };
    if !fits(axis, out, idx) || v.shape != idx.shape || v.dtype != out.dtype {
        return Err(Error::Internal("scatter_along_axis: shapes"));
    }
    let to = shape::strides(out.shape);
    let views = [*idx];
    // An in-place scatter must not stop half-way, so every index is checked before the first write.
    Indices::new((NAME, at.by), &views, axis, &out.shape[axis..=axis], &to[axis..=axis])?.check()?;
    fill_from(x, out)?;
    if idx.elems() == 0 {
        return Ok(());
    }
    // Threads share out another axis: no two of them then meet in an element of the output.
    let Some(other) = (0..idx.shape.len()).filter(|&i| i != axis).max_by_key(|&i| idx.shape[i]) else {
        return by_sum!(out.dtype, add(at, idx, v, out, &to));
    };
    let each = idx.elems() / idx.shape[other] * out.dtype.size_bytes();
    split(idx.shape[other], each, |range| {
        let sized = |shape: &[usize]| -> Shape {
            shape.iter().enumerate().map(|(i, &d)| if i == other { range.len() } else { d }).collect()
        };
        let (part, part_out) = (sized(idx.shape), sized(out.shape));
        let from = |view: &View, stride: isize| {
            let bytes = range.start as isize * stride * view.dtype.size_bytes() as isize;
            view.ptr.wrapping_offset(bytes)
        };
        let idx = View { ptr: from(idx, idx.strides[other]), shape: &part, ..*idx };
        let v = View { ptr: from(v, v.strides[other]), shape: &part, ..*v };
        let out = View { ptr: from(out, to[other]), shape: &part_out, ..*out };
        by_sum!(out.dtype, add(at, &idx, &v, &out, &to))
    })
}

const NAME: &str = "scatter_along_axis";

/// Adds v to the window `out` with strides `to`, in row-major order of idx.
fn add<J: Join>(at: Indexed, idx: &View, v: &View, out: &View, to: &[isize]) -> Result<()> {
    let (axis, by) = (at.n, at.by);
    let views = [*idx];
    let indices = Indices::new((NAME, by), &views, axis, &out.shape[axis..=axis], &to[axis..=axis])?;
    let walk = collapse(idx.shape, [&without(axis, to), v.strides]);
    let [steps_to, steps_v] = [0, 1].map(|k| walk.strides[k].last().copied().unwrap_or(0));
    let (sum, from) = (out.as_ptr::<J::Elem>(), v.as_ptr::<J::Elem>().cast_const());
    indices.chunks(0..indices.count(), |at, offsets| {
        runs(&walk.shape, [&walk.strides[0], &walk.strides[1]], at..at + offsets.len(), |flat, [base, source], run| {
            for (i, &offset) in offsets[flat - at..][..run].iter().enumerate() {
                let i = i as isize;
                // SAFETY: `base` walks the output at index 0 of the axis and the offset along the axis was checked; the source
                // walks v.
                unsafe {
                    let to = sum.offset(base + i * steps_to + offset);
                    *to = J::close(J::join(J::open(*to), *from.offset(source + i * steps_v)));
                }
            }
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::walk::sample::{Draw, Sample, coordinates, position};
    use super::*;

    fn draw_case(draw: &mut Draw, rank: usize) -> (usize, Vec<usize>, Sample, Vec<usize>) {
        let axis = draw.below(rank);
        let mut shape = draw.shape(rank);
        shape[axis] = shape[axis].max(1);
        let mut of = shape.clone();
        of[axis] = draw.below(6);
        let size = shape[axis];
        let dtype = [DType::U8, DType::I32, DType::I64][draw.below(3)];
        let low = if dtype == DType::U8 { 0 } else { size };
        let idx = Sample::strided(draw, dtype, &of, |d| d.below(size + low) as f64 - low as f64);
        let named = (idx.values().iter().enumerate())
            .map(|(i, &v)| {
                let mut at = coordinates(&of, i);
                at[axis] = (if v < 0.0 { v + size as f64 } else { v }) as usize;
                position(&shape, &at)
            })
            .collect();
        (axis, shape, idx, named)
    }

    proptest::proptest! {
        #[test]
        fn takes(seed: u64, rank in 1usize..5, dtype in 0usize..8) {
            let mut draw = Draw(seed);
            let (axis, shape, idx, named) = draw_case(&mut draw, rank);
            let x = Sample::strided(&mut draw, DType::ALL[dtype], &shape, |d| d.below(200) as f64);
            let out = Sample::zeros(x.dtype, &idx.shape);
            run_take(axis.into(), &[x.view(), idx.view()], &[out.view()], &[]).unwrap();
            let from = x.values();
            proptest::prop_assert_eq!(out.values(), named.iter().map(|&p| from[p]).collect::<Vec<_>>());
        }

        #[test]
        fn scatters(seed: u64, rank in 1usize..5, dtype in 0usize..8) {
            let mut draw = Draw(seed);
            let (axis, shape, idx, named) = draw_case(&mut draw, rank);
            let dtype = DType::ALL[dtype];
            let x = Sample::strided(&mut draw, dtype, &shape, |d| d.below(3) as f64);
            let v = Sample::strided(&mut draw, dtype, &idx.shape, |d| d.below(4) as f64);
            let out = Sample::zeros(dtype, &shape);
            run_scatter(axis.into(), &[x.view(), idx.view(), v.view()], &[out.view()], &[]).unwrap();
            let mut expected = x.values();
            for (&p, value) in named.iter().zip(v.values()) {
                expected[p] = if dtype == DType::Bool { expected[p].max(value) } else { expected[p] + value };
            }
            proptest::prop_assert_eq!(out.values(), expected);
        }
    }

    #[test]
    fn large_ones_are_split_right() {
        for (axis, shape, of) in [(1, [3000, 100], [3000, 90]), (0, [50, 3000], [90, 3000]), (1, [200_000, 3], [200_000, 1])] {
            let size = shape[axis];
            let mut draw = Draw(9);
            let idx = Sample::strided(&mut Draw(0), DType::I64, &of, |_| draw.below(size) as f64);
            let x = Sample::of(DType::F32, &shape, &(0..shape[0] * shape[1]).map(|i| (i % 1009) as f64).collect::<Vec<_>>());
            let (taken, out) = (Sample::zeros(DType::F32, &of), Sample::zeros(DType::F32, &shape));
            run_take(axis.into(), &[x.view(), idx.view()], &[taken.view()], &[]).unwrap();
            run_scatter(axis.into(), &[x.view(), idx.view(), taken.view()], &[out.view()], &[]).unwrap();
            let (from, mut expected) = (x.values(), x.values());
            for (i, &at) in idx.values().iter().enumerate() {
                let mut c = coordinates(&of, i);
                c[axis] = at as usize;
                expected[position(&shape, &c)] += from[position(&shape, &c)];
            }
            assert!(out.values() == expected);
        }
    }

    #[test]
    fn bad_indices_are_errors() {
        let x = Sample::zeros(DType::F32, &[2, 3]);
        let idx = Sample::of(DType::I32, &[2, 1], &[0.0, 3.0]);
        let out = Sample::zeros(DType::F32, &[2, 1]);
        let message = |e: Error| e.to_string();
        let error = run_take(1.into(), &[x.view(), idx.view()], &[out.view()], &[]).map_err(message);
        assert_eq!(error, Err("take_along_axis: index 3 is out of range for axis 1 of size 3".into()));
        let error = run_scatter(1.into(), &[x.view(), idx.view(), out.view()], &[x.view()], &[]).map_err(message);
        assert_eq!(error, Err("scatter_along_axis: index 3 is out of range for axis 1 of size 3".into()));
    }
}
