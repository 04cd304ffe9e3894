//! `Concat`: inputs one after the other along an axis.
use super::copy::write_strided;
use super::view::View;
use crate::error::{Error, Result};
use crate::shape;

/// Writes the inputs (any strides) one after the other along `axis` of the row-major output.
pub fn run(axis: usize, ins: &[View], outs: &[View], _args: &[u64]) -> Result<()> {
    let [out] = outs else { return Err(Error::Internal("concat: operands")) };
    let fits = |x: &View| {
        let same_axis = |(i, (a, b)): (usize, (&usize, &usize))| i == axis || a == b;
        x.dtype == out.dtype && x.shape.len() == out.shape.len() && x.shape.iter().zip(out.shape).enumerate().all(same_axis)
    };
    if axis >= out.shape.len() || !ins.iter().all(fits) || ins.iter().map(|x| x.shape[axis]).sum::<usize>() != out.shape[axis] {
        return Err(Error::Internal("concat: shapes"));
    }
    let to = shape::strides(out.shape);
    let step = to[axis] as usize * out.dtype.size_bytes();
    let mut done = 0;
    for x in ins {
        // SAFETY: the window from `done` on holds x's size along the axis (the sizes add up); inputs are apart from the output.
        unsafe { write_strided(x, out.ptr.wrapping_add(done * step), &to) };
        done += x.shape[axis];
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
        fn joins_along_any_axis(seed: u64, rank in 1usize..4, parts in 1usize..5, dtype in 0usize..8) {
            let mut draw = Draw(seed);
            let mut shape = draw.shape(rank);
            let axis = draw.below(rank);
            let xs: Vec<Sample> = (0..parts).map(|_| {
                let mut part = shape.clone();
                part[axis] = draw.below(6);
                Sample::strided(&mut draw, DType::ALL[dtype], &part, |d| d.below(200) as f64)
            }).collect();
            shape[axis] = xs.iter().map(|x| x.shape[axis]).sum();
            let out = Sample::zeros(DType::ALL[dtype], &shape);
            let ins: Vec<View> = xs.iter().map(Sample::view).collect();
            run(axis, &ins, &[out.view()], &[]).unwrap();
            let got = out.values();
            let mut start = 0;
            for x in &xs {
                for (i, &v) in x.values().iter().enumerate() {
                    let mut at = coordinates(&x.shape, i);
                    at[axis] += start;
                    proptest::prop_assert_eq!(got[position(&shape, &at)], v);
                }
                start += x.shape[axis];
            }
        }
    }
}
