//! Strided reads of a linear range of elements into contiguous memory.
use smallvec::SmallVec;

/// A strided source whose axes are merged.
pub struct Strided {
    /// Sizes, none of them zero.
    pub shape: SmallVec<[usize; 4]>,
    /// Steps, in elements.
    pub strides: SmallVec<[isize; 4]>,
}

impl Strided {
    /// The offset of the element with a linear (row-major) index, in elements, and its position on the last axis.
    pub fn locate(&self, mut linear: usize) -> (isize, usize) {
        let mut offset = 0;
        let mut inner = linear;
        for (k, (&d, &s)) in self.shape.iter().zip(&self.strides).enumerate().rev() {
            let at = linear % d;
            linear /= d;
            offset += at as isize * s;
            if k + 1 == self.shape.len() {
                inner = at;
            }
        }
        (offset, inner)
    }

    /// Rows from the one that starts at a linear index to the end of its matrix, the last two axes.
    pub fn rows_left(&self, linear: usize) -> usize {
        let rank = self.shape.len();
        let rows = if rank < 2 { 1 } else { self.shape[rank - 2] };
        rows - linear / self.inner().0 % rows
    }

    /// Size and step of the last axis.
    pub fn inner(&self) -> (usize, isize) {
        (self.shape.last().copied().unwrap_or(1), self.strides.last().copied().unwrap_or(0))
    }
}

/// Copies elements `start .. start + n` (row-major) of `size` bytes to `dst`.
///
/// # Safety
/// The range lies within the source's shape, whose elements are readable from `base`; `dst` takes `n` elements.
pub unsafe fn gather(dst: *mut u8, base: *const u8, size: usize, from: &Strided, start: usize, n: usize) {
    // SAFETY: passed on.
    unsafe {
        match size {
            1 => gather_as::<u8>(dst, base, from, start, n),
            2 => gather_as::<u16>(dst.cast(), base.cast(), from, start, n),
            4 => gather_as::<u32>(dst.cast(), base.cast(), from, start, n),
            _ => gather_as::<u64>(dst.cast(), base.cast(), from, start, n),
        }
    }
}

unsafe fn gather_as<T: Copy>(dst: *mut T, base: *const T, from: &Strided, start: usize, n: usize) {
    let (shape, strides) = (&from.shape, &from.strides);
    let last = shape.len() - 1;
    let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, shape.len());
    let mut left = start;
    let mut offset = 0isize;
    for k in (0..=last).rev() {
        index[k] = left % shape[k];
        left /= shape[k];
        offset += index[k] as isize * strides[k];
    }
    let mut done = 0;
    while done < n {
        let run = (shape[last] - index[last]).min(n - done);
        // SAFETY: the run stays on the last axis and within the range, which the caller vouches for.
        unsafe { copy_run(dst.add(done), base.offset(offset), strides[last], run) };
        done += run;
        offset += run as isize * strides[last];
        index[last] += run;
        let mut k = last;
        while index[k] == shape[k] && k > 0 {
            offset -= shape[k] as isize * strides[k];
            index[k] = 0;
            k -= 1;
            index[k] += 1;
            offset += strides[k];
        }
    }
}

#[inline]
unsafe fn copy_run<T: Copy>(dst: *mut T, src: *const T, step: isize, n: usize) {
    // SAFETY: the caller vouches for `n` elements at both ends, which do not overlap.
    unsafe {
        match step {
            // A call to memcpy costs more than a few moves.
            1 if n < 8 => (0..n).for_each(|i| *dst.add(i) = *src.add(i)),
            1 => std::ptr::copy_nonoverlapping(src, dst, n),
            0 => std::slice::from_raw_parts_mut(dst, n).fill(*src),
            _ => (0..n).for_each(|i| *dst.add(i) = *src.offset(i as isize * step)),
        }
    }
}

/// Rows and columns of the squares that `gather_rows` turns at once: a cache line of f32.
const SQUARE: usize = 16;

/// Copies `rows` whole rows of a source whose neighbours lie along the second last axis (a transposed matrix), from the row with
/// offset `offset` on: squares at a time, so that each cache line is read once.
///
/// # Safety
/// As for `gather`; the rows are of one matrix.
pub unsafe fn gather_rows(dst: *mut u8, base: *const u8, size: usize, from: &Strided, offset: isize, rows: usize) {
    let src = base.wrapping_offset(offset * size as isize);
    // SAFETY: passed on.
    unsafe {
        match size {
            1 => gather_rows_as::<u8>(dst, src, from, rows),
            2 => gather_rows_as::<u16>(dst.cast(), src.cast(), from, rows),
            4 => gather_rows_as::<u32>(dst.cast(), src.cast(), from, rows),
            _ => gather_rows_as::<u64>(dst.cast(), src.cast(), from, rows),
        }
    }
}

unsafe fn gather_rows_as<T: Copy + Default>(dst: *mut T, src: *const T, from: &Strided, rows: usize) {
    let (cols, col_step) = from.inner();
    let row_step = from.strides[from.strides.len() - 2];
    for c0 in (0..cols).step_by(SQUARE) {
        for r0 in (0..rows).step_by(SQUARE) {
            let (w, h) = (SQUARE.min(cols - c0), SQUARE.min(rows - r0));
            let corner = src.wrapping_offset(c0 as isize * col_step + r0 as isize * row_step);
            let mut square = [[T::default(); SQUARE]; SQUARE];
            // SAFETY: `w` columns and `h` rows from the corner lie within the rows; `dst` takes all rows.
            unsafe {
                for c in 0..w {
                    let column = corner.offset(c as isize * col_step);
                    for (r, line) in square.iter_mut().enumerate().take(h) {
                        line[c] = *column.offset(r as isize * row_step);
                    }
                }
                for (r, line) in square.iter().enumerate().take(h) {
                    std::ptr::copy_nonoverlapping(line.as_ptr(), dst.add((r0 + r) * cols + c0), w);
                }
            }
        }
    }
}

/// Fills `n` elements at `dst` with the element of `size` bytes at `src`.
///
/// # Safety
/// `dst` takes `n` elements, `src` is readable.
pub unsafe fn fill(dst: *mut u8, src: *const u8, size: usize, n: usize) {
    // SAFETY: passed on; scratch and tensors are aligned to their elements.
    unsafe {
        match size {
            1 => copy_run(dst, src, 0, n),
            2 => copy_run(dst.cast::<u16>(), src.cast(), 0, n),
            4 => copy_run(dst.cast::<u32>(), src.cast(), 0, n),
            _ => copy_run(dst.cast::<u64>(), src.cast(), 0, n),
        }
    }
}
