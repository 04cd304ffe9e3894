//! Generated text: one pipeline for all sizes, and valid in every shading language that wgpu translates to.
use super::*;
use crate::backend::gpu::codegen::library;
use crate::backend::gpu::launch::{Caps, Dispatch, Slot, View, prepare};
use crate::backend::kind::ReduceKind;
use crate::backend::op::{Op, dropped};
use crate::shape::strides;
use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

const CAPS: Caps = Caps {
    int64: false,
    f16: false,
    subgroup: (0, 0),
    max_bindings: 16,
    max_threads: 256,
    max_groups: 65_535,
    max_immediates: 256,
    workgroup_bytes: 16_384,
    max_bytes: 1 << 27,
    is_software: true,
    fragments: None,
    block: None,
};

/// The dispatches of a kernel on row-major inputs.
fn dispatches(kernel: &Kernel, shape: &[usize], ins: &[DType], out: (DType, &[usize]), caps: Caps) -> Vec<Dispatch> {
    let (steps, out_steps) = (strides(shape), strides(out.1));
    let ins: Vec<View> =
        ins.iter().enumerate().map(|(k, &dtype)| View { slot: Slot::In(k), dtype, shape, strides: &steps }).collect();
    let out = View { slot: Slot::Out(0), dtype: out.0, shape: out.1, strides: &out_steps };
    prepare(kernel, shape, &ins, &[out], caps).unwrap().dispatches
}

/// The texts for adapters without and with 16-bit floats in tensors.
fn both(of: impl Fn(Caps) -> Vec<Dispatch>) -> Vec<String> {
    let all = [false, true].map(|f16| of(Caps { f16, ..CAPS }));
    all.iter().flatten().map(|d| d.source.text(false)).collect()
}

fn fused_texts(expr: &Expr, shape: &[usize]) -> Vec<String> {
    let kernel = Kernel::Fused(expr.clone());
    let of = |caps| dispatches(&kernel, shape, &expr.inputs, (expr.outputs[0].1, shape), caps);
    both(of)
}

fn reduce_texts(kind: ReduceKind, mask: u32, expr: &Expr, shape: &[usize]) -> Vec<String> {
    let kept = dropped(shape, mask);
    let kernel = Kernel::Reduce(kind, mask, expr.clone());
    both(|caps| dispatches(&kernel, shape, &expr.inputs, (expr.outputs[0].1, &kept), caps))
}

fn validated(text: &str) -> (naga::Module, ModuleInfo) {
    let module = naga::front::wgsl::parse_str(text).unwrap_or_else(|e| panic!("{}\n{text}", e.emit_to_string(text)));
    // Nothing that an adapter may lack, but for 16-bit floats where the text asks for them.
    let half = if text.starts_with("enable f16;") { Capabilities::SHADER_FLOAT16 } else { Capabilities::empty() };
    let info = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES | half)
        .validate(&module)
        .unwrap_or_else(|e| panic!("{}\n{text}", e.emit_to_string(text)));
    (module, info)
}

/// Translates to SPIR-V, MSL and HLSL.
fn translated(text: &str) {
    let (module, info) = validated(text);
    spv::write_vec(&module, &info, &spv::Options::default(), None).unwrap();
    let options = msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..Default::default() };
    msl::write_string(&module, &info, &options, &msl::PipelineOptions::default()).unwrap();
    let mut out = String::new();
    let target = Some(hlsl::BindTarget { space: 1, ..Default::default() });
    let shader_model = hlsl::ShaderModel::V6_2;
    let options = hlsl::Options { fake_missing_bindings: true, immediates_target: target, shader_model, ..Default::default() };
    hlsl::Writer::new(&mut out, &options, &hlsl::PipelineOptions::default()).write(&module, &info, None).unwrap();
}

#[test]
fn test_g04_library_files_are_valid_and_their_first_line_says_what_they_own() {
    let mut all = String::from("struct Numbers { nought: u32 }\nvar<immediate> p: Numbers;\n");
    for (name, text) in library::FILES {
        assert!(text.starts_with("// "), "{name}");
        all.push_str(text);
    }
    validated(&all);
}

#[test]
fn test_g04_generated_kernels_translate_to_every_shading_language() {
    let mut cases = Cases::default();
    let mut seen = std::collections::HashSet::new();
    let mut translated = |text: &String| {
        if seen.insert(text.clone()) {
            cases.run(|| translated(text));
        }
    };
    for dtype in DTYPES {
        for &kind in UnaryKind::ALL {
            let expr = single(EwOp::Unary(kind), dtype, unary_out(kind, dtype));
            if exists(&expr) {
                fused_texts(&expr, &[5, 7]).iter().for_each(&mut translated);
            }
        }
        for &kind in BinaryKind::ALL {
            let expr = single(EwOp::Binary(kind), dtype, binary_out(kind, dtype));
            if exists(&expr) {
                fused_texts(&expr, &[5, 7]).iter().for_each(&mut translated);
            }
        }
        for to in DTYPES {
            fused_texts(&single(EwOp::Cast, dtype, to), &[9]).iter().for_each(&mut translated);
        }
        fused_texts(&plain(dtype), &[9]).iter().for_each(&mut translated);
        fused_texts(&single(EwOp::Where, dtype, dtype), &[9]).iter().for_each(&mut translated);
        for &kind in ReduceKind::ALL {
            if crate::backend::cpu::prepare(&Kernel::Reduce(kind, 1, plain(dtype))).is_ok() {
                for shape in [[100_000usize, 3], [3, 100_000]] {
                    for mask in 1..4 {
                        reduce_texts(kind, mask, &plain(dtype), &shape).iter().for_each(&mut translated);
                    }
                }
            }
        }
    }
    for dtype in [DType::F16, DType::BF16] {
        let expr = elementwise::selections(dtype);
        for &output in &expr.outputs {
            let one = Expr { outputs: [output].into_iter().collect(), ..expr.clone() };
            fused_texts(&one, &[9]).iter().for_each(&mut translated);
        }
    }
    // 16 bits that are only moved, to a word of their own and back.
    for (from, to) in [(DType::BF16, DType::I32), (DType::I32, DType::BF16)] {
        let expr = Expr { outputs: [(Src::Input(0), to)].into_iter().collect(), ..plain(from) };
        fused_texts(&expr, &[9]).iter().for_each(&mut translated);
    }
}

#[test]
fn test_g03_a_new_size_needs_no_new_pipeline() {
    let expr = single(EwOp::Binary(BinaryKind::Add), DType::F32, DType::F32);
    assert_eq!(fused_texts(&expr, &[1000, 33]), fused_texts(&expr, &[1 << 20, 77]));
    assert_eq!(
        reduce_texts(ReduceKind::Sum, 1, &plain(DType::F32), &[5000, 64]),
        reduce_texts(ReduceKind::Sum, 1, &plain(DType::F32), &[7001, 99])
    );
    assert_eq!(
        reduce_texts(ReduceKind::Sum, 2, &plain(DType::F32), &[4096, 1000]),
        reduce_texts(ReduceKind::Sum, 2, &plain(DType::F32), &[4000, 900])
    );
}

#[test]
fn test_g02_float64_is_refused_and_the_message_says_what_to_do() {
    let kernel = Kernel::Fused(single(EwOp::Cast, DType::F32, DType::F64));
    let (shape, steps) = ([4usize], [1isize]);
    let view = |slot, dtype| View { slot, dtype, shape: &shape, strides: &steps };
    let error = prepare(&kernel, &shape, &[view(Slot::In(0), DType::F32)], &[view(Slot::Out(0), DType::F64)], CAPS).unwrap_err();
    assert!(error.to_string().contains("float64") && error.to_string().contains("float32"), "{error}");
}

#[test]
fn test_g03_too_many_elements_are_refused_with_their_number() {
    let (shape, steps) = ([1usize << 32], [0isize]);
    let view = |slot| View { slot, dtype: DType::U8, shape: &shape, strides: &steps };
    let error = prepare(&Kernel::Fused(plain(DType::U8)), &shape, &[view(Slot::In(0))], &[view(Slot::Out(0))], CAPS).unwrap_err();
    assert!(error.to_string().contains("4294967296"), "{error}");
    let whole = View { shape: &[], strides: &[], ..view(Slot::Out(0)) };
    let sum = Kernel::Reduce(ReduceKind::Sum, 1, plain(DType::U8));
    let error = prepare(&sum, &shape, &[view(Slot::In(0))], &[whole], CAPS).unwrap_err();
    assert!(error.to_string().contains("a reduction of [4294967296] has more elements"), "{error}");
    let positions = View { dtype: DType::I64, ..view(Slot::Out(1)) };
    let sort = Kernel::Op(Op::Sort { descending: false });
    let long = [(1usize << 30) + 1];
    let [x, values, positions] = [view(Slot::In(0)), view(Slot::Out(0)), positions].map(|v| View { shape: &long, ..v });
    let error = prepare(&sort, &long, &[x], &[values, positions], CAPS).unwrap_err();
    assert!(error.to_string().contains("sort: 1073741825 elements to be sorted on a GPU are more than 2^30"), "{error}");
    let gather = Kernel::Op(Op::Gather(1.into()));
    let (few, next) = ([2usize], [1isize]);
    let at = View { slot: Slot::In(1), dtype: DType::I32, shape: &few, strides: &steps };
    let x = View { shape: &[1 << 31], strides: &next, ..view(Slot::In(0)) };
    let out = View { shape: &few, strides: &next, ..view(Slot::Out(0)) };
    let error = prepare(&gather, &few, &[x, at], &[out], CAPS).unwrap_err();
    assert!(error.to_string().contains("gather: an indexed axis of 2147483648 elements is longer than 2^31 - 1"), "{error}");
    // Two rows of workgroups are one too many where one dimension holds so few.
    let caps = Caps { max_groups: 2, ..CAPS };
    let shape = [1024 * 4 + 1];
    let [x, out] = [view(Slot::In(0)), view(Slot::Out(0))].map(|v| View { shape: &shape, ..v });
    let error = prepare(&Kernel::Fused(plain(DType::U8)), &shape, &[x], &[out], caps).unwrap_err();
    assert!(error.to_string().contains("5 workgroups are more than the adapter's 2 x 2"), "{error}");
}
