//! Matrix products on the first adapter against the CPU, and what is chosen for which sizes.
use super::super::rows::sample::{Draw, run};
use super::*;
use crate::backend::Kernel;
use crate::backend::gpu::check::{Host, compare_with, device, on_gpu_as};
use crate::backend::kind::Precision;
use crate::backend::op::Op;

const TOLERANCE: (f64, f64) = (1e-5, 1e-5);

fn product(a: &Host, b: &Host, tolerance: (f64, f64)) {
    let (ra, rb) = (a.shape.len(), b.shape.len());
    let mut shape = broadcast("matmul", &a.shape[..ra - 2], &b.shape[..rb - 2]).unwrap().to_vec();
    shape.extend([a.shape[ra - 2], b.shape[rb - 1]]);
    run(Op::MatMul(Precision::Highest), &[a.clone(), b.clone()], &[(a.dtype, shape)], &[], tolerance);
}

/// The same matrix stored column by column.
fn transposed(draw: &mut Draw, dtype: DType, rows: usize, cols: usize) -> Host {
    draw.host(dtype, &[cols, rows], 1.0).seen(&[rows, cols], &[1, rows as isize], 0)
}

#[test]
fn test_g01_products_of_every_layout_at_odd_sizes() {
    let mut draw = Draw(15);
    for (m, k, n) in [(1, 1, 1), (2, 3, 5), (31, 33, 32), (32, 64, 32), (65, 1, 70), (50, 129, 67), (200, 40, 3), (3, 700, 130)] {
        for bits in 0..4 {
            let a = if bits & 1 == 0 { draw.host(DType::F32, &[m, k], 1.0) } else { transposed(&mut draw, DType::F32, m, k) };
            let b = if bits & 2 == 0 { draw.host(DType::F32, &[k, n], 1.0) } else { transposed(&mut draw, DType::F32, k, n) };
            product(&a, &b, TOLERANCE);
        }
    }
}

#[test]
fn test_g01_products_of_vectors() {
    let mut draw = Draw(16);
    for (m, k, n) in [(1, 1, 9), (1, 300, 77), (1, 5000, 3), (90, 33, 1), (300, 1000, 1), (1, 100_000, 1)] {
        for layout in [false, true] {
            let pick = |draw: &mut Draw, rows, cols| match layout {
                false => draw.host(DType::F32, &[rows, cols], 1.0),
                true => transposed(draw, DType::F32, rows, cols),
            };
            let (a, b) = (pick(&mut draw, m, k), pick(&mut draw, k, n));
            product(&a, &b, (1e-4, 1e-4));
        }
    }
}

#[test]
fn test_g01_products_of_batches_broadcast_and_of_views() {
    let mut draw = Draw(17);
    let shapes: [(&[usize], &[usize]); 7] = [
        (&[3, 4, 5], &[3, 5, 6]),
        (&[3, 4, 5], &[5, 6]),
        (&[2, 1, 4, 5], &[3, 5, 6]),
        (&[2, 3, 1, 5], &[2, 3, 5, 6]),
        (&[2, 1, 2, 1, 2, 3, 4], &[1, 3, 1, 2, 1, 4, 2]),
        (&[6, 1, 40], &[40, 9]),
        (&[2, 5, 3, 7], &[2, 1, 7, 1]),
    ];
    for (a, b) in shapes {
        let (x, y) = (draw.host(DType::F32, a, 1.0), draw.host(DType::F32, b, 1.0));
        product(&x, &y, TOLERANCE);
        let (x, y) = (draw.reversed(DType::F32, a, 1.0), draw.padded(DType::F32, b, 1.0));
        product(&x, &y, TOLERANCE);
    }
    let x = draw.host(DType::F32, &[2 * 8 * 3 * 16], 1.0);
    // Attention's heads: (2, 8, 3 heads, 16), seen as (2, 3, 8, 16) and transposed.
    let q = x.clone().seen(&[2, 3, 8, 16], &[384, 16, 48, 1], 0);
    product(&q, &x.clone().seen(&[2, 3, 16, 8], &[384, 16, 1, 48], 0), TOLERANCE);
    // Every second row backwards, and one row for all.
    product(&x.clone().seen(&[5, 16], &[-32, 1], 160), &x.clone().seen(&[16, 7], &[0, 1], 3), TOLERANCE);
    product(&x.clone().seen(&[5, 16], &[2, 34], 1), &x.seen(&[16, 7], &[-3, 41], 60), TOLERANCE);
}

#[test]
fn test_g01_products_of_infinities_and_nan() {
    let mut draw = Draw(18);
    let mut values = draw.values(33 * 20, 1.0);
    (values[5], values[100], values[659]) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY);
    let a = Host::new(DType::F32, &[33, 20], &values);
    product(&a, &draw.host(DType::F32, &[20, 35], 1.0), TOLERANCE);
    product(&draw.host(DType::F32, &[35, 33], 1.0), &a, TOLERANCE);
    product(&a, &draw.host(DType::F32, &[20, 1], 1.0), TOLERANCE);
}

#[test]
fn test_g01_products_of_integers_wrap() {
    let mut draw = Draw(19);
    for (dtype, scale) in [(DType::U8, 0.0), (DType::I32, 1e9), (DType::I64, 4e15)] {
        for (m, k, n) in [(1, 5, 1), (17, 33, 20), (40, 16, 5)] {
            let mut host = |rows, cols| match dtype {
                DType::U8 => {
                    let values: Vec<f64> = (0..rows * cols).map(|_| draw.below(256) as f64).collect();
                    Host::new(dtype, &[rows, cols], &values)
                }
                _ => draw.host(dtype, &[rows, cols], scale),
            };
            let (a, b) = (host(m, k), host(k, n));
            product(&a, &b, (0.0, 0.0));
        }
    }
}

#[test]
fn test_g01_products_of_16_bit_floats() {
    let mut draw = Draw(20);
    for (dtype, relative) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)] {
        for (m, k, n) in [(1, 40, 30), (33, 40, 30), (20, 300, 1), (70, 65, 64)] {
            product(&draw.host(dtype, &[m, k], 1.0), &transposed(&mut draw, dtype, k, n), (relative, 1e-3));
            product(&transposed(&mut draw, dtype, m, k), &draw.padded(dtype, &[k, n], 1.0), (relative, 1e-3));
        }
    }
}

#[test]
fn test_g02_int64_without_64_bit_integers_is_refused_by_name() {
    let view = View { slot: Slot::In(0), dtype: DType::I64, shape: &[2, 2], strides: &[2, 1] };
    let caps = Caps { int64: false, ..device().caps };
    let (ins, outs) = ([view, View { slot: Slot::In(1), ..view }], [View { slot: Slot::Out(0), ..view }]);
    let error = prepare(&mut Steps::new(&[2, 2], &ins, &outs, caps), Precision::Highest, None).unwrap_err();
    assert!(error.code() == "value" && error.to_string().contains("matmul") && error.to_string().contains("int32"));
}

/// What a large adapter can do.
fn large(caps: Caps) -> Caps {
    Caps { is_software: false, workgroup_bytes: 48 << 10, ..caps }
}

pub(super) fn sized(m: usize, k: usize, n: usize) -> Product {
    let (a, b) = ([m, k], [k, n]);
    let (a_steps, b_steps) = (crate::shape::strides(&a), crate::shape::strides(&b));
    let view = |shape, strides| View { slot: Slot::In(0), dtype: DType::F32, shape, strides };
    Product::new(&view(&a, &a_steps), &view(&b, &b_steps)).unwrap()
}

#[test]
fn test_large_products_take_large_tiles_and_deep_ones_are_cut() {
    let caps = large(device().caps);
    assert_eq!(sized(4096, 4096, 4096).choose(caps), (LARGE, 1));
    assert_eq!(sized(4096, 4096, 4096).choose(Caps { workgroup_bytes: 32 << 10, ..caps }).0, SHALLOW);
    let (t, splits) = sized(64, 4096, 64).choose(caps);
    assert!(t.rows <= 64 && splits > 8);
    assert_eq!(sized(4096, 4096, 4096).choose(device().caps), (TINY, 1));
}

/// Runs the plan of a large adapter, but for its workgroup memory, on the one that is here.
fn as_on_a_large_one(m: usize, k: usize, n: usize, expected: Option<Tile>) {
    let caps = Caps { workgroup_bytes: 32 << 10, ..large(device().caps) };
    assert!(expected.is_none_or(|t| sized(m, k, n).choose(caps).0 == t));
    let mut draw = Draw((m * k * n) as u64);
    for bits in 0..4 {
        let a = if bits & 1 == 0 { draw.host(DType::F32, &[m, k], 1.0) } else { transposed(&mut draw, DType::F32, m, k) };
        let b = if bits & 2 == 0 { draw.host(DType::F32, &[k, n], 1.0) } else { transposed(&mut draw, DType::F32, k, n) };
        let (kernel, shape, ins, outs) = (Kernel::Op(Op::MatMul(Precision::Highest)), [m, n], [a, b], [(DType::F32, vec![m, n])]);
        let found = on_gpu_as(&kernel, &shape, &ins, &outs, &[], caps);
        compare_with(&found, &kernel, &shape, &ins, &outs, &[], (1e-4, 1e-4));
    }
}

#[test]
fn test_g01_products_cut_along_their_sums() {
    as_on_a_large_one(5, 2000, 7, None);
    as_on_a_large_one(1, 6000, 70, None);
    as_on_a_large_one(1, 20_000, 1, None);
}

#[test]
fn test_g01_products_by_medium_and_large_tiles() {
    as_on_a_large_one(1000, 40, 1010, Some(MEDIUM));
    as_on_a_large_one(1500, 40, 1411, Some(SHALLOW));
}

#[test]
fn test_g03_parts_of_sums_take_no_more_than_a_binding() {
    // 128 x 128 of two parts would take twice the largest binding.
    let caps = large(device().caps);
    let splits = |caps| sized(128, 128, 128).choose(caps).1;
    assert_eq!((splits(caps), splits(Caps { max_bytes: 1 << 16, ..caps })), (2, 1));
    assert_eq!(splits(Caps { max_bytes: 1 << 17, ..caps }), 2);
}
