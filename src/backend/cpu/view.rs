//! What a CPU kernel sees of a tensor: a checked pointer, a dtype, sizes and strides.
use crate::dtype::DType;
use smallvec::SmallVec;

/// A strided window on memory that the plan has proved large enough for it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The first element (the layout's offset is already applied).
    pub ptr: *mut u8,
    /// The element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: &'a [usize],
    /// Steps, in elements.
    pub strides: &'a [isize],
}

// SAFETY: a view is a borrowed window; the plan gives each launch exclusive use of its outputs and shared use of its inputs, and
// kernels split outputs into disjoint ranges before they hand them to threads.
unsafe impl Send for View<'_> {}
unsafe impl Sync for View<'_> {}

impl View<'_> {
    /// The number of elements.
    pub fn elems(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the elements lie row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1isize;
        for (&d, &s) in self.shape.iter().zip(self.strides).rev() {
            if d == 0 {
                return true;
            }
            if d != 1 && s != step {
                return false;
            }
            step *= d as isize;
        }
        true
    }

    /// The pointer as one to `T`; the caller has matched the dtype.
    pub fn as_ptr<T>(&self) -> *mut T {
        self.ptr.cast()
    }
}

/// Sizes and per-operand strides after merging neighbouring axes that all operands step through alike and dropping axes of size one.
pub struct Collapsed<const N: usize> {
    /// Merged sizes; never empty.
    pub shape: SmallVec<[usize; 4]>,
    /// Merged strides of each operand.
    pub strides: [SmallVec<[isize; 4]>; N],
}

/// Merges the axes of `N` operands of one shape.
pub fn collapse<const N: usize>(shape: &[usize], strides: [&[isize]; N]) -> Collapsed<N> {
    let mut out = Collapsed { shape: SmallVec::new(), strides: std::array::from_fn(|_| SmallVec::new()) };
    for (i, &d) in shape.iter().enumerate() {
        if d == 1 {
            continue;
        }
        let joins = !out.shape.is_empty()
            && strides.iter().zip(&out.strides).all(|(new, old)| old.last() == Some(&(new[i] * d as isize)));
        for (new, old) in strides.iter().zip(&mut out.strides) {
            if joins {
                old.pop();
            }
            old.push(new[i]);
        }
        match out.shape.last_mut() {
            Some(last) if joins => *last *= d,
            _ => out.shape.push(d),
        }
    }
    if out.shape.is_empty() {
        out.shape.push(1);
        out.strides.iter_mut().for_each(|s| s.push(0));
    }
    out
}
