//! Reductions against f64 and integer references over shapes, masks, strides and dtypes.
use super::*;
use crate::backend::expr::{EwOp, Instr, Src};
use crate::backend::kind::{BinaryKind, UnaryKind};
use crate::shape;
use half::f16;
use proptest::prelude::*;

fn plain(dtype: DType) -> Expr {
    Expr { inputs: [dtype].into_iter().collect(), instrs: vec![], outputs: [(Src::Input(0), dtype)].into_iter().collect() }
}

/// x * x, as an expression that must be evaluated.
fn square() -> Expr {
    let srcs = [Src::Input(0), Src::Input(0)].into_iter().collect();
    let instr = Instr { op: EwOp::Binary(BinaryKind::Mul), input: DType::F32, out: DType::F32, srcs };
    let outputs = [(Src::Instr(0), DType::F32)].into_iter().collect();
    Expr { inputs: [DType::F32].into_iter().collect(), instrs: vec![instr], outputs }
}

fn run<T: Copy, U: Copy + Default>(
    kind: ReduceKind,
    mask: u32,
    expr: &Expr,
    x: &[T],
    dims: &[usize],
    strides: &[isize],
) -> Vec<U> {
    let dtype = expr.inputs[0];
    let program = ReduceProgram::new(kind, mask, expr).unwrap();
    let kept = crate::backend::op::dropped(dims, mask);
    let steps = shape::strides(&kept);
    let mut out = vec![U::default(); shape::elems(&kept)];
    let view = View { ptr: x.as_ptr().cast_mut().cast(), dtype, shape: dims, strides };
    let to = View { ptr: out.as_mut_ptr().cast(), dtype: expr.outputs[0].1, shape: &kept, strides: &steps };
    program.run(&[view], dims, to, &[]).unwrap();
    out
}

/// Where each element of the shape goes when the axes in the mask are dropped.
fn home(dims: &[usize], mask: u32, mut linear: usize) -> usize {
    let (mut at, mut step) = (0, 1);
    for (a, &d) in dims.iter().enumerate().rev() {
        if mask >> a & 1 == 0 {
            at += linear % d * step;
            step *= d;
        }
        linear /= d;
    }
    at
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i as f32 * 0.618).fract() - 0.3) * 3.0).collect()
}

fn check(dims: &[usize], mask: u32, transposed: bool) {
    let n = shape::elems(dims);
    let x = numbers(n);
    let mut strides: Vec<isize> = shape::strides(dims).to_vec();
    let mut logical = x.clone();
    if transposed {
        // The memory holds the axes in reverse.
        let mut step = 1;
        for (s, &d) in strides.iter_mut().zip(dims) {
            *s = step;
            step *= d as isize;
        }
        for (i, v) in logical.iter_mut().enumerate() {
            let (mut l, mut off) = (i, 0);
            for (&d, &s) in dims.iter().zip(&strides).rev() {
                off += (l % d) as isize * s;
                l /= d;
            }
            *v = x[off as usize];
        }
    }
    let kept = shape::elems(&crate::backend::op::dropped(dims, mask));
    let count = n.checked_div(kept).unwrap_or(0);
    let (mut sum, mut mags, mut prod, mut max) =
        (vec![0f64; kept], vec![0f64; kept], vec![1f64; kept], vec![f32::NEG_INFINITY; kept]);
    for (i, &v) in logical.iter().enumerate() {
        let k = home(dims, mask, i);
        sum[k] += f64::from(v);
        mags[k] += f64::from(v.abs());
        prod[k] *= f64::from(v);
        max[k] = max[k].max(v);
    }
    let e = plain(DType::F32);
    for (kind, div) in [(ReduceKind::Sum, 1.0), (ReduceKind::Mean, count as f64)] {
        let got: Vec<f32> = run(kind, mask, &e, &x, dims, &strides);
        for k in 0..kept {
            let fits = (f64::from(got[k]) - sum[k] / div).abs() <= 5e-7 * mags[k] / div + 1e-40;
            assert!(fits || count == 0, "{kind:?} {dims:?} {mask:b} {transposed}: {} is not {}", got[k], sum[k] / div);
        }
    }
    let got: Vec<f32> = run(ReduceKind::Prod, mask, &e, &x, dims, &strides);
    (0..kept).for_each(|k| assert!((f64::from(got[k]) - prod[k]).abs() <= 1e-6 * prod[k].abs() + 1e-37, "{dims:?} {mask:b}"));
    if count > 0 {
        assert_eq!(run::<f32, f32>(ReduceKind::Max, mask, &e, &x, dims, &strides), max, "{dims:?} {mask:b} {transposed}");
    }
    // A fused expression, and its materialised value: the same bits (T16), whatever the strides.
    let squares: Vec<f32> = logical.iter().map(|v| v * v).collect();
    let fused: Vec<f32> = run(ReduceKind::Sum, mask, &square(), &x, dims, &strides);
    let apart: Vec<f32> = run(ReduceKind::Sum, mask, &e, &squares, dims, &shape::strides(dims));
    assert!(fused.iter().zip(&apart).all(|(a, b)| a.to_bits() == b.to_bits()), "{dims:?} {mask:b} {transposed}");
}

#[test]
fn shapes_and_masks() {
    let all: [&[usize]; 16] = [
        &[],
        &[1],
        &[7],
        &[15, 16],
        &[129, 5],
        &[5, 129],
        &[3, 4, 5],
        &[2, 3, 4, 5],
        &[300, 700],
        &[700, 300],
        &[3, 9001],
        &[9001, 3],
        &[4, 2, 1030],
        &[1, 640, 1],
        &[2, 70_000],
        &[600, 130],
    ];
    for dims in all {
        for mask in 0..1u32 << dims.len() {
            check(dims, mask, false);
            check(dims, mask, true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn random_shapes(dims in prop::collection::vec(1usize..40, 0..4), mask: u32, transposed: bool) {
        check(&dims, mask & ((1 << dims.len()) - 1), transposed);
    }
}

#[test]
fn test_t14_sums_of_many_values_are_accurate_and_independent_of_threads() {
    let n = 1 << 24;
    let x: Vec<f32> = (0..n).map(|i| 0.1 + (i % 1000) as f32 * 1e-4 * if i % 3 == 0 { -1.0 } else { 1.0 }).collect();
    let exact: f64 = x.iter().map(|&v| f64::from(v)).sum();
    let mags: f64 = x.iter().map(|&v| f64::from(v).abs()).sum();
    for (dims, mask) in
        [(vec![n], 1u32), (vec![n / 4, 4], 1), (vec![n / 1024, 1024], 1), (vec![4, n / 4], 2), (vec![64, n / 128, 2], 2)]
    {
        let strides = shape::strides(&dims);
        let on = |threads| -> Vec<f32> {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(ReduceKind::Sum, mask, &plain(DType::F32), &x, &dims, &strides))
        };
        let (one, three) = (on(1), on(3));
        assert!(one.iter().zip(&three).all(|(a, b)| a.to_bits() == b.to_bits()), "{dims:?}");
        let total: f64 = one.iter().map(|&v| f64::from(v)).sum();
        assert!((total - exact).abs() <= 1e-6 * mags, "{dims:?}: {total} is not {exact}");
    }
    let mean: Vec<f32> = run(ReduceKind::Mean, 1, &plain(DType::F32), &x, &[n], &[1]);
    assert!((f64::from(mean[0]) - exact / n as f64).abs() <= 1e-6 * mags / n as f64);
}

#[test]
fn nan_wins_and_empty_reductions_have_values() {
    let e = plain(DType::F32);
    let mut x = numbers(1000);
    x[500] = f32::NAN;
    for kind in [ReduceKind::Max, ReduceKind::Min] {
        assert!(run::<f32, f32>(kind, 1, &e, &x, &[1000], &[1])[0].is_nan());
        assert!(run::<f32, f32>(kind, 1, &e, &x, &[100, 10], &[10, 1])[0].is_nan());
        assert!(run::<f32, f32>(kind, 2, &e, &x, &[10, 100], &[100, 1])[5].is_nan());
    }
    assert_eq!(run::<f32, f32>(ReduceKind::Sum, 1, &e, &x, &[0, 2], &[2, 1]), [0.0, 0.0]);
    assert_eq!(run::<f32, f32>(ReduceKind::Prod, 1, &e, &x, &[0, 2], &[2, 1]), [1.0, 1.0]);
    assert!(run::<f32, f32>(ReduceKind::Mean, 1, &e, &x, &[0], &[1])[0].is_nan());
    let b = plain(DType::Bool);
    assert_eq!(run::<u8, u8>(ReduceKind::Any, 1, &b, &[], &[0], &[1]), [0]);
    assert_eq!(run::<u8, u8>(ReduceKind::All, 1, &b, &[], &[0], &[1]), [1]);
    assert_eq!(run::<u8, u8>(ReduceKind::Any, 2, &b, &[0, 0, 1, 0], &[2, 2], &[2, 1]), [0, 1]);
    assert_eq!(run::<u8, u8>(ReduceKind::All, 2, &b, &[0, 1, 1, 1], &[2, 2], &[2, 1]), [0, 1]);
}

#[test]
fn other_dtypes() {
    let i: Vec<i64> = (0..10_000).map(|k| k * 7 - 20_000).collect();
    assert_eq!(run::<i64, i64>(ReduceKind::Sum, 1, &plain(DType::I64), &i, &[10_000], &[1]), [i.iter().sum::<i64>()]);
    assert_eq!(run::<i64, i64>(ReduceKind::Min, 1, &plain(DType::I64), &i, &[10_000], &[1]), [-20_000]);
    let h: Vec<f16> = (0..5000).map(|k| f16::from_f32((k % 7) as f32 * 0.25)).collect();
    let exact: f64 = h.iter().map(|v| v.to_f64()).sum();
    let got: Vec<f16> = run(ReduceKind::Sum, 1, &plain(DType::F16), &h, &[5000], &[1]);
    assert_eq!(got[0], f16::from_f64(exact));
    let got: Vec<f16> = run(ReduceKind::Max, 1, &plain(DType::F16), &h, &[1000, 5], &[5, 1]);
    assert_eq!(got.len(), 5);
    assert_eq!(got[0].to_f32(), 1.5);
    // A number that is read once for every element.
    assert_eq!(run::<f32, f32>(ReduceKind::Sum, 3, &plain(DType::F32), &[0.5], &[100, 70], &[0, 0]), [3500.0]);
    assert!(ReduceProgram::new(ReduceKind::Mean, 1, &plain(DType::I64)).is_err());
    assert!(ReduceProgram::new(ReduceKind::Any, 1, &plain(DType::F32)).is_err());
    let _ = UnaryKind::ALL;
}
