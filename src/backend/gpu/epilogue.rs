//! Products with an epilogue: computed where the product's kernel has its elements, or else by a dispatch behind it.
use super::codegen::{self, Epilogue};
use super::family::product;
use super::launch::{Slot, Steps, View};
use crate::backend::expr::{Expr, Src};
use crate::backend::kind::Precision;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{elems, strides};
use smallvec::SmallVec;

/// Elements of a product up to which what follows is computed in its kernel. More of them take longer there than to be read again by a
/// kernel of their own: registers that hold it are missing where the product is computed, while a small product saves a launch.
const MAX_ENDED: usize = 1 << 20;

/// Adds the dispatches of a product of the first two inputs with an expression over it, its input 0, and over the other inputs.
pub fn prepare(precision: Precision, expr: &Expr, steps: &mut Steps) -> Result<()> {
    let (all, outs, shape) = (steps.ins, steps.outs, steps.shape);
    let (factors, others) = all.split_at_checked(2).ok_or(Error::Internal("matmul: operands"))?;
    let of_product = product_shape(&factors[0], &factors[1]);
    let own = strides(shape);
    let mut ins = vec![View { slot: Slot::Out(0), dtype: expr.inputs[0], shape, strides: &own }];
    ins.extend_from_slice(others);
    let ending = match elems(shape) <= MAX_ENDED {
        true => codegen::ending(expr, shape, &ins, outs, steps.caps)?,
        false => None,
    };
    if let Some(epilogue) = ending {
        return multiply(steps, precision, factors, &of_product, ins[0], Some(&epilogue));
    }
    // The product goes to the output that it is, if there is one, else to one that takes as many bytes: it is read element by element
    // where that is written; else to scratch.
    let is_it = |&(src, _): &(Src, DType)| src == Src::Input(0);
    let holds_it = |&(_, dtype): &(Src, DType)| dtype == expr.inputs[0];
    ins[0].slot = match expr.outputs.iter().position(is_it).or_else(|| expr.outputs.iter().position(holds_it)) {
        Some(o) => outs[o].slot,
        None => steps.scratch(elems(shape) * expr.inputs[0].size_bytes()),
    };
    multiply(steps, precision, factors, &of_product, ins[0], None)?;
    behind(expr, &ins, steps)
}

/// The product alone, or with all that follows it.
fn multiply(
    steps: &mut Steps,
    precision: Precision,
    factors: &[View],
    shape: &[usize],
    to: View,
    epilogue: Option<&Epilogue>,
) -> Result<()> {
    let own = strides(shape);
    let out = [View { shape, strides: &own, ..to }];
    steps.within(shape, factors, &out, |inner| product(inner, precision, epilogue))
}

/// The shape of a product, its batch axes broadcast.
fn product_shape(a: &View, b: &View) -> Vec<usize> {
    let rank = a.shape.len().max(b.shape.len());
    let size = |x: &View, axis: usize| (axis + x.shape.len()).checked_sub(rank).map_or(1, |i| x.shape[i]);
    let mut shape: Vec<usize> = (0..rank - 2).map(|axis| size(a, axis).max(size(b, axis))).collect();
    shape.extend([a.shape[a.shape.len() - 2], b.shape[b.shape.len() - 1]]);
    shape
}

/// The outputs that are not the product itself, in a dispatch of their own.
fn behind(expr: &Expr, ins: &[View], steps: &mut Steps) -> Result<()> {
    let (mut rest, mut outs) = (Expr { outputs: SmallVec::new(), ..expr.clone() }, Vec::new());
    for (&output, &view) in expr.outputs.iter().zip(steps.outs) {
        if output.0 != Src::Input(0) {
            rest.outputs.push(output);
            outs.push(view);
        }
    }
    if outs.is_empty() {
        return Ok(());
    }
    let dispatch = codegen::fused(&rest, steps.shape, ins, &outs, steps.caps)?;
    steps.push(dispatch);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
