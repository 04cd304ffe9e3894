//! Every reduction on every dtype and mask, its accuracy, its order and its edges.
use super::*;
use crate::backend::gpu::check::{decode, on_gpu};
use crate::backend::kind::ReduceKind;
use crate::backend::op::dropped;

fn kinds(dtype: DType) -> Vec<ReduceKind> {
    ReduceKind::ALL
        .iter()
        .copied()
        .filter(|&k| crate::backend::cpu::prepare(&Kernel::Reduce(k, 1, plain(dtype))).is_ok())
        .collect()
}

/// Numbers whose sums and products stay of moderate size.
fn moderate(dtype: DType, n: usize, draw: &mut Draw) -> Vec<f64> {
    (0..n)
        .map(|_| match dtype {
            DType::Bool => f64::from(draw.below(40) != 0),
            DType::U8 => draw.below(256) as f64,
            DType::I32 | DType::I64 => draw.below(2001) as f64 - 1000.0,
            _ => (draw.unit() + 0.5) * if draw.below(2) == 0 { 1.0 } else { -1.0 },
        })
        .collect()
}

fn check_reduction(kind: ReduceKind, mask: u32, expr: &Expr, shape: &[usize], ins: &[Host]) {
    let dtype = expr.outputs[0].1;
    let kept = dropped(shape, mask).to_vec();
    let count = elems(shape) as f64 / elems(&kept).max(1) as f64;
    // Sums cancel: what remains is small beside the magnitudes that were added.
    let absolute = match kind {
        ReduceKind::Sum => 1e-6 * count,
        ReduceKind::Mean => 1e-6,
        _ => 0.0,
    };
    let (relative, least) = near(dtype, 4.0);
    let coarse = if dtype == DType::F32 { absolute } else { absolute.max(2.0 * least) };
    let kernel = Kernel::Reduce(kind, mask, expr.clone());
    compare(&kernel, shape, ins, &[(dtype, kept)], &[], (relative, coarse + least));
}

#[test]
fn test_g01_every_reduction_of_every_dtype_over_every_mask_is_the_cpus() {
    let mut cases = Cases::default();
    let shapes: [&[usize]; 8] = [&[], &[1], &[7], &[5, 13], &[40, 3], &[3, 4, 5], &[2, 3, 4, 17], &[130, 37]];
    for dtype in DTYPES {
        // What differs between dtypes does not depend on the shape: others than float32 see a few.
        for shape in shapes.into_iter().filter(|s| dtype == DType::F32 || elems(s) == 65 || elems(s) == 60) {
            for mask in 0..1u32 << shape.len() {
                let draw = &mut Draw(u64::from(mask) + shape.len() as u64);
                let x = Host::new(dtype, shape, &moderate(dtype, elems(shape), draw));
                for kind in kinds(dtype) {
                    cases.run(|| check_reduction(kind, mask, &plain(dtype), shape, std::slice::from_ref(&x)));
                }
            }
        }
    }
}

#[test]
fn test_g01_long_reductions_are_combined_from_parts() {
    let mut cases = Cases::default();
    for dtype in DTYPES {
        for (shape, mask) in [([70_001usize, 3], 1u32), ([3, 70_001], 2), ([9_001, 40], 1), ([300, 301], 3), ([40_000, 1], 1)] {
            let draw = &mut Draw(9);
            let n = elems(&shape);
            let x = Host::new(dtype, &shape, &moderate(dtype, n, draw));
            for kind in kinds(dtype) {
                // Products of so many stay finite only near 1.
                if kind == ReduceKind::Prod && dtype.is_float() {
                    continue;
                }
                cases.run(|| check_reduction(kind, mask, &plain(dtype), &shape, std::slice::from_ref(&x)));
            }
        }
    }
}

#[test]
fn test_g01_strided_inputs_and_fused_expressions_are_reduced() {
    let shape = [11usize, 70, 6];
    let draw = &mut Draw(21);
    for (strides, offset) in [
        ([420isize, 6, 1], 0usize),
        ([1, 11, 770], 0),
        ([-420, 6, 1], 10 * 420),
        ([0, 1, 70], 0),
        ([0, 0, 0], 3),
        ([1, 0, 11], 2),
    ] {
        let x = Host::new(DType::F32, &[5000], &moderate(DType::F32, 5000, draw)).seen(&shape, &strides, offset);
        let y = Host::new(DType::F32, &shape, &moderate(DType::F32, elems(&shape), draw));
        for mask in 0..8 {
            check_reduction(ReduceKind::Sum, mask, &plain(DType::F32), &shape, std::slice::from_ref(&x));
            check_reduction(ReduceKind::Max, mask, &plain(DType::F32), &shape, std::slice::from_ref(&x));
            let expr = single(EwOp::Binary(BinaryKind::Mul), DType::F32, DType::F32);
            check_reduction(ReduceKind::Mean, mask, &expr, &shape, &[x.clone(), y.clone()]);
        }
    }
}

#[test]
fn test_g01_nan_wins_and_infinities_stay() {
    let mut cases = Cases::default();
    for (at, special) in [(500, f64::NAN), (0, f64::NAN), (999, f64::INFINITY), (3, f64::NEG_INFINITY)] {
        let mut x = moderate(DType::F32, 1000, &mut Draw(2));
        x[at] = special;
        for (shape, mask) in [(vec![1000usize], 1u32), (vec![10, 100], 1), (vec![10, 100], 2)] {
            let x = Host::new(DType::F32, &shape, &x);
            for kind in [ReduceKind::Max, ReduceKind::Min, ReduceKind::Sum, ReduceKind::Mean, ReduceKind::Prod] {
                cases.run(|| check_reduction(kind, mask, &plain(DType::F32), &shape, std::slice::from_ref(&x)));
            }
        }
    }
    let both = Host::new(DType::F32, &[3], &[f64::INFINITY, f64::NEG_INFINITY, 0.0]);
    for kind in kinds(DType::F32) {
        cases.run(|| check_reduction(kind, 1, &plain(DType::F32), &[3], std::slice::from_ref(&both)));
    }
}

#[test]
fn test_g01_products_neither_overflow_on_the_way_nor_lose_digits() {
    let x: Vec<f64> = (0..4000).map(|i| if i % 2 == 0 { 1e30 } else { 1e-30 }).collect();
    check_reduction(ReduceKind::Prod, 1, &plain(DType::F32), &[8], &[Host::new(DType::F32, &[8], &x[..8])]);
    let y: Vec<f64> = (0..4000).map(|i| 1.0 + f64::from(i % 7 - 3) * 1e-3).collect();
    check_reduction(ReduceKind::Prod, 1, &plain(DType::F32), &[4000], &[Host::new(DType::F32, &[4000], &y)]);
    let z: Vec<f64> = (0..14).map(|i| if i == 7 { 0.0 } else { 1e20 }).collect();
    check_reduction(ReduceKind::Prod, 1, &plain(DType::F32), &[14], &[Host::new(DType::F32, &[14], &z)]);
}

#[test]
fn test_g01_reductions_of_nothing_have_values() {
    let mut cases = Cases::default();
    for dtype in DTYPES {
        for kind in kinds(dtype) {
            cases.run(|| check_reduction(kind, 1, &plain(dtype), &[0, 5], &[Host::new(dtype, &[0, 5], &[])]));
            cases.run(|| check_reduction(kind, 2, &plain(dtype), &[5, 0], &[Host::new(dtype, &[5, 0], &[])]));
        }
    }
}

#[test]
fn test_t14_sums_of_two_to_the_24_values_are_accurate() {
    let n = 1usize << 24;
    let x: Vec<f64> = (0..n).map(|i| f64::from((0.1 + (i % 1000) as f32 * 1e-4) * if i % 3 == 0 { -1.0 } else { 1.0 })).collect();
    let exact: f64 = x.iter().sum();
    let magnitudes: f64 = x.iter().map(|v| v.abs()).sum();
    let all = Host::new(DType::F32, &[n], &x);
    for (shape, mask) in [(vec![n], 1u32), (vec![n / 4, 4], 1), (vec![4, n / 4], 2), (vec![n / 1024, 1024], 1)] {
        let kept = dropped(&shape, mask).to_vec();
        let strides = crate::shape::strides(&shape);
        let ins = [all.clone().seen(&shape, &strides, 0)];
        let run = |kind| on_gpu(&Kernel::Reduce(kind, mask, plain(DType::F32)), &shape, &ins, &[(DType::F32, kept.clone())], &[]);
        let first = run(ReduceKind::Sum);
        let total: f64 = decode(DType::F32, &first[0]).iter().sum();
        assert!((total - exact).abs() <= 1e-6 * magnitudes, "{shape:?}: {total} is not {exact}");
        assert_eq!(first, run(ReduceKind::Sum), "the same bits every time");
        let mean: f64 = decode(DType::F32, &run(ReduceKind::Mean)[0]).iter().sum::<f64>() * (n / elems(&kept).max(1)) as f64;
        assert!((mean - exact).abs() <= 1e-6 * magnitudes, "{shape:?}: a mean of {mean} is not {exact}");
    }
    // One by one in f32 these would stop growing at 2^24.
    let ones = Host::new(DType::F32, &[1], &[1.0]).seen(&[n + 5], &[0], 0);
    let sum = on_gpu(&Kernel::Reduce(ReduceKind::Sum, 1, plain(DType::F32)), &[n + 5], &[ones], &[(DType::F32, vec![])], &[]);
    assert_eq!(decode(DType::F32, &sum[0]), [(n + 4) as f64]);
}
