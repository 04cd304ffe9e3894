//! Index tensors: reading and checking them, and `Gather`.
use super::copy::Move;
use super::view::{Collapsed, View, collapse};
use super::walk::{CHUNK, PARALLEL_BYTES, by_size, split, try_runs};
use crate::backend::kind::Caller;
use crate::backend::op::Indexed;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape;
use smallvec::SmallVec;
use std::ops::Range;

/// Index tensors of one shape I (uint8, int32 or int64; any strides) into neighbouring axes of a tensor.
pub(super) struct Indices<'a> {
    op: &'static str,
    by: Caller,
    views: &'a [View<'a>],
    /// The axis of the tensor that the first index tensor counts along.
    axis: usize,
    /// Sizes of the indexed axes.
    sizes: &'a [usize],
    /// What one step along each indexed axis adds to an offset.
    strides: &'a [isize],
    walks: SmallVec<[Collapsed<1>; 1]>,
}

impl<'a> Indices<'a> {
    /// Index tensors `views` for the axes from `axis` on, which have these sizes and strides.
    pub(super) fn new(
        (op, by): (&'static str, Caller),
        views: &'a [View<'a>],
        axis: usize,
        sizes: &'a [usize],
        strides: &'a [isize],
    ) -> Result<Indices<'a>> {
        let is_index = |v: &View| v.dtype.is_int() && v.shape == views[0].shape;
        if views.len() != sizes.len() || views.len() != strides.len() || !views.iter().all(is_index) {
            return Err(Error::Internal("index tensors: number, dtype or shape"));
        }
        let walks = views.iter().map(|v| collapse(v.shape, [v.strides])).collect();
        Ok(Indices { op: by.name_or(op), by, views, axis, sizes, strides, walks })
    }

    /// The shape I.
    pub(super) fn shape(&self) -> &'a [usize] {
        self.views.first().map_or(&[], |v| v.shape)
    }

    /// The number of positions in I.
    pub(super) fn count(&self) -> usize {
        shape::elems(self.shape())
    }

    /// Writes the offsets (in elements) that the row-major positions `range` of I name; `offsets` is as long as the range.
    pub(super) fn offsets(&self, range: Range<usize>, offsets: &mut [isize]) -> Result<()> {
        offsets.fill(0);
        for k in 0..self.views.len() {
            match self.views[k].dtype {
                DType::U8 => self.add::<u8>(k, range.clone(), offsets)?,
                DType::I32 => self.add::<i32>(k, range.clone(), offsets)?,
                _ => self.add::<i64>(k, range.clone(), offsets)?,
            }
        }
        Ok(())
    }

    /// Adds what the `k`-th index tensor contributes.
    fn add<T: Copy + Into<i64>>(&self, k: usize, range: Range<usize>, offsets: &mut [isize]) -> Result<()> {
        let (walk, ptr, first) = (&self.walks[k], self.views[k].as_ptr::<T>(), range.start);
        let (size, stride) = (self.sizes[k], self.strides[k]);
        let wrap = if self.by.counts_from_end() { size as i64 } else { 0 };
        let step = walk.strides[0].last().copied().unwrap_or(0);
        try_runs(&walk.shape, [&walk.strides[0]], range, |flat, [from], run| {
            for (i, offset) in offsets[flat - first..][..run].iter_mut().enumerate() {
                // SAFETY: the run lies inside the index tensor's view.
                let raw: i64 = unsafe { *ptr.offset(from + i as isize * step) }.into();
                let at = if raw < 0 { raw.wrapping_add(wrap) } else { raw };
                // A negative rest becomes a huge unsigned number.
                if at as u64 >= size as u64 {
                    return Err(self.out_of_range(raw, k));
                }
                *offset += at as isize * stride;
            }
            Ok(())
        })
    }

    #[cold]
    fn out_of_range(&self, index: i64, k: usize) -> Error {
        let (axis, size) = (self.axis + k, self.sizes[k]);
        let only = if self.by.counts_from_end() { "" } else { "; expected one that is smaller and not negative" };
        Error::index(self.op, format!("index {index} is out of range for axis {axis} of size {size}{only}"))
    }

    /// Fails if any index is out of range, naming the first in row-major order.
    pub(super) fn check(&self) -> Result<()> {
        self.chunks(0..self.count(), |_, _| Ok(()))
    }

    /// Calls `visit(position, offsets)` for the positions `range` of I, some at a time.
    pub(super) fn chunks(&self, range: Range<usize>, mut visit: impl FnMut(usize, &[isize]) -> Result<()>) -> Result<()> {
        let mut buffer = [0isize; CHUNK];
        let mut at = range.start;
        while at < range.end {
            let n = CHUNK.min(range.end - at);
            self.offsets(at..at + n, &mut buffer[..n])?;
            visit(at, &buffer[..n])?;
            at += n;
        }
        Ok(())
    }

    /// Replaces the error of a parallel run, whose thread happened to be first, by that of the first bad index.
    pub(super) fn first_error(&self, result: Result<()>) -> Result<()> {
        result.or_else(|error| self.check().and(Err(error)))
    }
}

/// `Gather(k)`: inputs x and k index tensors of shape I; out[I.., rest..] = x[idx1[I], .., idxk[I], rest..].
pub fn run(at: Indexed, ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let k = at.n;
    let ([x, views @ ..], [out]) = (ins, outs) else { return Err(Error::Internal("gather: operands")) };
    if views.len() != k || k > x.shape.len() || x.dtype != out.dtype {
        return Err(Error::Internal("gather: operands"));
    }
    let indices = Indices::new(("gather", at.by), views, 0, &x.shape[..k], &x.strides[..k])?;
    let rest = &x.shape[k..];
    if out.elems() != indices.count() * shape::elems(rest) {
        return Err(Error::Internal("gather: output shape"));
    }
    if out.elems() == 0 {
        return indices.check();
    }
    let size = x.dtype.size_bytes();
    let row = Move::new(size, rest, &x.strides[k..], &shape::strides(rest));
    if row.bytes() >= PARALLEL_BYTES {
        return indices.chunks(0..indices.count(), |at, offsets| {
            for (i, &offset) in offsets.iter().enumerate() {
                let from = x.ptr.wrapping_offset(offset * size as isize).cast_const();
                // SAFETY: the offset was checked against x; row at + i of the output is inside it.
                unsafe { row.run(from, out.ptr.add((at + i) * row.bytes())) };
            }
            Ok(())
        });
    }
    let done = split(indices.count(), row.bytes(), |range| {
        indices.chunks(range, |at, offsets| {
            by_size!(size, rows(x, out, &row, at, offsets));
            Ok(())
        })
    });
    indices.first_error(done)
}

/// Copies the rows of x at `offsets` to the rows of `out` from `at` on; elements have the width of `T`.
fn rows<T: Copy>(x: &View, out: &View, row: &Move, at: usize, offsets: &[isize]) {
    let from = x.as_ptr::<T>();
    let n = row.bytes() / size_of::<T>();
    // SAFETY: the offsets were checked against x, and each row of the output belongs to one position.
    unsafe {
        let to = out.as_ptr::<T>().add(at * n);
        match row.dense() {
            Some(1) => {
                for (i, &offset) in offsets.iter().enumerate() {
                    *to.add(i) = *from.offset(offset);
                }
            }
            Some(n) => {
                for (i, &offset) in offsets.iter().enumerate() {
                    std::ptr::copy_nonoverlapping(from.offset(offset), to.add(i * n), n);
                }
            }
            None => {
                for (i, &offset) in offsets.iter().enumerate() {
                    row.run_serial(from.offset(offset).cast(), to.add(i * n).cast());
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::walk::sample::{Draw, Sample, coordinates, position};
    use super::*;

    /// `k` index tensors of one shape for the leading axes of `shape`, with what they name.
    pub fn indices(draw: &mut Draw, k: usize, shape: &[usize], of: &[usize]) -> (Vec<Sample>, Vec<Vec<usize>>) {
        let samples: Vec<Sample> = (0..k)
            .map(|a| {
                let dtype = [DType::U8, DType::I32, DType::I64][draw.below(3)];
                let size = shape[a];
                let low = if dtype == DType::U8 { 0 } else { size };
                Sample::strided(draw, dtype, of, |d| d.below(size + low) as f64 - low as f64)
            })
            .collect();
        let wrap = |a: usize, v: f64| if v < 0.0 { (v + shape[a] as f64) as usize } else { v as usize };
        let count = of.iter().product();
        let values: Vec<Vec<f64>> = samples.iter().map(Sample::values).collect();
        let named = (0..count).map(|p| (0..k).map(|a| wrap(a, values[a][p])).collect()).collect();
        (samples, named)
    }

    /// A shape whose first `k` axes are not empty, and a shape of index tensors.
    pub fn shapes(draw: &mut Draw, rank: usize, k: usize) -> (Vec<usize>, Vec<usize>) {
        let mut shape = draw.shape(rank);
        shape[..k].iter_mut().for_each(|d| *d = (*d).max(1));
        let rank = draw.below(3);
        (shape, draw.shape(rank))
    }

    proptest::proptest! {
        #[test]
        fn gathers(seed: u64, rank in 0usize..4, dtype in 0usize..8) {
            let mut draw = Draw(seed);
            let k = draw.below(rank + 1);
            let (shape, mut of) = shapes(&mut draw, rank, k);
            if k == 0 { of.clear() }
            let x = Sample::strided(&mut draw, DType::ALL[dtype], &shape, |d| d.below(200) as f64);
            let (idx, named) = indices(&mut draw, k, &shape, &of);
            let out_shape: Vec<usize> = of.iter().chain(&shape[k..]).copied().collect();
            let out = Sample::zeros(x.dtype, &out_shape);
            let ins: Vec<View> = std::iter::once(x.view()).chain(idx.iter().map(Sample::view)).collect();
            run(k.into(), &ins, &[out.view()], &[]).unwrap();
            let (from, n) = (x.values(), shape[k..].iter().product::<usize>());
            let expected: Vec<f64> = (0..out_shape.iter().product()).map(|i| {
                let at: Vec<usize> = named[i / n].iter().copied().chain(coordinates(&shape[k..], i % n)).collect();
                from[position(&shape, &at)]
            }).collect();
            proptest::prop_assert_eq!(out.values(), expected);
        }
    }

    #[test]
    fn large_gathers_are_split_right_and_name_the_first_bad_index() {
        let n = 40_000;
        let x = Sample::of(DType::F32, &[50, 16], &(0..800).map(f64::from).collect::<Vec<_>>());
        let mut ids: Vec<f64> = (0..n).map(|i| (i * 7 % 50) as f64).collect();
        let out = Sample::zeros(DType::F32, &[n, 16]);
        let idx = Sample::of(DType::I32, &[n], &ids);
        run(1.into(), &[x.view(), idx.view()], &[out.view()], &[]).unwrap();
        let expected: Vec<f64> = (0..n * 16).map(|i| (i / 16 * 7 % 50 * 16 + i % 16) as f64).collect();
        assert!(out.values() == expected);
        (ids[39_000], ids[1_234]) = (70.0, -51.0);
        let idx = Sample::of(DType::I64, &[n], &ids);
        let error = run(1.into(), &[x.view(), idx.view()], &[out.view()], &[]).unwrap_err();
        assert_eq!(error.to_string(), "gather: index -51 is out of range for axis 0 of size 50");
        // Two huge rows: each is copied by several threads.
        let x = Sample::of(DType::F32, &[3, 300_000], &(0..900_000).map(f64::from).collect::<Vec<_>>());
        let out = Sample::zeros(DType::F32, &[2, 300_000]);
        run(1.into(), &[x.view(), Sample::of(DType::U8, &[2], &[2.0, 0.0]).view()], &[out.view()], &[]).unwrap();
        assert!(out.values() == [&x.values()[600_000..], &x.values()[..300_000]].concat());
    }

    #[test]
    fn bad_indices_are_errors_even_where_nothing_would_be_read() {
        for (shape, dtype, index) in [(vec![5, 0], DType::I64, 5.0), (vec![0], DType::U8, 0.0), (vec![3, 2], DType::I32, -4.0)] {
            let x = Sample::zeros(DType::F32, &shape);
            let idx = Sample::of(dtype, &[1], &[index]);
            let out = Sample::zeros(DType::F32, &[&[1], &shape[1..]].concat());
            assert_eq!(run(1.into(), &[x.view(), idx.view()], &[out.view()], &[]).unwrap_err().code(), "index");
        }
        let mut far = Sample::of(DType::I64, &[1], &[0.0]);
        for bits in [i64::MIN, i64::MAX] {
            far.bytes[0] = bits as u64;
            let x = Sample::zeros(DType::F32, &[3]);
            assert!(run(1.into(), &[x.view(), far.view()], &[Sample::zeros(DType::F32, &[1]).view()], &[]).is_err());
        }
    }
}
