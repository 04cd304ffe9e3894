//! Every kernel of these families on the first adapter against the CPU.
use super::super::check::{Host, compare, decode, device, on_gpu};
use super::super::launch::{Slot, View, prepare};
use crate::backend::Kernel;
use crate::backend::op::{Op, RandomKind, UpdateKind};
use crate::dtype::{DType, Scalar};
use crate::shape::{elems, strides};

/// Types that the GPU holds.
const TYPES: [DType; 7] = [DType::Bool, DType::U8, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32];
const EXACT: (f64, f64) = (0.0, 0.0);

/// A stream of numbers that look random.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    /// Small numbers that every type holds.
    fn host(&mut self, dtype: DType, shape: &[usize]) -> Host {
        let most = if dtype == DType::Bool { 2 } else { 100 };
        let values: Vec<f64> = (0..elems(shape)).map(|_| self.below(most) as f64).collect();
        Host::new(dtype, shape, &values)
    }

    /// The same with the axes stored in reverse order, so that nothing is row-major.
    fn strided(&mut self, dtype: DType, shape: &[usize]) -> Host {
        let stored: Vec<usize> = shape.iter().rev().copied().collect();
        let steps: Vec<isize> = strides(&stored).iter().rev().copied().collect();
        self.host(dtype, &stored).seen(shape, &steps, 0)
    }

    /// Indices below `size`, some of them counted from the end.
    fn indices(&mut self, dtype: DType, shape: &[usize], size: usize) -> Host {
        let low = if dtype == DType::U8 { 0 } else { size };
        let values: Vec<f64> = (0..elems(shape)).map(|_| self.below(size + low) as f64 - low as f64).collect();
        Host::new(dtype, shape, &values)
    }
}

fn run(op: Op, ins: &[Host], outs: &[(DType, Vec<usize>)], args: &[u64], tolerance: (f64, f64)) {
    compare(&Kernel::Op(op), &outs[0].1, ins, outs, args, tolerance);
}

#[test]
fn test_g01_numbers_of_arguments_alone() {
    for dtype in TYPES {
        for n in [1usize, 7, 1030] {
            let out = [(dtype, vec![n])];
            run(Op::Const, &[], &out, &[Scalar::Float(3.0).to_arg(dtype)], EXACT);
            let args = [Scalar::Int(2), Scalar::Int(-3)].map(|s| s.to_arg(dtype));
            run(Op::Arange, &[], &out, &args, EXACT);
        }
    }
    let out = [(DType::F32, vec![1001])];
    for (start, step) in [(0.0f64, 0.1f64), (-1.0, 1.0 / 512.0), (1e30, -3e27), (5e-324, 1e-40), (f64::INFINITY, 1.0), (0.1, 0.0)]
    {
        run(Op::Arange, &[], &out, &[start.to_bits(), step.to_bits()], (1.2e-7, 2e-45 + 1e-17 * start.abs().min(1e300)));
    }
    let wide = [i64::MAX as u64 - 5, (-(1i64 << 33) - 7) as u64];
    run(Op::Arange, &[], &[(DType::I64, vec![300])], &wide, EXACT);
    run(Op::Const, &[], &[(DType::I64, vec![300])], &wide, EXACT);
}

#[test]
fn test_g01_copies_concatenations_and_slices() {
    let mut draw = Draw(1);
    for dtype in TYPES {
        let x = draw.strided(dtype, &[5, 7, 3]);
        run(Op::Copy, &[x], &[(dtype, vec![5, 7, 3])], &[], EXACT);
        for axis in 0..3 {
            let sizes = [1usize, 4, 700];
            let mut shape = vec![5, 6, 7];
            let ins: Vec<Host> = sizes
                .iter()
                .map(|&d| {
                    shape[axis] = d;
                    if d == 4 { draw.strided(dtype, &shape) } else { draw.host(dtype, &shape) }
                })
                .collect();
            shape[axis] = sizes.iter().sum();
            run(Op::Concat(axis), &ins, &[(dtype, shape)], &[], EXACT);
        }
        let ranges = [(4, -2, 3), (1, 3, 2), (0, 1, 3)];
        let v = draw.strided(dtype, &[3, 2, 3]);
        let x = draw.host(dtype, &[5, 7, 3]);
        run(Op::SliceAssign(ranges.into()), &[x, v], &[(dtype, vec![5, 7, 3])], &[], EXACT);
    }
}

#[test]
fn test_g01_gathers_and_takes() {
    let mut draw = Draw(2);
    for dtype in TYPES {
        for (k, index, of) in
            [(0, DType::I32, vec![]), (1, DType::I64, vec![3, 50]), (2, DType::I32, vec![40]), (2, DType::U8, vec![])]
        {
            let shape = [11, 9, 5];
            for is_strided in [false, true] {
                let mut ins = vec![if is_strided { draw.strided(dtype, &shape) } else { draw.host(dtype, &shape) }];
                ins.extend((0..k).map(|a| draw.indices(index, &of, shape[a])));
                let out: Vec<usize> = of.iter().chain(&shape[k..]).copied().collect();
                run(Op::Gather(k.into()), &ins, &[(dtype, out)], &[], EXACT);
            }
        }
        for (axis, of) in [(0, [30, 9, 5]), (1, [11, 2, 5]), (2, [11, 9, 70])] {
            let ins = [draw.strided(dtype, &[11, 9, 5]), draw.indices(DType::I64, &of, [11, 9, 5][axis])];
            run(Op::TakeAlong(axis.into()), &ins, &[(dtype, of.to_vec())], &[], EXACT);
        }
    }
}

#[test]
fn test_g01_repeated_targets_add_in_order_and_the_last_write_wins() {
    let mut draw = Draw(3);
    for dtype in TYPES {
        for (places, width, rows) in [(1, 1, 1), (700, 3, 5), (5000, 1, 3), (3000, 2, 4000)] {
            let of = [places];
            let x = draw.host(dtype, &[rows, width]);
            let v = draw.strided(dtype, &[places, width]);
            let idx = draw.indices(DType::I64, &of, rows);
            // Sums of small integers are exact in f32; in 16 bits they are rounded once.
            let out = [(dtype, vec![rows, width])];
            run(Op::ScatterAdd(1.into()), &[x.clone(), idx.clone(), v.clone()], &out, &[], EXACT);
            run(Op::IndexPut(1.into()), &[x, idx, v], &out, &[], EXACT);
        }
        let ins = [
            draw.host(dtype, &[6, 4, 2]),
            draw.indices(DType::I32, &[5, 20], 6),
            draw.indices(DType::I32, &[5, 20], 4),
            draw.host(dtype, &[5, 20, 2]),
        ];
        run(Op::ScatterAdd(2.into()), &ins, &[(dtype, vec![6, 4, 2])], &[], EXACT);
        run(Op::IndexPut(2.into()), &ins, &[(dtype, vec![6, 4, 2])], &[], EXACT);
    }
}

#[test]
fn test_g01_additions_along_an_axis() {
    let mut draw = Draw(4);
    for dtype in TYPES {
        for (axis, of) in [(0, [90, 5]), (1, [7, 60]), (1, [7, 3000])] {
            let mut shape = of;
            shape[axis] = 13;
            // Whole numbers whose sums 16-bit floats hold: the CPU rounds each of them.
            let small = |d: &mut Draw, s: &[usize]| {
                let values: Vec<f64> = (0..elems(s)).map(|_| f64::from(u8::from(d.below(40) == 0))).collect();
                Host::new(dtype, s, &values)
            };
            let ins = [small(&mut draw, &shape), draw.indices(DType::I64, &of, 13), small(&mut draw, &of)];
            run(Op::ScatterAlong(axis.into()), &ins, &[(dtype, shape.to_vec())], &[], EXACT);
        }
    }
}

#[test]
fn test_g05_sums_at_repeated_targets_have_the_same_bits_every_run() {
    let mut draw = Draw(5);
    let (places, width, rows) = (20_000, 3, 7);
    let values: Vec<f64> = (0..places * width).map(|_| draw.below(1 << 24) as f64 / 7919.0 - 1000.0).collect();
    let ins = [
        Host::new(DType::F32, &[rows, width], &vec![0.25; rows * width]),
        draw.indices(DType::I32, &[places], rows),
        Host::new(DType::F32, &[places, width], &values),
    ];
    let out = [(DType::F32, vec![rows, width])];
    run(Op::ScatterAdd(1.into()), &ins, &out, &[], (1e-4, 1.0));
    let again = || on_gpu(&Kernel::Op(Op::ScatterAdd(1.into())), &out[0].1, &ins, &out, &[]);
    let first = again();
    for _ in 0..3 {
        assert_eq!(again(), first);
    }
}

#[test]
fn test_g01_sorts_of_any_length_are_stable() {
    let mut draw = Draw(6);
    let special = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, -1.5];
    for (shape, dtypes) in [
        (vec![], &TYPES[..]),
        (vec![3, 1], &TYPES[4..]),
        (vec![700, 3], &TYPES[2..4]),
        (vec![4, 5, 64], &TYPES[..]),
        (vec![3, 1000], &TYPES[3..]),
        (vec![2, 1025], &TYPES[2..5]),
        (vec![5, 2048], &TYPES[6..]),
        (vec![70_001], &TYPES[3..]),
    ] {
        for &dtype in dtypes {
            let values: Vec<f64> = (0..elems(&shape))
                .map(|_| match (dtype.is_float(), draw.below(8)) {
                    (true, 0) => special[draw.below(6)],
                    (false, 0) if dtype == DType::I64 => [i64::MIN as f64, i64::MAX as f64][draw.below(2)],
                    (false, 0) if dtype == DType::I32 => f64::from([i32::MIN, i32::MAX][draw.below(2)]),
                    _ if dtype == DType::Bool => draw.below(2) as f64,
                    _ => draw.below(200) as f64 - if dtype == DType::U8 { 0.0 } else { 100.0 },
                })
                .collect();
            let x = Host::new(dtype, &shape, &values);
            for descending in [false, true] {
                let outs = [(dtype, shape.clone()), (DType::I64, shape.clone())];
                run(Op::Sort { descending }, std::slice::from_ref(&x), &outs, &[], EXACT);
            }
        }
    }
}

#[test]
fn test_g01_running_sums_and_products() {
    let mut draw = Draw(7);
    for (shape, axes) in
        [(vec![1], vec![0]), (vec![70_001], vec![0]), (vec![3, 5000], vec![0, 1]), (vec![7, 300, 11], vec![0, 1, 2])]
    {
        for dtype in [DType::U8, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32] {
            // Powers of two whose products stay small now and then, zeros rarely; sums exact.
            let few: Vec<f64> = (0..elems(&shape))
                .map(|_| if dtype.is_float() { [1.0, 0.5, 2.0, -1.0][draw.below(4)] } else { 1.0 + draw.below(3) as f64 })
                .collect();
            let x = Host::new(dtype, &shape, &few);
            for &axis in &axes {
                let out = [(dtype, shape.clone())];
                for reverse in [false, true] {
                    run(Op::Cumsum { axis, reverse }, std::slice::from_ref(&x), &out, &[], (1e-7, 0.0));
                }
                run(Op::Cumprod(axis), std::slice::from_ref(&x), &out, &[], (1e-7, 0.0));
            }
        }
    }
    // Sums cancel to what f32 alone would lose, products leave f32's range and come back.
    let n = 40_000;
    let sums: Vec<f64> = (0..n)
        .map(|i| match i % 3 {
            0 => 1e8,
            1 => 0.375 + (i % 13) as f64 / 16.0,
            _ => -1e8,
        })
        .collect();
    let x = Host::new(DType::F32, &[n], &sums);
    run(Op::Cumsum { axis: 0, reverse: false }, &[x], &[(DType::F32, vec![n])], &[], (1e-6, 1e-4));
    let products: Vec<f64> = (0..3000).map(|i| if i / 5 % 2 == 0 { 1e9 } else { 1e-9 }).collect();
    let x = Host::new(DType::F32, &[3000], &products);
    run(Op::Cumprod(0), &[x], &[(DType::F32, vec![3000])], &[], (1e-4, 0.0));
    let odd = Host::new(DType::F32, &[4], &[f64::INFINITY, 1.0, f64::NEG_INFINITY, 2.0]);
    run(Op::Cumsum { axis: 0, reverse: false }, std::slice::from_ref(&odd), &[(DType::F32, vec![4])], &[], EXACT);
    run(Op::Cumprod(0), &[odd], &[(DType::F32, vec![4])], &[], EXACT);
}

#[test]
fn test_g06_random_numbers_are_those_of_the_cpu() {
    let bits = f64::to_bits;
    let (key, counter) = (0x1234_5678_9abc_def0u64, u64::from(u32::MAX) - 3);
    for n in [1usize, 3, 1000, 40_003] {
        for (low, high) in [(0.0, 1.0), (-2.5, 7.1), (1.0, 1.0 + 2.0 * f64::from(f32::EPSILON)), (-2.0, 0.0)] {
            let args = [key, counter, bits(low), bits(high)];
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                run(Op::Random(RandomKind::Uniform), &[], &[(dtype, vec![n])], &args, EXACT);
            }
        }
        for (low, high) in [(0i64, 10i64), (-7, 300), (i64::MIN, i64::MAX), (-5, 1 << 40)] {
            let args = [key, counter, low as u64, high as u64];
            run(Op::Random(RandomKind::Randint), &[], &[(DType::I64, vec![n])], &args, EXACT);
            run(Op::Random(RandomKind::Randint), &[], &[(DType::I32, vec![n])], &args, EXACT);
        }
        run(Op::Random(RandomKind::Randint), &[], &[(DType::U8, vec![n])], &[key, counter, 250, 256], EXACT);
        // The logarithm and the rotation are each within 2 units in the last place.
        run(Op::Random(RandomKind::Normal), &[], &[(DType::F32, vec![n])], &[key, counter, bits(3.0), bits(2.0)], (4e-7, 2e-6));
    }
}

#[test]
fn test_r04_updates_are_those_of_the_cpu() {
    let mut draw = Draw(8);
    let n = 1003;
    let adam = |decoupled: f64| vec![1e-3, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001, decoupled];
    for (kind, args) in [
        (UpdateKind::Sgd, vec![0.1, 0.01]),
        (UpdateKind::SgdMomentum, vec![0.1, 0.01, 0.9, 0.1, 0.0, 0.0]),
        (UpdateKind::SgdMomentum, vec![0.1, 0.01, 0.9, 0.0, 1.0, 1.0]),
        (UpdateKind::Adam, adam(0.0)),
        (UpdateKind::Adam, adam(1.0)),
    ] {
        for (dtype, tolerance) in [(DType::F32, (1e-6, 1e-8)), (DType::F16, (1e-3, 1e-6)), (DType::BF16, (8e-3, 1e-6))] {
            let states = match kind {
                UpdateKind::Sgd => 1,
                UpdateKind::SgdMomentum => 2,
                UpdateKind::Adam => 3,
            };
            let ins: Vec<Host> = (0..=states)
                .map(|_| {
                    let values: Vec<f64> = (0..n).map(|_| draw.below(1 << 20) as f64 / f64::from(1 << 20) + 0.01).collect();
                    Host::new(dtype, &[n], &values)
                })
                .collect();
            let outs = vec![(dtype, vec![n]); states];
            let args: Vec<u64> = args.iter().map(|a: &f64| a.to_bits()).collect();
            run(Op::Update(kind), &ins, &outs, &args, tolerance);
        }
    }
}

/// Pipelines are keyed by text: another size must not need another one.
#[test]
fn test_g01_sizes_are_numbers_and_not_text() {
    let gpu = device();
    let texts = |n: usize| -> Vec<String> {
        let (x, of) = ([n, 3 * n], [n]);
        let steps = [strides(&x), strides(&of)];
        let view = |slot, dtype, shape: &'static [usize], strides: &'static [isize]| View { slot, dtype, shape, strides };
        let (x, of): (&'static [usize], &'static [usize]) = (Vec::from(x).leak(), Vec::from(of).leak());
        let (wide, long): (&'static [isize], &'static [isize]) = (steps[0].to_vec().leak(), steps[1].to_vec().leak());
        let ins = [
            view(Slot::In(0), DType::F32, x, wide),
            view(Slot::In(1), DType::I32, of, long),
            view(Slot::In(2), DType::F32, x, wide),
        ];
        let outs = [view(Slot::Out(0), DType::F32, x, wide), view(Slot::Out(1), DType::I64, x, wide)];
        let ops = [
            Op::ScatterAdd(1.into()),
            Op::IndexPut(1.into()),
            Op::Gather(1.into()),
            Op::Sort { descending: true },
            Op::Cumprod(1),
        ];
        let dispatches = ops.iter().flat_map(|op| prepare(&Kernel::Op(op.clone()), x, &ins, &outs, gpu.caps).unwrap().dispatches);
        dispatches.map(|d| d.source.text(false)).collect()
    };
    assert_eq!(texts(700), texts(901));
}

#[test]
fn test_g01_bad_indices_read_zero_drop_writes_and_are_reported() {
    let x = Host::new(DType::F32, &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let idx = Host::new(DType::I64, &[3], &[-3.0, 3.0, 1.0]);
    let v = Host::new(DType::F32, &[3, 2], &[10.0; 6]);
    let out = [(DType::F32, vec![3, 2])];
    let on_gpu = |op: Op, ins: &[Host]| decode(DType::F32, &on_gpu(&Kernel::Op(op), &[3, 2], ins, &out, &[])[0]);
    assert_eq!(on_gpu(Op::Gather(1.into()), &[x.clone(), idx.clone()]), [1.0, 2.0, 0.0, 0.0, 3.0, 4.0]);
    let added = [11.0, 12.0, 13.0, 14.0, 5.0, 6.0];
    assert_eq!(on_gpu(Op::ScatterAdd(1.into()), &[x.clone(), idx.clone(), v.clone()]), added);
    assert_eq!(on_gpu(Op::IndexPut(1.into()), &[x.clone(), idx, v.clone()]), [10.0, 10.0, 10.0, 10.0, 5.0, 6.0]);
    // Beyond 32 bits, where the low word alone would be in range.
    let far = Host::new(DType::I64, &[3, 2], &[4_294_967_296.0, 0.0, 1.0, -4_294_967_295.0, 0.0, 2.0]);
    assert_eq!(on_gpu(Op::TakeAlong(0.into()), &[x.clone(), far.clone()]), [0.0, 2.0, 3.0, 0.0, 1.0, 6.0]);
    // The flag is the device's: another test may look at it first.
    let is_reported = (0..20).any(|_| {
        let ins = [x.clone(), far.clone(), v.clone()];
        assert_eq!(on_gpu(Op::ScatterAlong(0.into()), &ins), [11.0, 12.0, 13.0, 4.0, 5.0, 16.0]);
        device().check_tickets().is_err_and(|e| e.code() == "index")
    });
    assert!(is_reported);
}
