//! Layouts: where the elements of a value lie in its storage, as strides and an offset.
use crate::shape::{Shape, elems, strides};
use smallvec::SmallVec;

/// Steps between neighbours along each axis, in elements.
pub type Strides = SmallVec<[isize; 4]>;

/// A shape, its strides and the offset of its first element; all in elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// The sizes of the axes.
    pub shape: Shape,
    /// The step along each axis.
    pub strides: Strides,
    /// Where the first element lies.
    pub offset: usize,
}

impl Layout {
    /// Row-major from the start of the storage.
    pub fn contiguous(shape: &[usize]) -> Layout {
        Layout { shape: Shape::from_slice(shape), strides: strides(shape), offset: 0 }
    }

    /// Whether the elements lie row-major without gaps (axes of size one do not count).
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1isize;
        for (&d, &s) in self.shape.iter().zip(&self.strides).rev() {
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

    /// The axes in another order.
    pub fn permute(&self, order: &[usize]) -> Layout {
        Layout {
            shape: order.iter().map(|&a| self.shape[a]).collect(),
            strides: order.iter().map(|&a| self.strides[a]).collect(),
            offset: self.offset,
        }
    }

    /// Broadcast to a larger shape: new and stretched axes get stride 0.
    pub fn expand(&self, to: &[usize]) -> Layout {
        let lead = to.len() - self.shape.len();
        let step = |i: usize| if i < lead || (self.shape[i - lead] == 1 && to[i] != 1) { 0 } else { self.strides[i - lead] };
        Layout { shape: Shape::from_slice(to), strides: (0..to.len()).map(step).collect(), offset: self.offset }
    }

    /// Every axis restricted to `(start, step, length)`; steps may be negative.
    pub fn slice(&self, ranges: &[(isize, isize, usize)]) -> Layout {
        let mut offset = self.offset as isize;
        let mut out = Layout { shape: Shape::new(), strides: Strides::new(), offset: 0 };
        for (&(start, step, len), &s) in ranges.iter().zip(&self.strides) {
            if len > 0 {
                offset += start * s;
            }
            out.shape.push(len);
            out.strides.push(s * step);
        }
        out.offset = if elems(&out.shape) == 0 { self.offset } else { offset as usize };
        out
    }

    /// The same elements under another shape without moving them, if strides can say it.
    pub fn reshape(&self, to: &[usize]) -> Option<Layout> {
        if self.is_contiguous() {
            return Some(Layout { offset: self.offset, ..Layout::contiguous(to) });
        }
        let old: SmallVec<[(usize, isize); 4]> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|&(d, _)| d != 1).collect();
        let mut strides = Strides::from_elem(0, to.len());
        let (mut i, mut j) = (0, 0);
        // Match runs of old axes with runs of new axes of the same product; a run of old axes must be dense to be split again.
        while i < old.len() || j < to.len() {
            let (i0, j0) = (i, j);
            let (mut a, mut b) = (1, 1);
            if i < old.len() {
                a = old[i].0;
                i += 1;
            }
            if j < to.len() {
                b = to[j];
                j += 1;
            }
            while a != b {
                if a < b {
                    a *= old.get(i)?.0;
                    i += 1;
                } else {
                    b *= to.get(j)?;
                    j += 1;
                }
            }
            for k in i0 + 1..i {
                if old[k - 1].1 != old[k].1 * old[k].0 as isize {
                    return None;
                }
            }
            let mut step = if i > i0 { old[i - 1].1 } else { 1 };
            for k in (j0..j).rev() {
                strides[k] = step;
                step *= to[k] as isize;
            }
        }
        Some(Layout { shape: Shape::from_slice(to), strides, offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(l: &Layout) -> Vec<isize> {
        let mut out = vec![l.offset as isize];
        for (&d, &s) in l.shape.iter().zip(&l.strides) {
            out = out.iter().flat_map(|&o| (0..d as isize).map(move |i| o + i * s)).collect();
        }
        out
    }

    proptest::proptest! {
        #[test]
        fn reshape_names_the_same_elements(dims in proptest::collection::vec(0usize..4, 1..4), flip: bool, swap: bool, cut in 0usize..6) {
            let mut l = Layout::contiguous(&dims);
            if swap { l = l.permute(&(0..dims.len()).rev().collect::<Vec<_>>()); }
            if flip && l.shape[0] > 0 {
                let r: Vec<_> = l.shape.iter().enumerate().map(|(i, &d)| if i == 0 { (d as isize - 1, -1, d) } else { (0, 1, d) }).collect();
                l = l.slice(&r);
            }
            let n = elems(&l.shape);
            for to in [vec![n], vec![1, n], vec![n, 1], (if cut > 0 && n.is_multiple_of(cut) { vec![cut, n / cut] } else { vec![n] })] {
                if let Some(r) = l.reshape(&to) {
                    proptest::prop_assert_eq!(indices(&r), indices(&l));
                } else {
                    proptest::prop_assert!(!l.is_contiguous());
                }
            }
        }
    }
}
