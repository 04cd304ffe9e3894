//! How rows are shared, and every way of it on the first adapter against the CPU.
use super::super::super::check::{Host, compare_with, decode, device, on_cpu, on_gpu_as};
use super::sample::Draw;
use super::*;
use crate::backend::Kernel;
use crate::backend::op::{EntropyForm, NormForm, Op};
use crate::dtype::DType;

/// What adapters can do that share rows differently: without subgroups, with some of four (whatever they are here), and a large one.
fn adapters() -> [Caps; 4] {
    let own = device().caps;
    let none = Caps { subgroup: (0, 0), ..own };
    [none, Caps { subgroup: (4, 4), max_threads: 256, ..own }, own, Caps { is_software: false, ..own }]
}

fn everywhere(op: Op, shape: &[usize], ins: &[Host], outs: &[(DType, Vec<usize>)], args: &[u64], tolerance: (f64, f64)) {
    let kernel = Kernel::Op(op);
    for caps in adapters() {
        let found = on_gpu_as(&kernel, shape, ins, outs, args, caps);
        compare_with(&found, &kernel, shape, ins, outs, args, tolerance);
    }
}

/// Rows of a tensor that begins `offset` elements behind the start of its memory, `gap` elements between them.
fn windows(draw: &mut Draw, rows: usize, n: usize, gap: usize, offset: usize) -> Host {
    let values = draw.values(rows * (n + gap) + offset, 4.0);
    Host::new(DType::F32, &[values.len()], &values).seen(&[rows, n], &[(n + gap) as isize, 1], offset)
}

#[test]
fn test_g01_rows_are_shared_in_every_way_wherever_they_begin() {
    let mut draw = Draw(20);
    for (rows, n) in [(300, 36), (9, 1000), (2, 40_004)] {
        for (gap, offset) in [(4, 8), (0, 1), (3, 2)] {
            let (lead, whole) = (vec![rows], vec![rows, n]);
            let x = windows(&mut draw, rows, n, gap, offset);
            let log = gap == 0;
            let out = [(DType::F32, whole.clone())];
            everywhere(Op::Softmax { log, causal: offset == 8 }, &whole, std::slice::from_ref(&x), &out, &[], (3e-6, 3e-6));
            let form = NormForm { rms: offset == 2, weight: true, bias: true };
            let weight = windows(&mut draw, 1, n, 0, offset / 2).seen(&[n], &[1], offset / 2);
            let bias = draw.host(DType::F32, &[n], 2.0);
            let mut outs = vec![(DType::F32, whole.clone()), (DType::F32, lead.clone())];
            outs.extend((!form.rms).then(|| (DType::F32, lead.clone())));
            let (ins, args) = ([x.clone(), weight.clone(), bias], [1e-5f64.to_bits()]);
            everywhere(Op::LayerNorm(form), &whole, &ins, &outs, &args, (2e-5, 2e-5));
            let made = on_cpu(&Kernel::Op(Op::LayerNorm(form)), &whole, &ins, &outs, &args);
            let mut given = vec![windows(&mut draw, rows, n, gap, 4), x.clone(), weight];
            given.extend(made[1..].iter().map(|bytes| Host::new(DType::F32, &lead, &decode(DType::F32, bytes))));
            let op = Op::LayerNormGrad { rms: form.rms, weight: true, wanted: 1 };
            everywhere(op, &whole, &given, &out, &args, (2e-5, 2e-5));
        }
    }
}

#[test]
fn test_g01_rows_of_logits_are_shared_in_every_way_wherever_they_begin() {
    let mut draw = Draw(21);
    for (rows, n) in [(300, 36), (9, 1000), (2, 40_004)] {
        for (gap, offset) in [(4, 8), (0, 1)] {
            let (lead, whole) = (vec![rows], vec![rows, n]);
            let x = windows(&mut draw, rows, n, gap, offset);
            let ids: Vec<f64> = (0..rows).map(|_| draw.below(n) as f64).collect();
            let labels = Host::new(DType::I64, &lead, &ids);
            let weights: Vec<f64> = draw.values(n, 1.0).iter().map(|v| v + 1.5).collect();
            let weight = Host::new(DType::F32, &[n], &weights);
            let form = EntropyForm { weight: true, ignores: gap == 4, smooths: true };
            let (ins, args) = ([x.clone(), labels.clone(), weight.clone()], [3u64, 0.1f64.to_bits()]);
            let outs = vec![(DType::F32, lead.clone()); 4];
            everywhere(Op::CrossEntropy(form), &lead, &ins, &outs, &args, (1e-5, 3e-5));
            let made = on_cpu(&Kernel::Op(Op::CrossEntropy(form)), &lead, &ins, &outs, &args);
            let mut given = vec![draw.host(DType::F32, &lead, 1.0), x, labels, weight];
            given.extend(made[1..3].iter().map(|bytes| Host::new(DType::F32, &lead, &decode(DType::F32, bytes))));
            everywhere(Op::CrossEntropyGrad(form), &whole, &given, &[(DType::F32, whole.clone())], &args, (1e-5, 3e-6));
        }
    }
}

#[test]
fn test_rows_move_four_elements_at_a_time_where_their_sizes_allow_it() {
    let prepared = |n: usize, step: isize| {
        let (shape, out_steps, steps) = ([8, n], [n as isize, 1], [step, 1]);
        let x = View { slot: Slot::In(0), dtype: DType::F32, shape: &shape, strides: &steps };
        let y = View { slot: Slot::Out(0), strides: &out_steps, ..x };
        let kernel = Kernel::Op(Op::Softmax { log: false, causal: false });
        let made = super::super::super::launch::prepare(&kernel, &shape, &[x], &[y], device().caps).unwrap().dispatches;
        assert_eq!(made.len(), 1);
        let wide = made[0].source.bindings.iter().filter(|b| b.elem.is_wide()).count();
        (wide, made[0].unaligned.as_ref().map(|s| s.bindings.iter().filter(|b| b.elem.is_wide()).count()))
    };
    assert_eq!(
        [prepared(64, 64), prepared(64, 80), prepared(64, 65), prepared(63, 64)],
        [(2, Some(0)), (2, Some(0)), (0, None), (0, None)]
    );
}

#[test]
fn test_threads_keep_rows_where_there_is_work_enough() {
    let caps = Caps {
        int64: true,
        f16: true,
        subgroup: (32, 32),
        max_bindings: 16,
        max_threads: 1024,
        max_groups: 65_535,
        max_immediates: 256,
        workgroup_bytes: 48 << 10,
        max_bytes: 1 << 31,
        is_software: false,
        fragments: None,
        block: None,
    };
    let of = |n, count| {
        let t = threads(n, count, 8, caps);
        (t.lanes, t.kept)
    };
    assert_eq!([of(1024, 1 << 17), of(64, 1 << 20), of(4096, 8192), of(32_768, 4096)], [(32, 8), (8, 2), (128, 8), (1024, 8)]);
    assert_eq!([of(64, 64), of(1024, 64), of(100_000, 4), of(1, 10)], [(16, 1), (256, 1), (1024, 8), (1, 1)]);
    assert_eq!(threads(1024, 1 << 17, 4, caps).lanes, 64);
    let varying = Caps { subgroup: (8, 32), max_threads: 256, ..caps };
    assert_eq!((subgroup(varying), threads(1 << 20, 9, 8, varying).lanes), (8, 256));
    assert_eq!(subgroup(Caps { subgroup: (0, 0), ..caps }), 0);
}

#[test]
fn test_one_step_is_found_through_axes_of_one_and_broadcasts() {
    assert_eq!(single_step(&[], &[]), Some(0));
    assert_eq!(single_step(&[3, 1, 4], &[8, 99, 2]), Some(2));
    assert_eq!(single_step(&[3, 4], &[0, 0]), Some(0));
    assert_eq!(single_step(&[3, 4], &[4, -1]), None);
    assert_eq!(single_step(&[3, 4], &[-4, -1]), Some(-1));
}
