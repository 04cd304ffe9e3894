//! Epilogues: which elementwise expressions are computed in the kernel of the product that they read.
use super::lower::{Lowering, Val};
use super::tree::Tree;
use super::{Kept, Launch, Loc, Operand};
use crate::backend::expr::{Expr, MAX_BINDINGS, MAX_INSTRS, Src};
use crate::backend::kind::Precision;
use crate::backend::op::Op;
use crate::backend::{Kernel, MAX_UNSTORED_TERMS};
use crate::layout::Layout;
use crate::shape::{Shape, elems};
use rustc_hash::FxHashSet;

/// Launches from a product to what becomes its epilogue, at most, where both are held from the product on.
const NEAR: usize = 8;

/// The precision of a product, the expression of its epilogue so far, and its tensors: the product and the launch's further inputs.
fn epilogue_of(launch: &Launch, product: &Operand) -> Option<(Precision, Expr, Vec<Operand>)> {
    let mut ins = vec![product.clone()];
    match &launch.kernel {
        Kernel::Op(Op::MatMul(precision)) => {
            let mut expr = Expr::default();
            expr.inputs.push(product.dtype);
            expr.outputs.push((Src::Input(0), product.dtype));
            Some((*precision, expr, ins))
        }
        Kernel::MatMul(precision, expr) if launch.shape == product.layout.shape => {
            ins.extend_from_slice(&launch.ins[2..]);
            Some((*precision, expr.clone(), ins))
        }
        _ => None,
    }
}

/// Whether a product of `launch` can be computed without a place of its own, should nobody else read it.
fn needs_no_place(launch: &Launch, expr: &Expr) -> bool {
    let (k, size) = (launch.ins[0].layout.shape.last().copied().unwrap_or(0), expr.inputs[0].size_bytes());
    let fits = expr.outputs.iter().any(|&(src, dtype)| src != Src::Input(0) && dtype.size_bytes() == size);
    k > 0 && (fits || k <= MAX_UNSTORED_TERMS)
}

impl Lowering<'_> {
    /// Makes node `i`'s expression an epilogue of the product that it reads, if all else that it reads is there before the product.
    pub(super) fn join_product(&mut self, i: usize, shape: &Shape, tree: &Tree) -> Option<Val> {
        let at = tree.ins.iter().filter_map(|o| self.made(o.loc)).max()? as usize;
        let launch = &self.launches[at];
        let (node, made) = (launch.node as usize, launch.outs.first()?);
        let product = Operand { layout: Layout::contiguous(shape), ..made.clone() };
        // A sole reader's result takes the place of the product.
        let may_move = self.fusion.is_sole_reader(node, i) || !self.is_bounded && at + NEAR >= self.launches.len();
        let is_alike = self.program.nodes[node].phase == self.program.nodes[i].phase;
        let is_whole = elems(shape) == elems(&made.layout.shape);
        let reads_it = |o: &Operand| o.loc == product.loc && o.layout == product.layout;
        let others_are_there = tree.ins.iter().all(|o| reads_it(o) || self.made(o.loc).is_none_or(|m| (m as usize) < at));
        if !may_move || !is_alike || !is_whole || !tree.ins.iter().any(reads_it) || !others_are_there {
            return None;
        }
        let (precision, mut expr, mut ins) = epilogue_of(launch, &product)?;
        let mut args = launch.args.clone();
        tree.merge_into(&mut expr, &mut ins, &mut args);
        // The factors are bindings too, the product is none.
        if expr.instrs.len() > MAX_INSTRS || ins.len() + 1 + expr.outputs.len() > MAX_BINDINGS || !needs_no_place(launch, &expr) {
            return None;
        }
        if !args.is_empty() && expr.arg_words() > self.fusion.most_words {
            return None;
        }
        let out = self.temp(Layout::contiguous(shape), self.program.nodes[i].outs[0].spec.dtype);
        if let Some(t) = self.temps.last_mut() {
            t.made = at as u32;
        }
        let launch = &mut self.launches[at];
        launch.kernel = Kernel::MatMul(precision, expr);
        launch.shape = shape.clone();
        launch.ins.truncate(2);
        launch.ins.extend(ins.into_iter().skip(1));
        launch.args = args;
        launch.outs[0] = product;
        launch.outs.push(out.clone());
        Some(Val { loc: out.loc, layout: out.layout })
    }

    /// Products that only their epilogues read are no outputs.
    pub(super) fn drop_unread_products(&mut self, kept: &[Kept]) {
        let read: FxHashSet<u32> = self
            .launches
            .iter()
            .flat_map(|launch| launch.ins.iter().map(|o| o.loc))
            .chain(kept.iter().map(|k| k.loc))
            .filter_map(|loc| if let Loc::Temp(t) = loc { Some(t) } else { None })
            .collect();
        for launch in &mut self.launches {
            if let (Kernel::MatMul(_, expr), Some(Loc::Temp(t))) = (&mut launch.kernel, launch.outs.first().map(|o| o.loc))
                && !read.contains(&t)
            {
                expr.outputs.remove(0);
                launch.outs.remove(0);
            }
        }
    }
}
