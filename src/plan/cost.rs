//! What a launch does by count, whatever it takes: bytes read and written, and operations.
use super::{Launch, Loc, Operand, Place, Plan};
use crate::backend::Kernel;
use crate::backend::expr::{EwOp, Expr};
use crate::backend::op::{NormForm, Op, UpdateKind};
use crate::shape::elems;

/// One launch of a plan, as profiles tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchCounts {
    /// `fused`, the reduction's name, `fused_matmul` for a product with an epilogue, or the op's name.
    pub kernel: &'static str,
    /// What it computes, in order: of a fused kernel its ops.
    pub ops: Vec<&'static str>,
    /// The type of its first output.
    pub dtype: &'static str,
    /// The iteration shape.
    pub shape: Vec<usize>,
    /// Of a product, the terms of each sum.
    pub terms: Option<usize>,
    /// Bytes of its inputs; what a broadcast repeats counts once, and of a table only the rows that are looked up.
    pub bytes_read: u64,
    /// Bytes of its outputs; in place only what changes.
    pub bytes_written: u64,
    /// Arithmetic operations: 2 for each term of a product, 1 for each element that an elementwise op makes or a reduction takes in.
    pub operations: u64,
}

/// The name of a launch's kernel.
pub(super) fn kernel_name(kernel: &Kernel) -> &'static str {
    match kernel {
        Kernel::Fused(_) => "fused",
        Kernel::Reduce(kind, ..) => kind.name(),
        Kernel::MatMul(..) => "fused_matmul",
        Kernel::Op(op) => op.name(),
    }
}

/// What every launch of a plan does.
pub(super) fn counts(plan: &Plan) -> Vec<LaunchCounts> {
    let one = |launch: &Launch| {
        let (bytes_read, bytes_written) = moved(plan, launch);
        LaunchCounts {
            kernel: kernel_name(&launch.kernel),
            ops: op_names(&launch.kernel),
            dtype: launch.outs.first().map_or("", |o| o.dtype.name()),
            shape: launch.shape.to_vec(),
            terms: terms(launch),
            bytes_read,
            bytes_written,
            operations: operations(launch),
        }
    };
    plan.launches.iter().map(one).collect()
}

fn op_names(kernel: &Kernel) -> Vec<&'static str> {
    let of = |expr: &Expr| -> Vec<&'static str> {
        let name = |op: &EwOp| match op {
            EwOp::Unary(kind) => kind.name(),
            EwOp::Binary(kind) => kind.name(),
            EwOp::Where => "where",
            EwOp::Cast => "astype",
        };
        expr.instrs.iter().map(|i| name(&i.op)).collect()
    };
    match kernel {
        Kernel::Fused(expr) if expr.instrs.is_empty() => vec!["copy"],
        Kernel::Fused(expr) => of(expr),
        Kernel::Reduce(kind, _, expr) => of(expr).into_iter().chain([kind.name()]).collect(),
        Kernel::MatMul(_, expr) => ["matmul"].into_iter().chain(of(expr)).collect(),
        Kernel::Op(op) => vec![op.name()],
    }
}

fn terms(launch: &Launch) -> Option<usize> {
    match launch.kernel {
        Kernel::MatMul(..) | Kernel::Op(Op::MatMul(_)) => launch.ins.first().and_then(|a| a.layout.shape.last().copied()),
        _ => None,
    }
}

/// Elements of an operand; what a broadcast repeats is there once.
fn own_elems(o: &Operand) -> usize {
    if o.layout.shape.contains(&0) {
        return 0;
    }
    o.layout.shape.iter().zip(&o.layout.strides).filter(|&(_, &stride)| stride != 0).map(|(&d, _)| d).product()
}

fn own_bytes(o: &Operand) -> u64 {
    (own_elems(o) * o.dtype.size_bytes()) as u64
}

/// Bytes read and written.
fn moved(plan: &Plan, launch: &Launch) -> (u64, u64) {
    let read = || launch.ins.iter().map(own_bytes).sum::<u64>();
    let written = || launch.results().iter().map(own_bytes).sum::<u64>();
    let Kernel::Op(op) = &launch.kernel else { return (read(), written()) };
    let (Some(first), Some(out)) = (launch.ins.first(), launch.outs.first()) else { return (0, written()) };
    match op {
        Op::Gather(_) | Op::TakeAlong(_) => (read() - own_bytes(first) + own_bytes(first).min(own_bytes(out)), written()),
        Op::SliceAssign(_) | Op::IndexPut(_) | Op::ScatterAdd(_) | Op::ScatterAlong(_) if is_in_place(plan, first, out) => {
            let change = launch.ins.last().map_or(0, own_bytes);
            let adds = matches!(op, Op::ScatterAdd(_) | Op::ScatterAlong(_));
            (read() - own_bytes(first) + if adds { change } else { 0 }, change)
        }
        _ => (read(), written()),
    }
}

/// Whether an output lies where an input does.
fn is_in_place(plan: &Plan, input: &Operand, out: &Operand) -> bool {
    let place = |loc: Loc| match loc {
        Loc::Leaf(l) => Some(Place::Leaf(l)),
        Loc::Temp(t) => plan.places.get(t as usize).copied(),
        Loc::Scalar(_) => None,
    };
    place(input.loc).is_some() && place(input.loc) == place(out.loc)
}

/// Ops of an expression that compute something; a cast only changes how a number is written.
fn computing(expr: &Expr) -> usize {
    expr.instrs.iter().filter(|i| i.op != EwOp::Cast).count()
}

fn operations(launch: &Launch) -> u64 {
    let n = elems(&launch.shape);
    let product = || 2 * n * terms(launch).unwrap_or(0);
    let count = match &launch.kernel {
        Kernel::Fused(expr) => n * computing(expr),
        Kernel::Reduce(_, _, expr) => n * (computing(expr) + 1),
        Kernel::MatMul(_, expr) => product() + n * computing(expr),
        Kernel::Op(Op::MatMul(_)) => product(),
        Kernel::Op(op) => {
            let first = launch.ins.first().map_or(n, |o| elems(&o.layout.shape));
            let last = launch.ins.last().map_or(n, |o| elems(&o.layout.shape));
            match op {
                Op::ScatterAdd(_) | Op::ScatterAlong(_) => last,
                // Its first input is a number a row.
                Op::CrossEntropyGrad(_) => n * operations_an_element(op),
                _ => first * operations_an_element(op),
            }
        }
    };
    count as u64
}

/// Operations for each element of the first input; 0 for what only moves, compares or draws numbers.
fn operations_an_element(op: &Op) -> usize {
    let yes = usize::from;
    match op {
        // The largest, the difference to it, its power, the sum, the quotient.
        Op::Softmax { .. } => 5,
        Op::LayerNorm(NormForm { rms, weight, bias }) => 3 + 2 * yes(!rms) + yes(*weight) + yes(*bias),
        Op::LayerNormGrad { rms, weight, wanted } => {
            let centre = yes(!rms);
            let own = if wanted & 1 == 1 { 5 + 3 * centre + yes(*weight) } else { 0 };
            1 + centre + own + 2 * yes(wanted & 2 != 0) + yes(wanted & 4 != 0)
        }
        // The largest, the difference to it, its power, and the sum; or the difference, its power, the quotient and the factor.
        Op::CrossEntropy(_) | Op::CrossEntropyGrad(_) => 4,
        Op::Cumsum { .. } | Op::Cumprod(_) => 1,
        Op::Update(UpdateKind::Sgd) => 4,
        Op::Update(UpdateKind::SgdMomentum) => 7,
        Op::Update(UpdateKind::Adam) => 16,
        _ => 0,
    }
}
