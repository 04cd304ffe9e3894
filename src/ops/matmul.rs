//! Matrix products: NumPy's shape rule, one product where batches allow it, saved set and gradient.
use super::rule::{Ctx, Grads, Rule, make, only};
use super::transfer::one_device;
use super::unary::cast;
use super::view::{permute_axes, reshape_to};
use crate::backend::kind::Precision;
use crate::backend::op::Op;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Saved, Spec, Tensor};
use crate::shape::{Axes, Shape, broadcast, check_size, elems};
use smallvec::smallvec;

/// The matrix product by NumPy's rules: vectors count as a row on the left and a column on the right and lose that axis again; leading
/// axes broadcast; dtypes promote (bools are refused).
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    one_device("matmul", &[a, b])?;
    let (sa, sb) = (a.shape(), b.shape());
    if sa.is_empty() || sb.is_empty() {
        return Err(Error::value(
            "matmul",
            format!("shapes {sa:?} and {sb:?}: each needs at least one axis (use multiply for numbers)"),
        ));
    }
    let dtype = DType::promote(a.dtype(), b.dtype());
    if dtype == DType::Bool {
        return Err(Error::dtype("matmul", "got bool and bool; expected numbers (astype first)"));
    }
    let left = if sa.len() == 1 { reshape_to(a, &[1, sa[0]]) } else { a.clone() };
    let right = if sb.len() == 1 { reshape_to(b, &[sb[0], 1]) } else { b.clone() };
    let (inner, expected) = (left.shape()[left.rank() - 1], right.shape()[right.rank() - 2]);
    if inner != expected {
        let which = if sb.len() == 1 { "the only one" } else { "the second to last" };
        let why = format!("the last axis of the first ({inner}) must equal {which} of the second ({expected})");
        return Err(Error::value("matmul", format!("shapes {sa:?} and {sb:?}: {why}")));
    }
    let y = product(&cast(&left, dtype), &cast(&right, dtype), precision())?;
    if sa.len() > 1 && sb.len() > 1 {
        return Ok(y);
    }
    // Drop the axes that vectors were given.
    let mut shape = y.spec().shape.clone();
    if sb.len() == 1 {
        shape.pop();
    }
    if sa.len() == 1 {
        let row = shape.len() - usize::from(sb.len() > 1) - 1;
        shape.remove(row);
    }
    Ok(reshape_to(&y, &shape))
}

/// The product of two tensors with at least two axes each, whose inner sizes agree. A batch times one matrix is one product: its
/// leading axes are folded into the rows, so its gradients are single products as well.
fn product(a: &Tensor, b: &Tensor, precision: Precision) -> Result<Tensor> {
    let (ra, rb) = (a.rank(), b.rank());
    let (k, n) = (b.shape()[rb - 2], b.shape()[rb - 1]);
    if rb == 2 && ra > 2 {
        let rows = elems(&a.shape()[..ra - 1]);
        let y = product(&reshape_to(a, &[rows, k]), b, precision)?;
        let mut shape = Shape::from_slice(&a.shape()[..ra - 1]);
        shape.push(n);
        check_size("matmul", &shape)?;
        return Ok(reshape_to(&y, &shape));
    }
    let (lead, other) = (&a.shape()[..ra - 2], &b.shape()[..rb - 2]);
    let mut shape = broadcast("matmul", lead, other).map_err(|_| {
        let why = format!("the leading axes {lead:?} and {other:?} do not broadcast");
        Error::value("matmul", format!("shapes {:?} and {:?}: {why}", a.shape(), b.shape()))
    })?;
    shape.extend([a.shape()[ra - 2], n]);
    check_size("matmul", &shape)?;
    let is_exact = a.dtype() != DType::F32 || a.device().is_some_and(|d| d.gpu_index().is_none());
    let op = Op::MatMul(if is_exact { Precision::Highest } else { precision });
    Ok(make(op, smallvec![], smallvec![a.clone(), b.clone()], Spec { shape, dtype: a.dtype() }))
}

/// The precision in force on this thread, which products keep from when they are recorded.
fn precision() -> Precision {
    crate::plan::options().precision
}

/// The last two axes swapped, as a view.
fn swapped(x: &Tensor) -> Tensor {
    let mut order: Axes = (0..x.rank()).collect();
    order.swap(x.rank() - 2, x.rank() - 1);
    permute_axes(x, &order)
}

/// Whether a tensor is a leaf or a view of one: it stays, whoever reads it last.
fn is_of_leaf(x: &Tensor) -> bool {
    let mut x = x.clone();
    while x.node.variable.is_none() {
        let viewed = if matches!(x.node.op, Op::View(_)) { x.node.state.lock().inputs.first().cloned() } else { None };
        let Some(viewed) = viewed else { return false };
        x = viewed;
    }
    true
}

/// The rule of matrix products.
pub struct MatMul;

impl Rule for MatMul {
    fn saves(&self, _op: &Op, needs: u32) -> Option<Saved> {
        // Each factor's gradient reads the other one.
        Some(Saved { inputs: (needs & 1) << 1 | needs >> 1 & 1, outputs: 0 })
    }

    /// g B^T for A, A^T g for B, in the precision of the product itself; the walk sums broadcast batches down.
    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let (g, precision) = (only(grad_outs)?, if let Op::MatMul(p) = ctx.op() { *p } else { precision() });
        let of_a = || -> Result<Option<Tensor>> {
            if ctx.needs(0) { product(g, &swapped(ctx.input(1)?), precision).map(Some) } else { Ok(None) }
        };
        let of_b = || -> Result<Option<Tensor>> {
            if ctx.needs(1) { product(&swapped(ctx.input(0)?), g, precision).map(Some) } else { Ok(None) }
        };
        // A weight's first: A may end with it, before A's gradient is made, while the weight stays anyway.
        if ctx.needs(0) && ctx.needs(1) && is_of_leaf(ctx.input(1)?) {
            let b = of_b()?;
            return Ok(smallvec![of_a()?, b]);
        }
        let a = of_a()?;
        Ok(smallvec![a, of_b()?])
    }
}
