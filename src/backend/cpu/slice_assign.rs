//! `SliceAssign`: a copy of the input with a slice of it replaced, in place when the output is the input's own memory.
use super::copy::{fill_from, write_strided};
use super::view::View;
use crate::backend::op::Range;
use crate::error::{Error, Result};
use crate::layout::Layout;

/// Inputs x and v (the slice's shape, any strides): out = x with the slice replaced by v.
pub fn run(ranges: &[Range], ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let ([x, v], [out]) = (ins, outs) else { return Err(Error::Internal("slice_assign: operands")) };
    let inside = |(&(start, step, len), &size): (&Range, &usize)| {
        let last = start + step * (len as isize - 1);
        len == 0 || (0..size as isize).contains(&start) && (0..size as isize).contains(&last)
    };
    if ranges.len() != out.shape.len() || v.dtype != out.dtype || !ranges.iter().zip(out.shape).all(inside) {
        return Err(Error::Internal("slice_assign: ranges"));
    }
    let window = Layout::contiguous(out.shape).slice(ranges);
    if window.shape[..] != *v.shape {
        return Err(Error::Internal("slice_assign: shape of the slice"));
    }
    fill_from(x, out)?;
    if v.elems() > 0 {
        // SAFETY: the ranges were checked against the output, which is apart from v; steps are not 0, so places are distinct.
        unsafe { write_strided(v, out.ptr.add(window.offset * out.dtype.size_bytes()), &window.strides) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::walk::sample::{Draw, Sample, coordinates, position};
    use super::*;
    use crate::dtype::DType;

    proptest::proptest! {
        #[test]
        fn replaces_the_slice(seed: u64, rank in 0usize..4, in_place: bool) {
            let mut draw = Draw(seed);
            let shape = draw.shape(rank);
            let ranges: Vec<Range> = shape.iter().map(|&d| match (d, draw.below(3)) {
                (0, _) => (0, 1, 0),
                (_, 0) => (d as isize - 1, -1, d),
                (_, 1) => (0, 2, d.div_ceil(2)),
                _ => { let s = draw.below(d); (s as isize, 1, draw.below(d - s + 1)) }
            }).collect();
            let part: Vec<usize> = ranges.iter().map(|r| r.2).collect();
            let mut x = Sample::strided(&mut draw, DType::I32, &shape, |d| d.below(100) as f64);
            let v = Sample::strided(&mut draw, DType::I32, &part, |d| 1000.0 + d.below(100) as f64);
            let mut expected = x.values();
            for (i, &value) in v.values().iter().enumerate() {
                let at: Vec<usize> = coordinates(&part, i).iter().zip(&ranges).map(|(&c, r)| (r.0 + c as isize * r.1) as usize).collect();
                expected[position(&shape, &at)] = value;
            }
            if in_place {
                x = Sample::of(DType::I32, &shape, &x.values());
            }
            let out = if in_place { x.clone() } else { Sample::zeros(DType::I32, &shape) };
            let first = if in_place { out.view() } else { x.view() };
            run(&ranges, &[first, v.view()], &[out.view()], &[]).unwrap();
            proptest::prop_assert_eq!(out.values(), expected);
        }
    }
}
