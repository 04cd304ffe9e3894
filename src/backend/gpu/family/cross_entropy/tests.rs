//! Cross-entropy and its gradient on the first adapter against the CPU.
use super::super::rows::sample::{Draw, LENGTHS, run};
use crate::backend::Kernel;
use crate::backend::gpu::check::{Host, decode, device, on_cpu, on_gpu};
use crate::backend::op::{EntropyForm, Op};
use crate::dtype::DType;

const TOLERANCE: (f64, f64) = (1e-5, 3e-6);

fn forms() -> impl Iterator<Item = EntropyForm> {
    (0..8).map(|bits| EntropyForm { weight: bits & 1 != 0, ignores: bits & 2 != 0, smooths: bits & 4 != 0 })
}

fn outputs(form: EntropyForm, lead: &[usize]) -> Vec<(DType, Vec<usize>)> {
    vec![(DType::F32, lead.to_vec()); 3 + usize::from(form.weight || form.ignores)]
}

/// The forward pass, and the gradient for incoming gradients of any layout.
fn check(form: EntropyForm, draw: &mut Draw, x: &Host, labels: &Host, ignored: i64, tolerance: (f64, f64)) {
    let (n, lead) = (x.shape[x.shape.len() - 1], &x.shape[..x.shape.len() - 1]);
    let mut ins = vec![x.clone(), labels.clone()];
    if form.weight {
        let values: Vec<f64> = draw.values(n, 1.0).iter().map(|v| v + 1.5).collect();
        ins.push(Host::new(x.dtype, &[n], &values));
    }
    let args = [ignored as u64, 0.1f64.to_bits()];
    let outs = outputs(form, lead);
    let single = (1e-5, 3e-6 * if form.smooths { 10.0 } else { 1.0 });
    run(Op::CrossEntropy(form), &ins, &outs, &args, single);
    let made = on_cpu(&Kernel::Op(Op::CrossEntropy(form)), lead, &ins, &outs, &args);
    let spread = draw.host(DType::F32, &[1], 1.0).seen(lead, &vec![0; lead.len()], 0);
    for g in [draw.host(DType::F32, lead, 1.0), spread] {
        let mut given = vec![g];
        given.extend(ins.iter().cloned());
        given.extend(made[1..3].iter().map(|bytes| Host::new(DType::F32, lead, &decode(DType::F32, bytes))));
        run(Op::CrossEntropyGrad(form), &given, &[(x.dtype, x.shape.clone())], &args, tolerance);
    }
}

fn labels(draw: &mut Draw, dtype: DType, shape: &[usize], n: usize, ignored: i64) -> Host {
    let most = if dtype == DType::U8 { n.min(250) } else { n };
    let pick = |draw: &mut Draw| if draw.below(5) == 0 { ignored as f64 } else { draw.below(most) as f64 };
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| pick(draw)).collect();
    Host::new(dtype, shape, &values)
}

#[test]
fn test_g01_cross_entropy_of_rows_of_every_length() {
    let mut draw = Draw(9);
    for n in LENGTHS {
        let rows = if n < 300 { 600 } else { 4 };
        for form in forms().filter(|f| n < 3000 || f.weight == f.smooths) {
            let dtype = [DType::I64, DType::I32, DType::U8][draw.below(3)];
            // An ignored label may be a class as well.
            let ignored = if dtype == DType::U8 || !form.ignores { 0 } else { -100 };
            let labels = labels(&mut draw, dtype, &[rows], n, ignored);
            let x = draw.host(DType::F32, &[rows, n], 6.0);
            check(form, &mut draw, &x, &labels, ignored, TOLERANCE);
        }
    }
}

#[test]
fn test_g01_cross_entropy_of_sure_predictions_keeps_its_digits() {
    let values: Vec<f64> = (0..12).flat_map(|i| [f64::from(i), 0.0, -1.0]).collect();
    let x = Host::new(DType::F32, &[12, 3], &values);
    let labels = Host::new(DType::I64, &[12], &[0.0; 12]);
    let form = EntropyForm { weight: false, ignores: false, smooths: false };
    // The sum of the exponentials, close to 1, is rounded to f32 before its logarithm is taken.
    run(Op::CrossEntropy(form), &[x, labels], &outputs(form, &[12]), &[0, 0], (1e-5, 1.3e-7));
}

#[test]
fn test_g01_cross_entropy_of_special_values() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for n in [3, 40, 1500] {
        let mut values = Draw(10).values(6 * n, 2.0);
        for (row, (at, special)) in [(0, nan), (1, inf), (n / 2, -inf), (n - 1, -inf), (n - 1, nan)].into_iter().enumerate() {
            values[row * n + at] = special;
        }
        values[5 * n..].fill(-inf);
        let x = Host::new(DType::F32, &[6, n], &values);
        let labels = Host::new(DType::I32, &[6], &[1.0, 1.0, 1.0, (n - 1) as f64, 0.0, 2.0]);
        for form in forms().filter(|f| !f.weight && !f.smooths) {
            let outs = outputs(form, &[6]);
            let args = [99u64, 0];
            let made = on_cpu(&Kernel::Op(Op::CrossEntropy(form)), &[6], &[x.clone(), labels.clone()], &outs, &args);
            let found = on_gpu(&Kernel::Op(Op::CrossEntropy(form)), &[6], &[x.clone(), labels.clone()], &outs, &args);
            for (a, b) in decode(DType::F32, &made[0]).into_iter().zip(decode(DType::F32, &found[0])) {
                assert!(a == b || a.is_nan() && b.is_nan() || (a - b).abs() < 1e-5, "{a} {b}");
            }
            let statistics = made[1..3].iter().map(|bytes| Host::new(DType::F32, &[6], &decode(DType::F32, bytes)));
            let mut given = vec![Host::new(DType::F32, &[6], &[1.0; 6]), x.clone(), labels.clone()];
            given.extend(statistics);
            run(Op::CrossEntropyGrad(form), &given, &[(DType::F32, vec![6, n])], &args, TOLERANCE);
        }
    }
}

#[test]
fn test_g01_cross_entropy_of_views_and_16_bit_floats() {
    let mut draw = Draw(11);
    for form in forms() {
        let shape = [4, 9, 21];
        let ids: Vec<f64> = (0..2 * 36).map(|_| draw.below(21) as f64).collect();
        let labels = Host::new(DType::I64, &[72], &ids).seen(&[4, 9], &[2, 8], 0);
        let x = draw.reversed(DType::F32, &shape, 5.0);
        check(form, &mut draw, &x, &labels, 3, TOLERANCE);
        for (dtype, relative) in [(DType::F16, 2e-3), (DType::BF16, 1.6e-2)] {
            let x = draw.padded(dtype, &shape, 5.0);
            check(form, &mut draw, &x, &labels, 3, (relative, 1e-5));
        }
    }
}

#[test]
fn test_g01_a_label_that_is_no_class_is_reported_and_counts_for_nothing() {
    let form = EntropyForm { weight: false, ignores: false, smooths: false };
    let x = Host::new(DType::F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for (dtype, wrong) in
        [(DType::I64, 3.0), (DType::I64, -1.0), (DType::I64, 4_294_967_296.0), (DType::I32, -1.0), (DType::U8, 200.0)]
    {
        let labels = Host::new(dtype, &[2], &[wrong, 1.0]);
        // The flag is the device's: another test may look at it first.
        let is_reported = (0..20).any(|_| {
            let ins = [x.clone(), labels.clone()];
            let losses =
                decode(DType::F32, &on_gpu(&Kernel::Op(Op::CrossEntropy(form)), &[2], &ins, &outputs(form, &[2]), &[0, 0])[0]);
            assert!(losses[0] == 0.0 && losses[1] > 0.0);
            device().check_tickets().is_err_and(|e| e.code() == "index")
        });
        assert!(is_reported, "{dtype} {wrong}");
    }
}
