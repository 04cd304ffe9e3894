//! Every elementwise kind on every dtype, layouts, scalars, several outputs and large sizes.
use super::*;
use crate::backend::gpu::check::{device, on_cpu, on_gpu_as};
use crate::backend::gpu::launch::Caps;
use smallvec::smallvec;

/// Units in the last place within which a function agrees with the CPU's, each of which is a few from the truth.
fn unary_ulps(kind: UnaryKind) -> f64 {
    use UnaryKind::*;
    match kind {
        Neg | Abs | Sign | Relu | Floor | Ceil | Round | Trunc => 0.0,
        Square => 1.0,
        Gelu | GeluTanh => 64.0,
        // The standard library's loses digits below 0; `casts` compares with the truth.
        Arctanh => 32.0,
        _ => 8.0,
    }
}

/// What a function may be wrong by near its zeros, beside the relative tolerance.
fn unary_absolute(kind: UnaryKind) -> f64 {
    use UnaryKind::*;
    match kind {
        Sin | Cos => 2e-7,
        Tan => 2e-6,
        GeluSlope | SiluSlope | GeluTanhSlope => 5e-7,
        GeluTanh | Gelu => 2e-7,
        _ => 0.0,
    }
}

#[test]
fn test_g01_every_unary_kind_of_every_dtype_is_the_cpus() {
    let mut cases = Cases::default();
    for dtype in DTYPES {
        for &kind in UnaryKind::ALL {
            let expr = single(EwOp::Unary(kind), dtype, unary_out(kind, dtype));
            if !exists(&expr) {
                continue;
            }
            let draw = &mut Draw(kind as u64 + 7);
            let (relative, absolute) = near(dtype, unary_ulps(kind));
            let x = host(dtype, &[2003], draw);
            cases.run(|| check(&expr, &[2003], &[x], &[], (relative, absolute + unary_absolute(kind))));
        }
    }
}

#[test]
fn test_g01_every_binary_kind_of_every_dtype_is_the_cpus() {
    use BinaryKind::*;
    let mut cases = Cases::default();
    for dtype in DTYPES {
        for &kind in BinaryKind::ALL {
            let expr = single(EwOp::Binary(kind), dtype, binary_out(kind, dtype));
            if !exists(&expr) {
                continue;
            }
            let draw = &mut Draw(kind as u64 + 77);
            let ulps = match kind {
                Pow | Arctan2 => 16.0,
                Div | FloorDiv => 8.0,
                Rem => 2.0,
                _ => 0.0,
            };
            let ins = [host(dtype, &[59, 61], draw), host(dtype, &[59, 61], draw)];
            cases.run(|| check(&expr, &[59, 61], &ins, &[], near(dtype, ulps)));
        }
    }
}

#[test]
fn test_g01_selections_move_every_dtype() {
    for dtype in DTYPES {
        let draw = &mut Draw(5);
        let expr = single(EwOp::Where, dtype, dtype);
        let ins = [host(DType::Bool, &[1021], draw), host(dtype, &[1021], draw), host(dtype, &[1021], draw)];
        check(&expr, &[1021], &ins, &[], (0.0, 0.0));
    }
}

/// A selection; what is computed from it; one of both; and an input as it is.
pub(super) fn selections(dtype: DType) -> Expr {
    let instr = |op, srcs: &[Src]| Instr { op, input: dtype, out: dtype, srcs: srcs.iter().copied().collect() };
    let instrs = vec![
        instr(EwOp::Where, &[Src::Input(0), Src::Input(1), Src::Input(2)]),
        instr(EwOp::Binary(BinaryKind::Add), &[Src::Instr(0), Src::Input(2)]),
        instr(EwOp::Where, &[Src::Input(0), Src::Instr(1), Src::Instr(0)]),
    ];
    let outputs = [0, 1, 2].map(Src::Instr).into_iter().chain([Src::Input(1)]).map(|src| (src, dtype)).collect();
    Expr { inputs: smallvec![DType::Bool, dtype, dtype], instrs, outputs }
}

#[test]
fn test_g01_selections_move_the_bits_of_16_bit_floats() {
    let n = 1usize << 16;
    for dtype in [DType::F16, DType::BF16] {
        // Each is met by another that may be taken in its place.
        let (a, b): (Vec<u16>, Vec<u16>) = (0..=u16::MAX).map(|k| (k, k.wrapping_mul(40_503))).unzip();
        let whole = |bits: &[u16]| Host {
            dtype,
            shape: vec![n],
            strides: vec![1],
            offset: 0,
            bytes: bytemuck::cast_slice(bits).to_vec(),
        };
        let truths: Vec<f64> = (0..n).map(|k| (k * 7 / 5 % 2) as f64).collect();
        let (ins, expr) = ([Host::new(DType::Bool, &[n], &truths), whole(&a), whole(&b)], selections(dtype));
        let outs = vec![(dtype, vec![n]); 4];
        let kernel = Kernel::Fused(expr.clone());
        let on_gpu = |caps| on_gpu_as(&kernel, &[n], &ins, &outs, &[], caps);
        let all = [on_cpu(&kernel, &[n], &ins, &outs, &[]), on_gpu(device().caps), on_gpu(Caps { f16: false, ..device().caps })];
        for found in &all {
            let found: Vec<&[u16]> = found.iter().map(|bytes| bytemuck::cast_slice(bytes)).collect();
            for k in 0..n {
                let (is_a, sum) = (truths[k] == 1.0, found[1][k]);
                let chosen = if is_a { a[k] } else { b[k] };
                assert_eq!(
                    [found[0][k], found[2][k], found[3][k]],
                    [chosen, if is_a { sum } else { chosen }, a[k]],
                    "{dtype} {k}"
                );
            }
        }
        check(&expr, &[n], &ins, &[], near(dtype, 1.0));
    }
}

/// A tensor of a shape with odd strides: transposed, reversed, with gaps or repeated, and not at its buffer's start.
fn strided(dtype: DType, shape: &[usize], draw: &mut Draw) -> Host {
    let mut strides = vec![0isize; shape.len()];
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if draw.below(2) == 0 {
        order.reverse();
    }
    let (mut total, mut offset) = (1usize, 0usize);
    for &a in order.iter().rev() {
        match draw.below(6) {
            0 => continue,
            1 => {
                strides[a] = -(total as isize);
                offset += (shape[a] - 1) * total;
                total *= shape[a];
            }
            2 => {
                strides[a] = 2 * total as isize;
                total *= 2 * shape[a];
            }
            _ => {
                strides[a] = total as isize;
                total *= shape[a];
            }
        }
    }
    let lead = draw.below(5);
    let bytes = values(dtype, total + lead, draw);
    Host::new(dtype, &[total + lead], &bytes).seen(shape, &strides, offset + lead)
}

#[test]
fn test_g01_strided_inputs_of_every_dtype_are_read_where_they_lie() {
    let shapes: [&[usize]; 9] = [&[], &[1], &[5], &[7, 13], &[3, 1, 5], &[4, 6, 10], &[2, 3, 5, 7], &[1, 1031], &[33, 65]];
    let mut cases = Cases::default();
    for dtype in DTYPES {
        for (n, shape) in shapes.iter().enumerate() {
            for seed in 0..3 {
                let draw = &mut Draw((n * 10 + seed) as u64 + 1);
                let x = strided(dtype, shape, draw);
                cases.run(|| check(&plain(dtype), shape, std::slice::from_ref(&x), &[], (0.0, 0.0)));
                let expr = single(EwOp::Binary(BinaryKind::Maximum), dtype, dtype);
                let y = host(dtype, shape, draw);
                cases.run(|| check(&expr, shape, &[x, y], &[], (0.0, 0.0)));
            }
        }
    }
}

#[test]
fn test_g01_scalars_are_rounded_to_their_dtype() {
    let mut cases = Cases::default();
    for dtype in DTYPES {
        for scalar in [0.0, 1.0, 3.7, 2049.0, 1.000_489, -2.5, 1e300, -1e-300, f64::INFINITY] {
            let arg = crate::dtype::Scalar::Float(scalar).to_arg(dtype);
            let instr = Instr {
                op: EwOp::Binary(BinaryKind::Maximum),
                input: dtype,
                out: dtype,
                srcs: smallvec![Src::Input(0), Src::Arg(1)],
            };
            let outputs = smallvec![(Src::Instr(0), dtype), (Src::Arg(1), dtype)];
            let expr = Expr { inputs: smallvec![dtype], instrs: vec![instr], outputs };
            cases.run(|| check(&expr, &[37], &[host(dtype, &[37], &mut Draw(3))], &[7, arg], (0.0, 0.0)));
        }
    }
}

/// relu(x * y + x), its sign as bool, and x rounded to half: outputs of every width.
fn several() -> Expr {
    let instr = |op, out, srcs: &[Src]| Instr { op, input: DType::F32, out, srcs: srcs.iter().copied().collect() };
    use BinaryKind::{Add, Gt, Mul};
    let (x, y) = (Src::Input(0), Src::Input(1));
    Expr {
        inputs: smallvec![DType::F32, DType::F32],
        instrs: vec![
            instr(EwOp::Binary(Mul), DType::F32, &[x, y]),
            instr(EwOp::Binary(Add), DType::F32, &[Src::Instr(0), x]),
            instr(EwOp::Unary(UnaryKind::Relu), DType::F32, &[Src::Instr(1)]),
            instr(EwOp::Binary(Gt), DType::Bool, &[x, y]),
            instr(EwOp::Cast, DType::F16, &[Src::Instr(2)]),
        ],
        outputs: smallvec![(Src::Instr(2), DType::F32), (Src::Instr(3), DType::Bool), (Src::Instr(4), DType::F16)],
    }
}

#[test]
fn test_g01_outputs_of_several_widths_at_every_small_size() {
    for n in (1..20).chain([255, 256, 257, 1023, 1024, 1025, 4099]) {
        let draw = &mut Draw(n as u64);
        check(&several(), &[n], &[host(DType::F32, &[n], draw), host(DType::F32, &[n], draw)], &[], near(DType::F16, 1.0));
    }
}

#[test]
fn test_g01_two_to_the_24_elements() {
    let n = (1 << 24) + 3;
    let few: Vec<f64> = (0..n).map(|i| ((i * 37 % 1009) as f64 - 500.0) / 64.0).collect();
    let row = Host::new(DType::F32, &[n], &few);
    check(&several(), &[n], &[row.clone(), row.clone().seen(&[n], &[-1], n - 1)], &[], near(DType::F16, 1.0));
}

#[test]
fn test_g01_many_axes_put_their_sizes_into_a_table() {
    // 7 inputs of 11 axes that do not merge: more numbers than immediates hold.
    let shape = [2usize, 3, 2, 3, 2, 1, 3, 2, 2, 2, 3];
    let draw = &mut Draw(11);
    let mut expr = Expr { inputs: (0..7).map(|_| DType::I32).collect(), ..Expr::default() };
    for k in 1..7u8 {
        let srcs = smallvec![if k == 1 { Src::Input(0) } else { Src::Instr(k - 2) }, Src::Input(k)];
        expr.instrs.push(Instr { op: EwOp::Binary(BinaryKind::Add), input: DType::I32, out: DType::I32, srcs });
    }
    expr.outputs.push((Src::Instr(5), DType::I32));
    let ins: Vec<Host> = (0..7)
        .map(|k| {
            let mut steps: Vec<isize> = crate::shape::strides(&shape).to_vec();
            steps[k] *= -1;
            let at = (shape[k] - 1) * steps[k].unsigned_abs();
            host(DType::I32, &[elems(&shape)], draw).seen(&shape, &steps, at)
        })
        .collect();
    check(&expr, &shape, &ins, &[], (0.0, 0.0));
}
