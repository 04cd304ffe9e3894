//! Products with an epilogue on the first adapter: the same bits as by two dispatches, and what the CPU gives.
use super::super::check::{compare_with, device, on_gpu_as};
use super::super::family::sample::Draw;
use super::super::launch::{Caps, Slot, View, prepare};
use crate::backend::Kernel;
use crate::backend::expr::{EwOp, Expr, Instr, Src};
use crate::backend::kind::{BinaryKind, Precision, UnaryKind};
use crate::dtype::DType;
use crate::shape::strides;
use smallvec::{SmallVec, smallvec};

fn binary(kind: BinaryKind, a: Src, b: Src) -> Instr {
    Instr { op: EwOp::Binary(kind), input: DType::F32, out: DType::F32, srcs: smallvec![a, b] }
}

fn unary(kind: UnaryKind, a: Src) -> Instr {
    Instr { op: EwOp::Unary(kind), input: DType::F32, out: DType::F32, srcs: smallvec![a] }
}

/// relu(product * arg 0 + bias), then gelu of that plus a residual; the outputs ask for some of these.
fn expr(outputs: &[(Src, DType)]) -> Expr {
    let cast = Instr { op: EwOp::Cast, input: DType::F32, out: DType::I32, srcs: smallvec![Src::Instr(2)] };
    Expr {
        inputs: smallvec![DType::F32; 3],
        instrs: vec![
            binary(BinaryKind::Mul, Src::Input(0), Src::Arg(0)),
            binary(BinaryKind::Add, Src::Instr(0), Src::Input(1)),
            unary(UnaryKind::Relu, Src::Instr(1)),
            unary(UnaryKind::GeluTanh, Src::Instr(1)),
            binary(BinaryKind::Add, Src::Instr(3), Src::Input(2)),
            cast,
        ],
        outputs: outputs.iter().copied().collect::<SmallVec<_>>(),
    }
}

const ALL: [(Src, DType); 4] =
    [(Src::Input(0), DType::F32), (Src::Instr(2), DType::F32), (Src::Instr(4), DType::F32), (Src::Instr(5), DType::I32)];

/// Two dispatches, since nothing more can be bound.
fn apart(caps: Caps) -> Caps {
    Caps { max_bindings: 0, ..caps }
}

fn check(draw: &mut Draw, a: &[usize], b: &[usize], shape: &[usize], outputs: &[(Src, DType)], caps: Caps) {
    let bias: Vec<isize> = (0..shape.len()).map(|axis| isize::from(axis + 1 == shape.len())).collect();
    let n = shape[shape.len() - 1];
    let ins = [
        draw.host(DType::F32, a, 1.0),
        draw.host(DType::F32, b, 1.0),
        draw.host(DType::F32, &[n], 1.0).seen(shape, &bias, 0),
        draw.reversed(DType::F32, shape, 2.0),
    ];
    let outs: Vec<_> = outputs.iter().map(|&(_, dtype)| (dtype, shape.to_vec())).collect();
    let kernel = Kernel::MatMul(Precision::Highest, expr(outputs));
    let args = [1.25f64.to_bits()];
    let together = on_gpu_as(&kernel, shape, &ins, &outs, &args, caps);
    let alone = on_gpu_as(&kernel, shape, &ins, &outs, &args, apart(caps));
    assert!(together == alone, "{a:?} {b:?}");
    if outputs.iter().all(|&(_, dtype)| dtype == DType::F32) {
        compare_with(&together, &kernel, shape, &ins, &outs, &args, (1e-4, 1e-4));
    }
}

/// The dispatches of a product of these sizes with an epilogue.
fn dispatches(m: usize, k: usize, n: usize, outputs: &[(Src, DType)], caps: Caps) -> usize {
    let (a, b, shape) = ([m, k], [k, n], [m, n]);
    let (a_steps, b_steps, own) = (strides(&a), strides(&b), strides(&shape));
    let view = |slot, dtype| View { slot, dtype, shape: &shape, strides: &own };
    let ins = [
        View { slot: Slot::In(0), dtype: DType::F32, shape: &a, strides: &a_steps },
        View { slot: Slot::In(1), dtype: DType::F32, shape: &b, strides: &b_steps },
        view(Slot::In(2), DType::F32),
        view(Slot::In(3), DType::F32),
    ];
    let outs: Vec<View> = outputs.iter().enumerate().map(|(o, &(_, dtype))| view(Slot::Out(o), dtype)).collect();
    prepare(&Kernel::MatMul(Precision::Highest, expr(outputs)), &shape, &ins, &outs, caps).unwrap().dispatches.len()
}

#[test]
fn test_g01_epilogues_in_the_product_give_the_bits_of_a_dispatch_behind_it() {
    let (mut draw, caps) = (Draw(30), device().caps);
    for (m, k, n) in [(1, 1, 1), (2, 3, 5), (33, 20, 35), (64, 8, 32), (1, 300, 77), (90, 33, 1)] {
        check(&mut draw, &[m, k], &[k, n], &[m, n], if k == 20 { &ALL[..] } else { &ALL[1..3] }, caps);
    }
    check(&mut draw, &[3, 4, 5], &[5, 6], &[3, 4, 6], &ALL[1..3], caps);
    check(&mut draw, &[2, 1, 4, 5], &[3, 5, 6], &[2, 3, 4, 6], &ALL[1..3], caps);
    // Read in another shape, that of a layer whose rows are a batch.
    check(&mut draw, &[12, 9], &[9, 10], &[3, 4, 10], &ALL[1..3], caps);
    check(&mut draw, &[2, 1, 2, 1, 2, 3, 4], &[1, 3, 1, 2, 1, 4, 2], &[2, 3, 2, 2, 2, 3, 2], &ALL[..2], caps);
}

#[test]
fn test_g01_epilogues_of_large_tiles_and_of_sums_cut_in_parts() {
    let caps = Caps { is_software: false, workgroup_bytes: 32 << 10, ..device().caps };
    let mut draw = Draw(31);
    for (m, k, n) in [(1000, 24, 1041), (5, 2000, 7), (1, 6000, 70)] {
        check(&mut draw, &[m, k], &[k, n], &[m, n], &ALL[1..3], caps);
    }
}

#[test]
fn test_an_epilogue_takes_a_dispatch_only_where_it_must() {
    let caps = device().caps;
    let sums_are_cut = Caps { is_software: false, ..caps };
    assert_eq!(dispatches(64, 64, 64, &ALL, caps), 1);
    assert_eq!(dispatches(64, 64, 64, &ALL, apart(caps)), 2);
    assert_eq!((dispatches(5, 2000, 7, &ALL, sums_are_cut), dispatches(5, 2000, 7, &ALL, apart(sums_are_cut))), (2, 3));
    // The numbers of the product alone fill these immediates.
    assert_eq!(dispatches(64, 64, 64, &ALL, Caps { max_immediates: 128, ..caps }), 2);
    // Half floats may be two in a word, which one thread must write.
    let mut half = expr(&[(Src::Instr(2), DType::F16)]);
    half.instrs[2] = Instr { op: EwOp::Cast, input: DType::F32, out: DType::F16, srcs: smallvec![Src::Instr(1)] };
    let shape = [6, 6];
    let view = |slot, dtype| View { slot, dtype, shape: &shape, strides: &[6, 1] };
    half.inputs.truncate(2);
    half.instrs.truncate(3);
    let ins = [0, 1, 2].map(|i| view(Slot::In(i), DType::F32));
    for f16 in [false, true] {
        let kernel = Kernel::MatMul(Precision::Highest, half.clone());
        let made = prepare(&kernel, &shape, &ins, &[view(Slot::Out(0), DType::F16)], Caps { f16, ..caps }).unwrap();
        assert_eq!(made.dispatches.len(), if f16 { 1 } else { 2 });
    }
}

#[test]
fn test_g01_large_products_are_followed_by_a_kernel_of_their_own_without_more_memory() {
    let caps = device().caps;
    let made = |n: usize, outputs: &[(Src, DType)]| {
        let (k, m) = (4, 1 << 10);
        let (a, b, shape) = ([m, k], [k, n], [m, n]);
        let (a_steps, b_steps, own) = (strides(&a), strides(&b), strides(&shape));
        let view = |slot| View { slot, dtype: DType::F32, shape: &shape, strides: &own };
        let ins = [
            View { slot: Slot::In(0), dtype: DType::F32, shape: &a, strides: &a_steps },
            View { slot: Slot::In(1), dtype: DType::F32, shape: &b, strides: &b_steps },
            view(Slot::In(2)),
            view(Slot::In(3)),
        ];
        let outs: Vec<View> = outputs.iter().enumerate().map(|(o, &(_, dtype))| View { dtype, ..view(Slot::Out(o)) }).collect();
        prepare(&Kernel::MatMul(Precision::Highest, expr(outputs)), &shape, &ins, &outs, caps).unwrap()
    };
    let one = [ALL[1]];
    let (small, large) = (made(1 << 10, &one), made((1 << 10) + 1, &one));
    assert_eq!((small.dispatches.len(), large.dispatches.len()), (1, 2));
    assert!(small.scratch.is_empty() && large.scratch.is_empty());
    let mut draw = Draw(32);
    check(&mut draw, &[1030, 3], &[3, 1025], &[1030, 1025], &ALL[1..3], caps);
    check(&mut draw, &[1030, 3], &[3, 1025], &[1030, 1025], &one, caps);
}
