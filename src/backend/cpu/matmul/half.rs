//! Products of 16-bit floats: blocks are converted to f32, multiplied there, and each sum is rounded once.
use super::Kernel;
use super::block::Product;
use super::room::{Room, Use};
use crate::backend::cpu::elementwise::isa::Isa;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Terms of each sum that are converted at a time.
const DEPTH: usize = 1024;

macro_rules! half_kernel {
    ($t:ty) => {
        impl Kernel for $t {
            const MOST: usize = 512;
            // The sums stay in f32 until they are complete.
            const TERMS: usize = usize::MAX;

            unsafe fn product(isa: Isa, p: &Product<'_, $t>) {
                let depth = DEPTH.min(p.k);
                let (a_elems, b_elems) = ((p.m * depth).next_multiple_of(16), (p.n * depth).next_multiple_of(16));
                let mut room = Room::new::<f32>(Use::Converted, a_elems + b_elems + p.m * p.n);
                let a = room.as_ptr::<f32>();
                let (b, c) = (a.wrapping_add(a_elems), a.wrapping_add(a_elems + b_elems));
                for p0 in (0..p.k).step_by(DEPTH) {
                    let part = p.terms(p0, DEPTH);
                    // SAFETY: the room holds m x depth, depth x n and m x n elements; the caller vouches for a and b.
                    unsafe {
                        let (a_row, a_col) = stage(part.a, part.a_row, part.a_col, part.m, part.k, a);
                        let (b_row, b_col) = stage(part.b, part.b_row, part.b_col, part.k, part.n, b);
                        let (m, n, k) = (part.m, part.n, part.k);
                        let add = p0 > 0;
                        let c_row = n as isize;
                        f32::product(isa, &Product { m, n, k, a, a_row, a_col, b, b_row, b_col, c, c_row, add, finished: None });
                    }
                }
                for i in 0..p.m {
                    // SAFETY: row i of c, which is ours, and of the sums; columns lie side by side.
                    unsafe {
                        let to = std::slice::from_raw_parts_mut(p.c.offset(i as isize * p.c_row), p.n);
                        let sums = std::slice::from_raw_parts(c.add(i * p.n), p.n);
                        to.convert_from_f32_slice(sums);
                    }
                }
                if let Some(finished) = p.finished {
                    finished(p.c, p.m, p.n);
                }
            }
        }
    };
}
half_kernel!(f16);
half_kernel!(bf16);

/// Converts a matrix to f32; gives the steps from row to row and from column to column of the result.
///
/// # Safety
/// The matrix is readable and `to` has room for it.
unsafe fn stage<H: Copy>(from: *const H, row: isize, col: isize, rows: usize, cols: usize, to: *mut f32) -> (isize, isize)
where
    [H]: HalfFloatSliceExt,
    f32: From<H>,
{
    // Runs follow the axis whose elements lie side by side in the source.
    let by_col = row == 1 && col != 1;
    let (lines, len, line_step, step) = if by_col { (cols, rows, col, row) } else { (rows, cols, row, col) };
    for l in 0..lines {
        // SAFETY: line l of the matrix and of the result.
        unsafe {
            let line = from.offset(l as isize * line_step);
            let out = std::slice::from_raw_parts_mut(to.add(l * len), len);
            if step == 1 {
                std::slice::from_raw_parts(line, len).convert_to_f32_slice(out);
            } else {
                out.iter_mut().enumerate().for_each(|(i, o)| *o = f32::from(*line.offset(i as isize * step)));
            }
        }
    }
    if by_col { (1, len as isize) } else { (len as isize, 1) }
}
