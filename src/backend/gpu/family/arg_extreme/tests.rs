//! Positions of extremes on the first adapter against the CPU.
use super::super::rows::sample::{Draw, LENGTHS, run};
use crate::backend::gpu::check::Host;
use crate::backend::op::Op;
use crate::dtype::DType;

fn both(x: &Host, axis: usize) {
    let mut rest = x.shape.clone();
    rest.remove(axis);
    for largest in [false, true] {
        run(Op::ArgExtreme(largest, axis), std::slice::from_ref(x), &[(DType::I64, rest.clone())], &[], (0.0, 0.0));
    }
}

/// Few different numbers, so that there are ties, and what is special about floats.
fn host(draw: &mut Draw, dtype: DType, shape: &[usize]) -> Host {
    let special = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, 1e-40, -1e-40];
    let most = if dtype == DType::Bool { 2 } else { 50 };
    let low = if matches!(dtype, DType::Bool | DType::U8) { 0.0 } else { 25.0 };
    let value = |d: &mut Draw| match d.below(400) {
        i if i < special.len() && dtype.is_float() => special[i],
        // Low words on both sides of 2^31 as well.
        i if i < 5 && dtype == DType::I64 => [i64::MIN, 1 << 40, 3_000_000_000, -3_000_000_000, (1 << 40) + 7][i] as f64,
        i if i < 2 && dtype == DType::I32 => f64::from([i32::MIN, i32::MAX][i]),
        _ => d.below(most) as f64 - low,
    };
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| value(draw)).collect();
    Host::new(dtype, shape, &values)
}

#[test]
fn test_g01_positions_along_rows_of_every_length() {
    let mut draw = Draw(12);
    for n in LENGTHS {
        for dtype in [DType::F32, DType::I32, DType::I64, DType::F16, DType::BF16, DType::U8, DType::Bool] {
            both(&host(&mut draw, dtype, &[if n < 300 { 900 } else { 5 }, n]), 1);
            both(&host(&mut draw, dtype, &[n]), 0);
        }
    }
}

#[test]
fn test_g01_positions_along_other_axes() {
    let mut draw = Draw(13);
    for dtype in [DType::F32, DType::I64, DType::U8] {
        for shape in [[3, 5, 7], [1, 64, 33], [2, 3000, 9], [700, 3, 90], [5, 1, 1], [4, 70, 1]] {
            let x = host(&mut draw, dtype, &shape);
            (0..3).for_each(|axis| both(&x, axis));
        }
        both(&host(&mut draw, dtype, &[2, 20_000]).seen(&[2, 10_000], &[20_000, 1], 7), 1);
    }
}

#[test]
fn test_g01_positions_in_views() {
    let mut draw = Draw(14);
    for dtype in [DType::F32, DType::F16, DType::U8, DType::I64] {
        let x = host(&mut draw, dtype, &[6, 70]);
        both(&x.clone().seen(&[70, 6], &[1, 70], 0), 1);
        both(&x.clone().seen(&[70, 6], &[1, 70], 0), 0);
        both(&x.clone().seen(&[6, 35], &[70, -2], 69), 1);
        both(&x.seen(&[3, 6, 70], &[0, 70, 1], 0), 2);
    }
}
