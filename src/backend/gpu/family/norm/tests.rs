//! Normalizations and their gradients on the first adapter against the CPU.
use super::super::rows::sample::{Draw, LENGTHS, run};
use crate::backend::Kernel;
use crate::backend::gpu::check::{Host, decode, on_cpu};
use crate::backend::op::{NormForm, Op};
use crate::dtype::DType;

const EPS: f64 = 1e-5;
const TOLERANCE: (f64, f64) = (2e-5, 5e-6);

fn forms() -> impl Iterator<Item = NormForm> {
    (0..8).map(|bits| NormForm { rms: bits & 1 != 0, weight: bits & 2 != 0, bias: bits & 4 != 0 })
}

fn outputs(form: NormForm, x: &Host) -> Vec<(DType, Vec<usize>)> {
    let lead = x.shape[..x.shape.len() - 1].to_vec();
    let mut outs = vec![(x.dtype, x.shape.clone()), (DType::F32, lead.clone())];
    if !form.rms {
        outs.push((DType::F32, lead));
    }
    outs
}

/// The forward pass, and every choice of gradients.
fn check(form: NormForm, draw: &mut Draw, x: &Host, g: &Host, tolerance: (f64, f64), summed: (f64, f64)) {
    let n = x.shape[x.shape.len() - 1];
    let mut ins = vec![x.clone()];
    for _ in 0..usize::from(form.weight) + usize::from(form.bias) {
        ins.push(draw.host(x.dtype, &[n], 2.0));
    }
    let outs = outputs(form, x);
    let args = [EPS.to_bits()];
    run(Op::LayerNorm(form), &ins, &outs, &args, tolerance);
    let made = on_cpu(&Kernel::Op(Op::LayerNorm(form)), &x.shape, &ins, &outs, &args);
    let mut given = vec![g.clone(), x.clone()];
    given.extend(form.weight.then(|| ins[1].clone()));
    for ((_, shape), bytes) in outs.iter().zip(&made).skip(1) {
        given.push(Host::new(DType::F32, shape, &decode(DType::F32, bytes)));
    }
    for wanted in 1..8u8 {
        let all = [(0, x.shape.clone()), (1, vec![n]), (2, vec![n])];
        let outs: Vec<_> = all.into_iter().filter(|(bit, _)| wanted >> bit & 1 == 1).map(|(_, s)| (x.dtype, s)).collect();
        let op = Op::LayerNormGrad { rms: form.rms, weight: form.weight, wanted };
        run(op, &given, &outs, &args, if wanted == 1 { tolerance } else { summed });
    }
}

#[test]
fn test_g01_norms_of_rows_of_every_length() {
    let mut draw = Draw(4);
    for n in LENGTHS {
        let rows = if n < 300 { 700 } else { 5 };
        for form in forms().filter(|f| n < 3000 || f.weight == f.bias) {
            let (x, g) = (draw.host(DType::F32, &[rows, n], 4.0), draw.host(DType::F32, &[rows, n], 1.0));
            // One element is its own mean: what is left is rounding, made large by 1 / sqrt(eps).
            check(form, &mut draw, &x, &g, (2e-5, if n < 3 { 1e-3 } else { 2e-5 }), (1e-4, if n < 3 { 0.1 } else { 2e-4 }));
        }
    }
}

#[test]
fn test_g01_norms_far_from_zero_keep_their_digits() {
    let mut draw = Draw(5);
    for n in [64, 1000, 5000, 100_000] {
        let values: Vec<f64> = draw.values(3 * n, 1.0).iter().map(|v| v + 1000.0).collect();
        let x = Host::new(DType::F32, &[3, n], &values);
        let form = NormForm { rms: false, weight: false, bias: false };
        run(Op::LayerNorm(form), std::slice::from_ref(&x), &outputs(form, &x), &[EPS.to_bits()], (2e-5, 1.5e-4));
    }
}

#[test]
fn test_g01_norms_of_rows_with_nan_or_infinity() {
    for special in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for n in [1, 5, 100, 2000] {
            let mut values = Draw(6).values(4 * n, 1.0);
            values[n / 2] = special;
            values[3 * n - 1] = special;
            let x = Host::new(DType::F32, &[4, n], &values);
            for form in forms() {
                let mut ins = vec![x.clone()];
                ins.resize(1 + usize::from(form.weight) + usize::from(form.bias), Draw(7).host(DType::F32, &[n], 1.0));
                run(Op::LayerNorm(form), &ins, &outputs(form, &x), &[EPS.to_bits()], (2e-5, 1e-3));
            }
        }
    }
}

#[test]
fn test_g01_norms_of_views_and_16_bit_floats() {
    let mut draw = Draw(8);
    for form in forms() {
        let shape = [3, 11, 65];
        let (x, g) = (draw.padded(DType::F32, &shape, 3.0), draw.reversed(DType::F32, &shape, 1.0));
        check(form, &mut draw, &x, &g, TOLERANCE, (1e-4, 1e-4));
        let g = draw.host(DType::F32, &[1], 1.0).seen(&shape, &[0, 0, 0], 0);
        check(form, &mut draw, &x, &g, TOLERANCE, (1e-4, 1e-4));
        for (dtype, relative) in [(DType::F16, 2e-3), (DType::BF16, 1.6e-2)] {
            let (x, g) = (draw.reversed(dtype, &shape, 3.0), draw.padded(dtype, &shape, 1.0));
            check(form, &mut draw, &x, &g, (relative, 1e-4), (relative, 2e-3));
        }
    }
}
