//! Products by fragments, with threads in the place of fragments, against f64: layouts, edges, batches, cuts, and numbers of every size.
use super::super::super::rows::sample::Draw;
use super::*;
use crate::backend::Kernel;
use crate::backend::gpu::check::{Host, decode, device, on_gpu_as};
use crate::backend::gpu::launch::{Flat, Prepared};
use crate::backend::gpu::prepare;
use crate::backend::op::Op;

/// What an adapter with fragments would choose, run by threads.
fn caps() -> Caps {
    Caps { fragments: Some(Fragments::Scalar), ..device().caps }
}

/// The elements of a view in row-major order, in f64.
fn elements(x: &Host) -> Vec<f64> {
    let all = decode(x.dtype, &x.bytes);
    let mut out = Vec::new();
    let mut at = vec![0usize; x.shape.len()];
    for _ in 0..elems(&x.shape) {
        let place: isize = at.iter().zip(&x.strides).map(|(&i, &s)| i as isize * s).sum();
        out.push(all[(x.offset as isize + place) as usize]);
        for axis in (0..at.len()).rev() {
            at[axis] += 1;
            if at[axis] < x.shape[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    out
}

/// The product on the adapter, and in f64 with the product of magnitudes, item by item of a batch that both have.
fn products(a: &Host, b: &Host, precision: Precision, caps: Caps) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let rank = a.shape.len();
    let (m, k, n) = (a.shape[rank - 2], a.shape[rank - 1], b.shape[rank - 1]);
    let shape = [&a.shape[..rank - 1], &[n]].concat();
    let kernel = Kernel::Op(Op::MatMul(precision));
    let found = on_gpu_as(&kernel, &shape, &[a.clone(), b.clone()], &[(a.dtype, shape.clone())], &[], caps);
    let (x, y) = (elements(a), elements(b));
    let (mut exact, mut magnitude) = (Vec::new(), Vec::new());
    for i in 0..elems(&shape) {
        let (item, row, column) = (i / (m * n), i / n % m, i % n);
        let terms = (0..k).map(|t| x[(item * m + row) * k + t] * y[(item * k + t) * n + column]);
        exact.push(terms.clone().sum::<f64>());
        magnitude.push(terms.map(f64::abs).sum::<f64>());
    }
    (decode(a.dtype, &found[0]), exact, magnitude)
}

/// The largest error relative to the product of the magnitudes.
fn error(a: &Host, b: &Host, precision: Precision, caps: Caps) -> f64 {
    let (found, exact, magnitude) = products(a, b, precision, caps);
    let errors = found.iter().zip(exact.iter().zip(&magnitude)).map(|(f, (e, m))| {
        assert!(f.is_finite(), "{f} for {e}");
        // Results below the smallest normal number may be flushed.
        if f == e { 0.0 } else { (f - e).abs() / m.max(1e-31) }
    });
    errors.fold(0.0, f64::max)
}

fn transposed(draw: &mut Draw, rows: usize, cols: usize) -> Host {
    draw.host(DType::F32, &[cols, rows], 1.0).seen(&[rows, cols], &[1, rows as isize], 0)
}

/// A row-major matrix of numbers that a function makes of their place.
fn made(rows: usize, cols: usize, value: impl Fn(usize, usize) -> f64) -> Host {
    let values: Vec<f64> = (0..rows * cols).map(|i| value(i / cols, i % cols)).collect();
    Host::new(DType::F32, &[rows, cols], &values)
}

#[test]
fn test_g01_fragments_of_every_layout_at_odd_sizes_are_as_exact_as_f32() {
    let mut draw = Draw(40);
    for (m, k, n) in [(2, 1, 2), (65, 33, 70), (64, 100, 132)] {
        for bits in 0..4 {
            let a = if bits & 1 == 0 { draw.host(DType::F32, &[m, k], 1.0) } else { transposed(&mut draw, m, k) };
            let b = if bits & 2 == 0 { draw.host(DType::F32, &[k, n], 1.0) } else { transposed(&mut draw, k, n) };
            let highest = error(&a, &b, Precision::Highest, caps());
            assert!(highest < 3e-7, "{m} {k} {n} {bits}: {highest:e}");
        }
    }
}

#[test]
fn test_g01_fragments_of_halves_are_less_exact_and_no_worse_than_halves_are() {
    let mut draw = Draw(44);
    for (m, k, n) in [(65, 33, 70), (64, 100, 132)] {
        for bits in [0, 3] {
            let a = if bits == 0 { draw.host(DType::F32, &[m, k], 1.0) } else { transposed(&mut draw, m, k) };
            let b = if bits == 0 { draw.host(DType::F32, &[k, n], 1.0) } else { transposed(&mut draw, k, n) };
            let high = error(&a, &b, Precision::High, caps());
            assert!(high < 1e-3 && high > 1e-5, "{m} {k} {n} {bits}: {high:e}");
        }
    }
}

#[test]
fn test_g01_fragments_of_batches_and_of_views() {
    let mut draw = Draw(41);
    for (a, b) in [(&[3, 40, 20], &[3, 20, 36]), (&[2, 65, 32], &[2, 32, 66])] {
        let (x, y) = (draw.host(DType::F32, a, 1.0), draw.host(DType::F32, b, 1.0));
        assert!(error(&x, &y, Precision::Highest, caps()) < 3e-7);
    }
    // Heads of attention; lines that begin at no multiple of 16 bytes; rows backwards.
    let x = draw.host(DType::F32, &[2 * 48 * 3 * 16 + 1], 1.0);
    let heads = |steps: [isize; 3], shape: [usize; 3]| x.clone().seen(&shape, &steps, 0);
    let (q, k) = (heads([16, 48, 1], [3, 48, 16]), heads([16, 1, 48], [3, 16, 48]));
    assert!(error(&q, &k, Precision::Highest, caps()) < 3e-7);
    let (a, b) = (x.clone().seen(&[40, 16], &[48, 1], 1), x.clone().seen(&[16, 40], &[40, 1], 3));
    assert!(error(&a, &b, Precision::Highest, caps()) < 3e-7);
    let (a, b) = (x.clone().seen(&[40, 16], &[-48, 1], 48 * 40), x.clone().seen(&[16, 40], &[1, 47], 5));
    assert!(error(&a, &b, Precision::Highest, caps()) < 3e-7);
}

#[test]
fn test_g01_fragments_with_sums_cut_in_parts() {
    let caps = Caps { is_software: false, ..caps() };
    let mut draw = Draw(42);
    for (m, k, n) in [(40, 1000, 70), (2, 2000, 7)] {
        let (a, b) = (draw.host(DType::F32, &[m, k], 1.0), draw.host(DType::F32, &[k, n], 1.0));
        for (precision, most) in [(Precision::Highest, 3e-7), (Precision::High, 1e-3)] {
            let found = error(&a, &b, precision, caps);
            assert!(found < most, "{precision:?}: {found:e}");
        }
    }
}

#[test]
fn test_g01_rows_and_columns_of_any_size_are_as_exact_as_in_f32() {
    let noise = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 2003) as f64 / 1001.5 - 1.0;
    // Every row and column has a magnitude of its own, over the whole range of f32; products stay within it.
    let a = made(70, 40, |i, j| noise(i, j) * 2f64.powi(i as i32 * 2 - 100));
    let b = made(40, 65, |i, j| noise(i + 99, j) * 2f64.powi(60 - j as i32 * 2));
    let found = error(&a, &b, Precision::Highest, caps());
    assert!(found < 3e-7, "{found:e}");
    // One huge element among small ones, in the row itself: what it hides of the others is less than what f32 hides.
    let a = made(70, 40, |i, j| if (i, j) == (5, 7) { 1e25 } else { noise(i, j) * 1e-5 });
    let found = error(&a, &made(40, 65, noise), Precision::Highest, caps());
    assert!(found < 3e-7, "{found:e}");
    // A permutation moves elements as they are, to 23 bits, where they are no smaller than 2^-28 of their column's largest.
    let moved = made(64, 64, |i, j| f64::from(u8::from(i == (j * 5 + 3) % 64)));
    let small = made(64, 33, |i, j| (1.0 + noise(i, j).abs()) * 2f64.powi(-((i % 28) as i32)));
    let found = error(&moved, &small, Precision::Highest, caps());
    assert!(found < 3e-7, "{found:e}");
}

#[test]
fn test_g01_zeros_denormals_and_the_ends_of_the_range() {
    for size in [0.0, 1e-44, 1e-38, 3e38] {
        let a = made(40, 20, |i, j| if (i + j) % 3 == 0 { 0.0 } else { size });
        let b = made(20, 36, |i, j| if (i * j) % 4 == 0 { 0.25 } else { 0.0 });
        let (found, exact, _) = products(&a, &b, Precision::Highest, caps());
        for (f, e) in found.iter().zip(&exact) {
            let is_flushed = e.abs() < 20.0 * f64::from(f32::MIN_POSITIVE) && *f == 0.0;
            let is_too_large = *e > f64::from(f32::MAX) && *f == f64::INFINITY;
            assert!((f - e).abs() <= 1e-6 * e.abs() + 1e-45 || is_flushed || is_too_large, "{size:e}: {f:e}, expected {e:e}");
        }
    }
}

#[test]
fn test_g01_infinities_and_nan_are_where_f32_has_them_and_nowhere_else() {
    let mut draw = Draw(43);
    let mut values = draw.values(130 * 20, 1.0);
    (values[5], values[100], values[1300], values[1310]) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
    let a = Host::new(DType::F32, &[130, 20], &values);
    for precision in [Precision::Highest, Precision::High] {
        // A column of zeros makes NaN of infinities.
        for zero in [None, Some(3)] {
            let b = draw.values(20 * 70, 1.0).into_iter().enumerate();
            let b: Vec<f64> = b.map(|(i, v)| if Some(i % 70) == zero { 0.0 } else { v }).collect();
            let (found, exact, magnitude) = products(&a, &Host::new(DType::F32, &[20, 70], &b), precision, caps());
            for ((f, e), m) in found.iter().zip(&exact).zip(&magnitude) {
                let bound = if precision == Precision::High { 1e-3 } else { 3e-7 };
                assert!(f == e || f.is_nan() && e.is_nan() || (f - e).abs() <= bound * m, "{f} {e}");
            }
        }
    }
}

#[test]
fn test_g01_fragments_of_operands_that_items_share_and_of_any_strides() {
    let mut draw = Draw(45);
    // One left matrix for all items, one right one, each shared along another axis, and more axes than a dispatch counts.
    let x = draw.host(DType::F32, &[6 * 40 * 20], 1.0);
    let y = draw.host(DType::F32, &[6 * 20 * 36], 1.0);
    let seen = |h: &Host, shape: &[usize], steps: &[isize]| h.clone().seen(shape, steps, 0);
    for (a, b) in [
        (seen(&x, &[3, 40, 20], &[0, 20, 1]), seen(&y, &[3, 20, 36], &[720, 36, 1])),
        (seen(&x, &[3, 40, 20], &[800, 1, 40]), seen(&y, &[3, 20, 36], &[0, 1, 20])),
        (seen(&x, &[3, 2, 40, 20], &[800, 0, 20, 1]), seen(&y, &[3, 2, 20, 36], &[0, 720, 36, 1])),
        (
            seen(&x, &[2, 2, 2, 2, 9, 16], &[144, 288, 576, 1152, 16, 1]),
            seen(&y, &[2, 2, 2, 2, 16, 10], &[160, 0, 320, 640, 10, 1]),
        ),
        // Neither axis without gaps.
        (seen(&x, &[40, 20], &[60, 3]), seen(&y, &[20, 36], &[2, 120])),
    ] {
        assert!(error(&a, &b, Precision::Highest, caps()) < 3e-7);
    }
}

#[test]
fn test_g01_fragments_in_blocks_of_other_sizes() {
    let mut draw = Draw(46);
    let (a, b) = (draw.host(DType::F32, &[150, 70], 1.0), transposed(&mut draw, 70, 133));
    for block in ["32,32,64,16,16", "64,32,16,32,16", "128,64,32,32,32"] {
        let caps = Caps { block: Some(Block::parse(block).unwrap()), ..caps() };
        let high = error(&a, &b, Precision::High, caps);
        assert!(high < 1e-3, "{block}: {high:e}");
        if block != "128,64,32,32,32" {
            let highest = error(&a, &b, Precision::Highest, caps);
            assert!(highest < 3e-7, "{block}: {highest:e}");
        }
    }
}

#[test]
fn test_g01_fragments_of_16_bit_floats_are_summed_in_f32() {
    let mut draw = Draw(47);
    for (dtype, relative) in [(DType::F16, 6e-4), (DType::BF16, 4e-3)] {
        for (m, k, n) in [(65, 33, 70), (64, 100, 132)] {
            let a = draw.host(dtype, &[m, k], 1.0);
            let b = draw.host(dtype, &[n, k], 1.0).seen(&[k, n], &[1, k as isize], 0);
            for precision in [Precision::Highest, Precision::High] {
                let (found, exact, magnitude) = products(&a, &b, precision, caps());
                for ((f, e), m) in found.iter().zip(&exact).zip(&magnitude) {
                    assert!((f - e).abs() <= relative * e.abs() + 1e-6 * m + 6e-8, "{dtype:?}: {f}, expected {e}");
                }
            }
        }
    }
}

#[test]
fn test_g01_16_bit_floats_of_every_size_and_kind() {
    // Halves as they are: denormals, the largest ones, infinities and NaN.
    let size = |i: usize, j: usize| f64::from((i * 7 + j * 3) as u16 % 5) - 2.0;
    let mut values: Vec<f64> = (0..40 * 20).map(|i| size(i / 20, i % 20) * 2f64.powi((i / 20) as i32 % 34 - 22)).collect();
    (values[41], values[103], values[200], values[209]) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
    let a = Host::new(DType::F16, &[40, 20], &values);
    let b: Vec<f64> = (0..20 * 36).map(|i| size(i / 36, i % 36) * 4.0).collect();
    let (found, exact, _) = products(&a, &Host::new(DType::F16, &[20, 36], &b), Precision::Highest, caps());
    for (f, e) in found.iter().zip(&exact) {
        let is_too_large = e.abs() >= 65520.0 && *f == f64::INFINITY.copysign(*e);
        assert!(
            f == e || f.is_nan() && e.is_nan() || is_too_large || (f - e).abs() <= 6e-4 * e.abs() + 6e-8,
            "{f}, expected {e}"
        );
    }
    // The range of f32 in 8 bits.
    let noise = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 2003) as f64 / 1001.5 - 1.0;
    let values: Vec<f64> = (0..70 * 40).map(|i| noise(i / 40, i % 40) * 2f64.powi((i / 40) as i32 * 2 - 100)).collect();
    let a = Host::new(DType::BF16, &[70, 40], &values);
    let values: Vec<f64> = (0..40 * 65).map(|i| noise(i / 65 + 99, i % 65) * 2f64.powi(60 - (i % 65) as i32 * 2)).collect();
    let b = Host::new(DType::BF16, &[40, 65], &values);
    let (found, exact, magnitude) = products(&a, &b, Precision::Highest, caps());
    for ((f, e), m) in found.iter().zip(&exact).zip(&magnitude) {
        // Results below the smallest normal number may be flushed.
        let flushed = f64::from(f32::MIN_POSITIVE);
        assert!((f - e).abs() <= 4e-3 * e.abs() + 1e-6 * m + flushed, "{f:e}, expected {e:e}");
    }
}

fn made_for(m: usize, k: usize, n: usize, a_steps: [isize; 2], precision: Precision, caps: Caps) -> Prepared {
    let view = |slot, shape, strides| View { slot, dtype: DType::F32, shape, strides };
    let (b_steps, c_steps) = (strides(&[k, n]), strides(&[m, n]));
    let (a, b, c) = ([m, k], [k, n], [m, n]);
    let ins = [view(Slot::In(0), &a[..], &a_steps[..]), view(Slot::In(1), &b[..], &b_steps[..])];
    let outs = [view(Slot::Out(0), &c[..], &c_steps[..])];
    prepare(&Kernel::Op(Op::MatMul(precision)), &c, &ins, &outs, caps).unwrap()
}

fn dispatches(m: usize, k: usize, n: usize, a_steps: [isize; 2], precision: Precision, caps: Caps) -> Vec<&'static str> {
    made_for(m, k, n, a_steps, precision, caps).dispatches.iter().map(|d| d.source.name).collect()
}

#[test]
fn test_operands_are_packed_once_and_what_that_takes_is_counted() {
    let names = dispatches(100, 40, 70, [40, 1], Precision::Highest, caps());
    assert_eq!(names, ["reduce", "matmul halves", "reduce", "matmul halves", "matmul by fragments"]);
    // Two tiles of 64 rows, two blocks of 32 terms; two halves an element, one where precision is lower.
    let scratch = |precision| made_for(100, 40, 70, [40, 1], precision, caps()).scratch;
    let (a, b) = (2 * 64 * 2 * 32, 2 * 64 * 2 * 32);
    assert_eq!(scratch(Precision::Highest), [4 * 100, 4 * a, 4 * 70, 4 * b]);
    assert_eq!(scratch(Precision::High), [4 * 100, 2 * a, 4 * 70, 2 * b]);
}

#[test]
fn test_g03_what_is_packed_is_no_more_than_a_binding_holds_and_in_proportion() {
    let caps = caps();
    let fits = |p: &Product, caps| fits(p, matrix::TEST, Parts::HighAndLow, DType::F32, TENSOR, caps);
    let p = super::super::tests::sized(256, 256, 256);
    assert!(fits(&p, caps) && !fits(&p, Caps { max_bytes: 4 * 256 * 256 - 1, ..caps }));
    // 64 matrices times 64 others: each of 4096 items would have copies of both.
    let outer = |p: Product| Product {
        axes: vec![64, 64],
        a: Side { steps: vec![(p.m * p.k) as isize, 0], ..p.a.clone() },
        b: Side { steps: vec![0, (p.k * p.n) as isize], ..p.b.clone() },
        ..p
    };
    let caps = Caps { max_bytes: usize::MAX, ..caps };
    assert!(fits(&outer(super::super::tests::sized(256, 64, 256)), caps));
    assert!(!fits(&outer(super::super::tests::sized(64, 2048, 64)), caps));
}

const TENSOR: To = To::Tensor(Flat { slot: Slot::Out(0), elem: Elem::F32, bytes: 4 });

#[test]
fn test_fragments_serve_large_products_where_an_adapter_has_them() {
    let large = Caps { is_software: false, workgroup_bytes: 48 << 10, fragments: Some(Fragments::Cooperative), ..device().caps };
    let is_by_fragments = |names: &[&str]| names.contains(&"matmul by fragments");
    for precision in [Precision::Highest, Precision::High] {
        assert!(is_by_fragments(&dispatches(2048, 2048, 2048, [2048, 1], precision, large)));
        assert!(is_by_fragments(&dispatches(2048, 2048, 2048, [1, 2048], precision, large)));
        assert!(is_by_fragments(&dispatches(2048, 2048, 2048, [4096, 2], precision, large)));
        // Those just large enough; small ones, and adapters without fragments.
        assert!(is_by_fragments(&dispatches(1024, 512, 512, [512, 1], precision, large)));
        assert!(!is_by_fragments(&dispatches(1024, 511, 512, [511, 1], precision, large)));
        assert!(!is_by_fragments(&dispatches(2048, 2048, 2048, [2048, 1], precision, Caps { fragments: None, ..large })));
    }
}

#[test]
fn test_blocks_fit_the_workgroup_memory_and_grow_with_the_product() {
    let caps = Caps { is_software: false, workgroup_bytes: 48 << 10, fragments: Some(Fragments::Cooperative), ..device().caps };
    for (parts, blocks) in [(Parts::HighAndLow, &EXACT[..]), (Parts::High, &SHORT[..])] {
        for (n, expected) in [(4096, 0), (2048, 0), (768, blocks.len() - 1)] {
            let p = super::super::tests::sized(n, n, n);
            assert_eq!(block(&p, parts, Fragments::Cooperative, caps), Some(blocks[expected].0));
        }
        assert!(blocks.iter().all(|(b, _)| b.bytes(parts) <= 48 << 10 && b.threads() <= 256 && b.is_sound()));
    }
    // One that is asked for is taken where it fits.
    let p = super::super::tests::sized(4096, 4096, 4096);
    let given = Caps { block: Block::parse("128, 256,32,64,64"), ..caps };
    assert_eq!(block(&p, Parts::High, Fragments::Cooperative, given), given.block);
    assert_eq!(block(&p, Parts::HighAndLow, Fragments::Cooperative, given), Some(EXACT[0].0));
    assert!(given.block.is_some());
    for text in [
        "128,128,32,64",
        "128,128,32,64,32,1",
        "128,128,32,64,48",
        "128,128,8,64,32",
        "0,0,0,0,0",
        "128,16,16,16,16",
        "a,b,c,d,e",
    ] {
        assert_eq!(Block::parse(text), None, "{text}");
    }
}
