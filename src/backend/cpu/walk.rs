//! How index kernels walk strided operands: runs along the innermost axis, and flat ranges split over threads.
use super::interrupt::is_stopped;
use super::parallel;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes moved below which a second thread costs more than it brings.
pub(super) const PARALLEL_BYTES: usize = 512 << 10;
/// Bytes moved that are worth a task of their own.
pub(super) const TASK_BYTES: usize = 128 << 10;
/// Positions that are looked up at a time, into a buffer on the stack.
pub(super) const CHUNK: usize = 128;

/// Visits the row-major positions `range` of `shape` as runs along the innermost axis: `visit(position, offsets, length)`, where the
/// offsets of the `N` operands are in elements. `shape` has at least one axis and, unless the range is empty, no axis of size zero.
pub(super) fn try_runs<const N: usize>(
    shape: &[usize],
    strides: [&[isize]; N],
    range: Range<usize>,
    mut visit: impl FnMut(usize, [isize; N], usize) -> Result<()>,
) -> Result<()> {
    let Some(last) = shape.len().checked_sub(1) else { return Ok(()) };
    if range.is_empty() {
        return Ok(());
    }
    let mut at: SmallVec<[usize; 8]> = SmallVec::from_elem(0, shape.len());
    let mut offsets = [0isize; N];
    let mut rest = range.start;
    for i in (0..=last).rev() {
        at[i] = rest % shape[i];
        rest /= shape[i];
        for k in 0..N {
            offsets[k] += at[i] as isize * strides[k][i];
        }
    }
    let mut flat = range.start;
    loop {
        let run = (shape[last] - at[last]).min(range.end - flat);
        visit(flat, offsets, run)?;
        flat += run;
        if flat >= range.end {
            return Ok(());
        }
        // Only the first run can start inside a row; later ones step from row start to row start.
        for k in 0..N {
            offsets[k] -= at[last] as isize * strides[k][last];
        }
        at[last] = 0;
        for i in (0..last).rev() {
            at[i] += 1;
            let wraps = at[i] == shape[i];
            let step = if wraps { 1 - shape[i] as isize } else { 1 };
            for k in 0..N {
                offsets[k] += step * strides[k][i];
            }
            if !wraps {
                break;
            }
            at[i] = 0;
        }
    }
}

/// `try_runs` for a visitor that cannot fail.
pub(super) fn runs<const N: usize>(
    shape: &[usize],
    strides: [&[isize]; N],
    range: Range<usize>,
    mut visit: impl FnMut(usize, [isize; N], usize),
) {
    let done = try_runs(shape, strides, range, |flat, offsets, run| {
        visit(flat, offsets, run);
        Ok(())
    });
    debug_assert!(done.is_ok());
}

/// An error once the user's interrupt was seen.
fn poll_stop() -> Result<()> {
    if is_stopped() { Err(Error::Interrupted) } else { Ok(()) }
}

/// Runs `work` over `0..n`, in parallel when all of it moves enough bytes (`each` is what one of the `n` moves).
pub(super) fn split(n: usize, each: usize, work: impl Fn(Range<usize>) -> Result<()> + Sync) -> Result<()> {
    if n < 2 || n.saturating_mul(each) < PARALLEL_BYTES {
        return work(0..n);
    }
    let grain = (TASK_BYTES / each.max(1)).max(1);
    let failed = Mutex::new(None);
    parallel::for_each(n.div_ceil(grain), |i| {
        if let Err(error) = work(i * grain..((i + 1) * grain).min(n)) {
            failed.lock().get_or_insert(error);
        }
    });
    poll_stop()?;
    failed.into_inner().map_or(Ok(()), Err)
}

/// Calls a function that is generic over an unsigned integer of the given size: code that only moves values is compiled once a size.
macro_rules! by_size {
    ($size:expr, $call:ident $(:: $rest:ident)* ($($arg:expr),* $(,)?)) => {
        match $size {
            1 => $call $(:: $rest)* ::<u8>($($arg),*),
            2 => $call $(:: $rest)* ::<u16>($($arg),*),
            4 => $call $(:: $rest)* ::<u32>($($arg),*),
            _ => $call $(:: $rest)* ::<u64>($($arg),*),
        }
    };
}
pub(super) use by_size;

/// Strided tensors of any dtype for tests, and what they hold as f64.
#[cfg(test)]
pub(super) mod sample {
    use super::super::view::View;
    use crate::dtype::DType;
    use half::{bf16, f16};

    /// A tensor that owns memory around its elements.
    #[derive(Clone, Debug)]
    pub struct Sample {
        pub bytes: Vec<u64>,
        pub dtype: DType,
        pub shape: Vec<usize>,
        pub strides: Vec<isize>,
        pub offset: usize,
    }

    /// A small generator: tests need spread, not quality.
    pub struct Draw(pub u64);

    impl Draw {
        pub fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 33) as usize) % n.max(1)
        }

        /// A shape of the given rank: 0 rarely, else 1, primes and odd sizes.
        pub fn shape(&mut self, rank: usize) -> Vec<usize> {
            (0..rank)
                .map(|_| [1, 2, 3, 5, 7, 9, 17, 1, 3, 2, 8, 0][self.below(if self.0.is_multiple_of(3) { 12 } else { 11 })])
                .collect()
        }
    }

    fn store(dtype: DType, to: *mut u8, v: f64) {
        unsafe {
            match dtype {
                DType::Bool => *to = u8::from(v != 0.0),
                DType::U8 => *to = v as i64 as u8,
                DType::I32 => *to.cast::<i32>() = v as i32,
                DType::I64 => *to.cast::<i64>() = v as i64,
                DType::F16 => *to.cast::<f16>() = f16::from_f64(v),
                DType::BF16 => *to.cast::<bf16>() = bf16::from_f64(v),
                DType::F32 => *to.cast::<f32>() = v as f32,
                DType::F64 => *to.cast::<f64>() = v,
            }
        }
    }

    fn load(dtype: DType, from: *const u8) -> f64 {
        unsafe {
            match dtype {
                DType::Bool | DType::U8 => f64::from(*from),
                DType::I32 => f64::from(*from.cast::<i32>()),
                DType::I64 => *from.cast::<i64>() as f64,
                DType::F16 => (*from.cast::<f16>()).to_f64(),
                DType::BF16 => (*from.cast::<bf16>()).to_f64(),
                DType::F32 => f64::from(*from.cast::<f32>()),
                DType::F64 => *from.cast::<f64>(),
            }
        }
    }

    impl Sample {
        /// Row-major, zeros.
        pub fn zeros(dtype: DType, shape: &[usize]) -> Sample {
            let n = shape.iter().product::<usize>();
            let strides = crate::shape::strides(shape).to_vec();
            Sample { bytes: vec![0; n + 1], dtype, shape: shape.to_vec(), strides, offset: 0 }
        }

        /// Row-major with these values.
        pub fn of(dtype: DType, shape: &[usize], values: &[f64]) -> Sample {
            let out = Sample::zeros(dtype, shape);
            let size = dtype.size_bytes();
            values
                .iter()
                .enumerate()
                .for_each(|(i, &v)| store(dtype, out.bytes.as_ptr().cast::<u8>().cast_mut().wrapping_add(i * size), v));
            out
        }

        /// Axes in random memory order; each dense, with step 2, reversed or broadcast.
        pub fn strided(draw: &mut Draw, dtype: DType, shape: &[usize], mut value: impl FnMut(&mut Draw) -> f64) -> Sample {
            let mut out = Sample::zeros(dtype, shape);
            let mut order: Vec<usize> = (0..shape.len()).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, draw.below(i + 1));
            }
            if draw.below(2) == 0 {
                order.sort_unstable();
            }
            let mut total = 1usize;
            for &a in order.iter().rev() {
                let s = total as isize;
                let kind = draw.below(8);
                out.strides[a] = [s, s, s, s, s, 2 * s, -s, 0][kind];
                if kind == 6 {
                    out.offset += shape[a].saturating_sub(1) * total;
                }
                total *= [shape[a], shape[a], shape[a], shape[a], shape[a], 2 * shape[a], shape[a], 1][kind].max(1);
            }
            out.bytes = vec![0; total + 1];
            let size = dtype.size_bytes();
            for i in 0..total {
                store(dtype, out.bytes.as_mut_ptr().cast::<u8>().wrapping_add(i * size), value(draw));
            }
            out
        }

        pub fn view(&self) -> View<'_> {
            let ptr = self.bytes.as_ptr().cast::<u8>().cast_mut().wrapping_add(self.offset * self.dtype.size_bytes());
            View { ptr, dtype: self.dtype, shape: &self.shape, strides: &self.strides }
        }

        /// The elements in row-major order.
        pub fn values(&self) -> Vec<f64> {
            let mut at = vec![0isize];
            for (&d, &s) in self.shape.iter().zip(&self.strides) {
                at = at.iter().flat_map(|&o| (0..d as isize).map(move |i| o + i * s)).collect();
            }
            let size = self.dtype.size_bytes() as isize;
            at.iter().map(|&o| load(self.dtype, self.view().ptr.wrapping_offset(o * size))).collect()
        }
    }

    /// The coordinates of a row-major position.
    pub fn coordinates(shape: &[usize], mut flat: usize) -> Vec<usize> {
        let mut out = vec![0; shape.len()];
        for i in (0..shape.len()).rev() {
            out[i] = flat % shape[i];
            flat /= shape[i];
        }
        out
    }

    /// The row-major position of coordinates.
    pub fn position(shape: &[usize], at: &[usize]) -> usize {
        shape.iter().zip(at).fold(0, |f, (&d, &i)| f * d + i)
    }

    /// Equal bit for bit, NaN included.
    pub fn same(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()))
    }
}
