//! Positions of what is not 0, made where the tensor lies: the only value that has to be read is how many there are.
use super::binary::{binary, host_scalar, select, sub};
use super::create::{positions, zeros};
use super::cumulative::cumsum;
use super::index::index_put;
use super::reduce::constant;
use super::unary::cast;
use super::view::{narrow, reshape_to};
use crate::backend::kind::BinaryKind;
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::graph::Tensor;

/// Which elements are not 0, and how many there are up to each of them, in row-major order.
pub fn ranks(x: &Tensor) -> Result<(Tensor, Tensor)> {
    constant(|| {
        let truth = reshape_to(&cast(x, DType::Bool), &[x.elems()]);
        let ranks = cumsum(&cast(&truth, DType::I64), Some(0), false)?;
        Ok((truth, ranks))
    })
}

/// Where the `count` elements of a tensor of this shape are that are not 0, one int64 vector an axis.
pub fn places(shape: &[usize], truth: &Tensor, ranks: &Tensor, count: usize) -> Result<Vec<Tensor>> {
    let number = |n: usize| host_scalar(Scalar::Int(n as i64), DType::I64);
    constant(|| {
        // All others go to one place behind the last.
        let targets = select(truth, &sub(ranks, &number(1))?, &number(count))?;
        let all = index_put(&zeros(&[count + 1], DType::I64)?, &[targets], &positions(truth.elems()))?;
        let mut rest = narrow(&all, 0, 0, count)?;
        let mut found = Vec::with_capacity(shape.len());
        for &size in shape.iter().skip(1).rev() {
            found.push(binary(BinaryKind::Rem, &rest, &number(size))?);
            rest = binary(BinaryKind::FloorDiv, &rest, &number(size))?;
        }
        found.push(rest);
        found.reverse();
        Ok(found)
    })
}
