//! Generated kernels against the CPU's, which are the specification, and their text through every translator.
mod casts;
mod elementwise;
mod reductions;
mod texts;

use crate::backend::Kernel;
use crate::backend::expr::{EwOp, Expr, Instr, Src};
use crate::backend::gpu::check::{Host, compare};
use crate::backend::kind::{BinaryKind, UnaryKind};
use crate::dtype::DType;
use crate::shape::elems;

/// The dtypes that a GPU computes.
const DTYPES: [DType; 7] = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64, DType::U8, DType::Bool];

/// An expression of one instruction.
fn single(op: EwOp, input: DType, out: DType) -> Expr {
    let arity = match op {
        EwOp::Binary(_) => 2,
        EwOp::Where => 3,
        _ => 1,
    };
    let first = if op == EwOp::Where { DType::Bool } else { input };
    let inputs = (0..arity).map(|k| if k == 0 { first } else { input }).collect();
    let srcs = (0..arity).map(|k| Src::Input(k as u8)).collect();
    Expr { inputs, instrs: vec![Instr { op, input, out, srcs }], outputs: [(Src::Instr(0), out)].into_iter().collect() }
}

/// The first input as it is.
fn plain(dtype: DType) -> Expr {
    Expr { inputs: [dtype].into_iter().collect(), instrs: vec![], outputs: [(Src::Input(0), dtype)].into_iter().collect() }
}

fn unary_out(kind: UnaryKind, dtype: DType) -> DType {
    if kind.gives_bool() { DType::Bool } else { dtype }
}

fn binary_out(kind: BinaryKind, dtype: DType) -> DType {
    if kind.gives_bool() { DType::Bool } else { dtype }
}

/// Whether the CPU has the op: what it refuses nobody runs.
fn exists(expr: &Expr) -> bool {
    crate::backend::cpu::prepare(&Kernel::Fused(expr.clone())).is_ok()
}

/// A small generator: tests need spread, not quality.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    fn unit(&mut self) -> f64 {
        self.below(1 << 24) as f64 / f64::from(1 << 24)
    }
}

/// Numbers of every kind: edges first, then a spread of magnitudes, then the usual ones.
fn floats(n: usize, draw: &mut Draw) -> Vec<f64> {
    const EDGES: [f64; 24] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        2.0,
        -3.0,
        3e38,
        -3e38,
        1e-38,
        88.0,
        -88.0,
        255.0,
        256.0,
        2_147_483_648.0,
        -2_147_483_904.0,
        1e-20,
    ];
    (0..n)
        .map(|i| match i % 3 {
            0 if i / 3 < EDGES.len() => EDGES[i / 3],
            1 => (draw.unit() - 0.5) * 10f64.powi(draw.below(60) as i32 - 30),
            _ => (draw.unit() - 0.5) * 8.0,
        })
        .collect()
}

fn values(dtype: DType, n: usize, draw: &mut Draw) -> Vec<f64> {
    let wide = |draw: &mut Draw, limit: f64| match draw.below(4) {
        0 => [0.0, 1.0, -1.0, limit - 1.0, -limit][draw.below(5)],
        1 => ((draw.unit() - 0.5) * 2.0 * limit).trunc(),
        _ => draw.below(21) as f64 - 10.0,
    };
    match dtype {
        DType::Bool => (0..n).map(|_| draw.below(2) as f64).collect(),
        DType::U8 => (0..n).map(|i| draw.below([256, 8][i % 2]) as f64).collect(),
        DType::I32 => (0..n).map(|_| wide(draw, 2_147_483_648.0)).collect(),
        // Beyond what f64 holds exactly neighbours do not matter: conversions of the harness round.
        DType::I64 => (0..n).map(|_| wide(draw, 9_223_372_036_854_774_784.0)).collect(),
        _ => floats(n, draw),
    }
}

fn host(dtype: DType, shape: &[usize], draw: &mut Draw) -> Host {
    Host::new(dtype, shape, &values(dtype, elems(shape), draw))
}

/// The tolerance of a float type: some units in its last place.
fn near(dtype: DType, ulps: f64) -> (f64, f64) {
    match dtype {
        DType::F16 => (ulps.min(2.0) * 2f64.powi(-11), 6e-8),
        DType::BF16 => (ulps.min(2.0) * 2f64.powi(-8), 1e-37),
        _ => (ulps * 2f64.powi(-24), 2e-38),
    }
}

/// Runs the cases of a test to the end and then names every one that failed.
#[derive(Default)]
struct Cases(Vec<String>);

impl Cases {
    fn run(&mut self, case: impl FnOnce()) {
        if let Err(what) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(case)) {
            let text = what.downcast_ref::<String>().cloned().or(what.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            self.0.push(text.unwrap_or_default());
        }
    }
}

impl Drop for Cases {
    fn drop(&mut self) {
        let few: Vec<String> = self.0.iter().take(40).map(|s| s.chars().take(1500).collect()).collect();
        assert!(few.is_empty() || std::thread::panicking(), "{} cases fail:\n{}", self.0.len(), few.join("\n"));
    }
}

/// Compares an expression on the CPU and the GPU.
fn check(expr: &Expr, shape: &[usize], ins: &[Host], args: &[u64], tolerance: (f64, f64)) {
    let outs: Vec<(DType, Vec<usize>)> = expr.outputs.iter().map(|&(_, d)| (d, shape.to_vec())).collect();
    compare(&Kernel::Fused(expr.clone()), shape, ins, &outs, args, tolerance);
}
