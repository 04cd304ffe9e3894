//! Softmax on the first adapter against the CPU.
use super::super::rows::sample::{Draw, LENGTHS, run};
use crate::backend::gpu::check::Host;
use crate::backend::op::Op;
use crate::dtype::DType;

const TOLERANCE: (f64, f64) = (2e-6, 2e-6);

fn both(x: &Host, causal: bool, args: &[u64], tolerance: (f64, f64)) {
    for log in [false, true] {
        run(Op::Softmax { log, causal }, std::slice::from_ref(x), &[(x.dtype, x.shape.clone())], args, tolerance);
    }
}

#[test]
fn test_g01_softmax_of_rows_of_every_length() {
    let mut draw = Draw(1);
    for n in LENGTHS {
        for rows in [1, 5, if n < 300 { 2000 } else { 7 }] {
            both(&draw.host(DType::F32, &[rows, n], 30.0), false, &[], TOLERANCE);
        }
        both(&draw.host(DType::F32, &[3, n], 3.0), false, &[0.125f64.to_bits()], TOLERANCE);
    }
}

#[test]
fn test_g01_softmax_of_special_values_is_as_on_the_cpu() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let lowest = f64::from(f32::MIN);
    for n in [1, 3, 20, 300, 2000] {
        let specials: [&[f64]; 9] =
            [&[nan], &[inf], &[-inf], &[inf, inf], &[-inf, nan], &[-nan, -inf], &[lowest, lowest], &[1e38, lowest], &[-0.0, 0.0]];
        let mut values = Vec::new();
        for special in specials {
            for (at, fill) in [(0, 1.0), (n - n.min(special.len()), -inf), (n / 2, lowest)] {
                let mut row = vec![fill; n];
                for (k, &v) in special.iter().enumerate().filter(|&(k, _)| at + k < n) {
                    row[at + k] = v;
                }
                values.extend(row);
            }
        }
        let x = Host::new(DType::F32, &[values.len() / n, n], &values);
        both(&x, false, &[], TOLERANCE);
        both(&x, false, &[(-0.5f64).to_bits()], TOLERANCE);
    }
}

#[test]
fn test_g01_softmax_of_causal_rows() {
    let mut draw = Draw(2);
    for (rows, n) in [(1, 1), (5, 7), (40, 40), (9, 4), (130, 300), (3, 1500)] {
        let x = draw.host(DType::F32, &[2, 3, rows, n], 8.0);
        both(&x, true, &[0.5f64.to_bits()], TOLERANCE);
    }
}

#[test]
fn test_g01_softmax_of_views_and_16_bit_floats() {
    let mut draw = Draw(3);
    both(&draw.padded(DType::F32, &[4, 9, 33], 5.0), false, &[], TOLERANCE);
    both(&draw.reversed(DType::F32, &[4, 9, 33], 5.0), true, &[], TOLERANCE);
    both(&draw.host(DType::F32, &[40], 5.0).seen(&[6, 40], &[0, 1], 0), false, &[], TOLERANCE);
    for (dtype, tolerance) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)] {
        for n in [1, 7, 64, 1000] {
            both(&draw.host(dtype, &[5, n], 10.0), false, &[], (tolerance, 1e-6));
            both(&draw.reversed(dtype, &[5, n], 10.0), false, &[], (tolerance, 1e-6));
            both(&draw.padded(dtype, &[5, n], 10.0), true, &[2f64.to_bits()], (tolerance, 1e-6));
        }
    }
}
