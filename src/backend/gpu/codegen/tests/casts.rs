//! Conversions between every pair of dtypes, and the functions at their edges.
use super::*;
use crate::backend::gpu::check::{decode, on_gpu};

#[test]
fn test_g01_casts_between_every_pair_of_dtypes_are_the_cpus() {
    let mut cases = Cases::default();
    for from in DTYPES {
        for to in DTYPES {
            let draw = &mut Draw(from as u64 * 8 + to as u64);
            let x = host(from, &[3001], draw);
            cases.run(|| check(&single(EwOp::Cast, from, to), &[3001], &[x], &[], (0.0, 0.0)));
        }
    }
}

#[test]
fn test_g01_floats_near_the_ends_of_integers_saturate() {
    let mut ends: Vec<f64> =
        [0.0, 1.0, 255.0, 256.0, 2f64.powi(24), 2f64.powi(31), 2f64.powi(32), 2f64.powi(53), 2f64.powi(63), 1e30]
            .iter()
            .flat_map(|&e| {
                [e, e + 0.5, e - 0.5, e * (1.0 - 1e-7), e * (1.0 + 1e-7), -e, -e - 0.5, -e * (1.0 - 1e-7), -e * (1.0 + 1e-7)]
            })
            .collect();
    ends.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    let mut cases = Cases::default();
    for from in [DType::F32, DType::F16, DType::BF16] {
        for to in [DType::U8, DType::I32, DType::I64, DType::Bool] {
            let x = Host::new(from, &[ends.len()], &ends);
            cases.run(|| check(&single(EwOp::Cast, from, to), &[ends.len()], &[x], &[], (0.0, 0.0)));
        }
    }
}

#[test]
fn test_g01_integers_round_once_to_sixteen_bits() {
    let tie = (1i64 << 60) + (1 << 52);
    let mut all: Vec<i64> = (0..4000i64).map(|k| k.wrapping_mul(0x1234_5678_9abc_def1) >> (k % 62)).collect();
    all.extend([
        tie,
        tie + 1,
        tie - 1,
        -tie,
        -tie - 1,
        1 - tie,
        i64::MAX,
        i64::MIN,
        0,
        65_519,
        65_520,
        (1 << 24) + 1,
        (1 << 32) - 1,
    ]);
    let host = Host {
        dtype: DType::I64,
        shape: vec![all.len()],
        strides: vec![1],
        offset: 0,
        bytes: all.iter().flat_map(|v| v.to_ne_bytes()).collect(),
    };
    for to in [DType::F16, DType::BF16, DType::F32, DType::I32, DType::U8, DType::Bool] {
        check(&single(EwOp::Cast, DType::I64, to), &[all.len()], std::slice::from_ref(&host), &[], (0.0, 0.0));
    }
    let ints: Vec<f64> = all.iter().map(|&v| f64::from(v as i32)).collect();
    for to in [DType::F16, DType::BF16, DType::F32, DType::I64] {
        check(
            &single(EwOp::Cast, DType::I32, to),
            &[ints.len()],
            &[Host::new(DType::I32, &[ints.len()], &ints)],
            &[],
            (0.0, 0.0),
        );
    }
}

#[test]
fn test_g01_every_half_survives_and_floats_round_as_on_the_cpu() {
    for dtype in [DType::F16, DType::BF16] {
        let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
        let all = Host { dtype, shape: vec![1 << 16], strides: vec![1], offset: 0, bytes: bits };
        check(&single(EwOp::Cast, dtype, DType::F32), &[1 << 16], std::slice::from_ref(&all), &[], (0.0, 0.0));
        check(&plain(dtype), &[1 << 16], &[all], &[], (0.0, 0.0));
        let words: Vec<u8> = (0..200_000u32).flat_map(|k| k.wrapping_mul(21_474).to_ne_bytes()).collect();
        let floats = Host { dtype: DType::F32, shape: vec![200_000], strides: vec![1], offset: 0, bytes: words };
        check(&single(EwOp::Cast, DType::F32, dtype), &[200_000], &[floats], &[], (0.0, 0.0));
    }
}

/// The worst error of a function over a sweep of f32, in units in the last place of the true value.
fn worst(kind: UnaryKind, low: f32, high: f32, exact: impl Fn(f64) -> f64) -> (f64, f32) {
    let inputs: Vec<f32> =
        (0..u32::MAX / 30_011).map(|k| f32::from_bits(k * 30_011)).filter(|x| *x >= low && *x <= high && x.is_normal()).collect();
    let n = inputs.len();
    let bytes = inputs.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let ins = [Host { dtype: DType::F32, shape: vec![n], strides: vec![1], offset: 0, bytes }];
    let kernel = Kernel::Fused(single(EwOp::Unary(kind), DType::F32, DType::F32));
    let out = on_gpu(&kernel, &[n], &ins, &[(DType::F32, vec![n])], &[]);
    let mut worst = (0.0, 0.0);
    for (x, got) in inputs.iter().zip(decode(DType::F32, &out[0])) {
        let want = exact(f64::from(*x));
        let nearest = want as f32;
        let error = if nearest.is_nan() || !nearest.is_finite() || nearest.abs() < f32::MIN_POSITIVE {
            let same = nearest.is_nan() == got.is_nan() && (nearest.is_nan() || nearest == got as f32 || got.abs() < 1.2e-38);
            if same { 0.0 } else { f64::INFINITY }
        } else {
            let ulp = f64::from(f32::from_bits(nearest.abs().to_bits() + 1)) - f64::from(nearest.abs());
            (got - want).abs() / ulp
        };
        if error > worst.0 {
            worst = (error, *x);
        }
    }
    worst
}

#[test]
fn test_g01_functions_are_within_units_of_the_truth() {
    use UnaryKind::*;
    const MAX: f32 = f32::MAX;
    let sigmoid = |x: f64| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
    type Exact<'a> = Box<dyn Fn(f64) -> f64 + 'a>;
    let cases: Vec<(UnaryKind, f32, f32, f64, Exact)> = vec![
        (Exp, -MAX, MAX, 2.0, Box::new(f64::exp)),
        (Expm1, -MAX, MAX, 2.0, Box::new(f64::exp_m1)),
        (Log, -MAX, MAX, 2.0, Box::new(f64::ln)),
        (Log1p, -MAX, MAX, 2.5, Box::new(f64::ln_1p)),
        (Log2, -MAX, MAX, 1.5, Box::new(f64::log2)),
        (Log10, -MAX, MAX, 1.5, Box::new(f64::log10)),
        (Sin, -9e7, 9e7, 3.0, Box::new(f64::sin)),
        (Cos, -9e7, 9e7, 3.0, Box::new(f64::cos)),
        (Tan, -9e7, 9e7, 5.0, Box::new(f64::tan)),
        (Arcsin, -2.0, 2.0, 4.0, Box::new(f64::asin)),
        (Arccos, -2.0, 2.0, 4.0, Box::new(f64::acos)),
        (Arctan, -MAX, MAX, 3.0, Box::new(f64::atan)),
        (Sinh, -MAX, MAX, 4.0, Box::new(f64::sinh)),
        (Cosh, -MAX, MAX, 4.0, Box::new(f64::cosh)),
        (Tanh, -MAX, MAX, 2.0, Box::new(f64::tanh)),
        (Arcsinh, -MAX, MAX, 4.0, Box::new(f64::asinh)),
        (Arccosh, -MAX, MAX, 4.0, Box::new(f64::acosh)),
        (Arctanh, -2.0, 2.0, 4.0, Box::new(f64::atanh)),
        (Sigmoid, -MAX, MAX, 3.0, Box::new(sigmoid)),
        (Silu, -87.0, MAX, 4.0, Box::new(move |x| x * sigmoid(x))),
        (Softplus, -MAX, MAX, 3.0, Box::new(|x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p())),
        (Erf, -MAX, MAX, 3.0, Box::new(libm::erf)),
        (Gelu, -13.0, MAX, 6.0, Box::new(|x| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2))),
    ];
    let mut failures = Vec::new();
    for (kind, low, high, bound, exact) in cases {
        let (error, x) = worst(kind, low, high, exact);
        println!("{kind:?} {error:.2} units at {x:e}");
        if error > bound {
            failures.push(format!("{kind:?}: {error:.2} units in the last place at {x:e}, at most {bound}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
