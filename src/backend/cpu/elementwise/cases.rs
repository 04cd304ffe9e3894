//! Single cases: edges of each op, unsupported pairs, machine versions and threads.
use super::reference::{self, V};
use super::*;
use crate::backend::expr::{EwOp, Instr, Src};
use crate::backend::kind::{BinaryKind, UnaryKind};
use crate::dtype::DType;
use half::{bf16, f16};

fn run1(kind: UnaryKind, x: &[f32]) -> Vec<f32> {
    let instr = Instr { op: EwOp::Unary(kind), input: DType::F32, out: DType::F32, srcs: [Src::Input(0)].into_iter().collect() };
    let expr = Expr {
        inputs: [DType::F32].into_iter().collect(),
        instrs: vec![instr],
        outputs: [(Src::Instr(0), DType::F32)].into_iter().collect(),
    };
    let mut out = vec![0f32; x.len()];
    let (shape, strides) = ([x.len()], [1]);
    let view = |p: *const f32| View { ptr: p.cast_mut().cast(), dtype: DType::F32, shape: &shape, strides: &strides };
    run_fused(&expr, &[view(x.as_ptr())], &[view(out.as_mut_ptr())], &[]).unwrap();
    out
}

/// Runs two i64 operands or two f32 operands.
fn run2<T: Copy + Default>(kind: BinaryKind, dtype: DType, x: &[T], y: &[T]) -> Vec<T> {
    let instr =
        Instr { op: EwOp::Binary(kind), input: dtype, out: dtype, srcs: [Src::Input(0), Src::Input(1)].into_iter().collect() };
    let expr = Expr {
        inputs: [dtype, dtype].into_iter().collect(),
        instrs: vec![instr],
        outputs: [(Src::Instr(0), dtype)].into_iter().collect(),
    };
    let mut out = vec![T::default(); x.len()];
    let (shape, strides) = ([x.len()], [1]);
    let view = |p: *const T| View { ptr: p.cast_mut().cast(), dtype, shape: &shape, strides: &strides };
    run_fused(&expr, &[view(x.as_ptr()), view(y.as_ptr())], &[view(out.as_mut_ptr())], &[]).unwrap();
    out
}

#[test]
fn quotients_and_remainders_are_numpys() {
    let a = [7.0, -7.0, 7.0, -7.0, 0.0, 6.0, 1.0, -1.0f32];
    let b = [2.0, 2.0, -2.0, -2.0, -3.0, -3.0, 0.0, f32::INFINITY];
    let q = run2(BinaryKind::FloorDiv, DType::F32, &a, &b);
    assert_eq!(q, [3.0, -4.0, -4.0, 3.0, -0.0, -2.0, f32::INFINITY, -1.0]);
    let r = run2(BinaryKind::Rem, DType::F32, &a, &b);
    assert_eq!(r[..6], [1.0, 1.0, -1.0, -1.0, -0.0, -0.0]);
    assert!(r[6].is_nan() && r[7] == f32::INFINITY && r[5].is_sign_negative());
    let (a, b) = ([7i64, -7, 7, -7, 5, i64::MIN, 0], [2i64, 2, -2, -2, 0, -1, 5]);
    assert_eq!(run2(BinaryKind::FloorDiv, DType::I64, &a, &b), [3, -4, -4, 3, 0, i64::MIN, 0]);
    assert_eq!(run2(BinaryKind::Rem, DType::I64, &a, &b), [1, 1, -1, -1, 0, 0, 0]);
}

#[test]
fn integer_powers_and_shifts() {
    let (a, b) = ([2i32, -2, 0, 1, -1, -1, 7, 3], [10i32, 3, 0, -5, -5, -4, -1, 40]);
    assert_eq!(run2(BinaryKind::Pow, DType::I32, &a, &b), [1024, -8, 1, 1, -1, 1, 0, 3i32.wrapping_pow(40)]);
    let (a, b) = ([1i32, -8, 5, -5, 1, 6], [31i32, 1, 32, 99, -1, 1]);
    assert_eq!(run2(BinaryKind::Shl, DType::I32, &a, &b), [i32::MIN, -16, 0, 0, 0, 12]);
    assert_eq!(run2(BinaryKind::Shr, DType::I32, &a, &b), [0, -4, 0, -1, 0, 3]);
    assert_eq!(run2(BinaryKind::Shr, DType::U8, &[200u8, 200], &[3u8, 8]), [25, 0]);
}

#[test]
fn rounding_and_signs() {
    let x = [0.5, 1.5, -0.5, 2.5, f32::NAN, -0.0, -3.2];
    assert_eq!(run1(UnaryKind::Round, &x)[..4], [0.0, 2.0, -0.0, 2.0]);
    assert_eq!(run1(UnaryKind::Floor, &x)[6], -4.0);
    let s = run1(UnaryKind::Sign, &x);
    assert!(s[4].is_nan() && s[5].to_bits() == (-0.0f32).to_bits() && s[6] == -1.0);
    assert!(run1(UnaryKind::Relu, &x)[4].is_nan());
    let far = [1e30f32, 3e8, f32::INFINITY, 1.0];
    let sin = run1(UnaryKind::Sin, &far);
    assert!((f64::from(sin[1]) - 3e8f64.sin()).abs() < 1e-6 && sin[2].is_nan() && sin[0].abs() <= 1.0);
}

#[test]
fn every_half_survives_and_every_f32_rounds() {
    for h in 0..=u16::MAX {
        let x = f16::from_bits(h);
        assert!(x.is_nan() && super::cast::f16_value(h).is_nan() || super::cast::f16_value(h).to_bits() == x.to_f32().to_bits());
    }
    for k in 0..4_000_000u32 {
        let x = f32::from_bits(k.wrapping_mul(1073));
        if x.is_nan() {
            assert!(f16::from_bits(super::cast::f16_bits(x)).is_nan() && bf16::from_bits(super::cast::bf16_bits(x)).is_nan());
        } else {
            assert_eq!(super::cast::f16_bits(x), f16::from_f32(x).to_bits(), "{x}");
            assert_eq!(super::cast::bf16_bits(x), bf16::from_f32(x).to_bits(), "{x}");
        }
    }
}

#[test]
fn wide_integers_round_once() {
    let tie = (1i64 << 60) + (1 << 52);
    let around = (0..4000i64).map(|k| k.wrapping_mul(0x1234_5678_9abc_def1) >> (k % 60));
    for x in [tie, tie + 1, tie - 1, -tie, -tie - 1, 1 - tie, i64::MAX, i64::MIN, 0].into_iter().chain(around) {
        let bits = super::cast::bf16_bits(super::cast::to_odd(super::cast::sticky(x) as f64));
        assert!(reference::same(V::F32(bf16::from_bits(bits).to_f32()), reference::cast(V::I64(x), DType::BF16)), "{x}");
    }
}

#[test]
fn unsupported_pairs_are_errors() {
    let bad = |op: EwOp, dtype: DType, n: usize| {
        let instr = Instr { op, input: dtype, out: dtype, srcs: (0..n).map(|_| Src::Input(0)).collect() };
        let expr = Expr {
            inputs: [dtype].into_iter().collect(),
            instrs: vec![instr],
            outputs: [(Src::Instr(0), dtype)].into_iter().collect(),
        };
        FusedProgram::new(&expr).is_err()
    };
    assert!(bad(EwOp::Unary(UnaryKind::Exp), DType::I32, 1));
    assert!(bad(EwOp::Unary(UnaryKind::BitNot), DType::F32, 1));
    assert!(bad(EwOp::Binary(BinaryKind::And), DType::F32, 2));
    assert!(bad(EwOp::Binary(BinaryKind::Pow), DType::Bool, 2));
    assert!(bad(EwOp::Binary(BinaryKind::Add), DType::F32, 1));
    assert!(bad(EwOp::Binary(BinaryKind::Lt), DType::F32, 2));
}

#[test]
fn test_t16_machine_versions_and_threads_give_the_same_bits() {
    use super::isa::{Io, Isa, LANES};
    let x: Vec<f32> = (0..LANES * 64).map(|i| f32::from_bits((i as u32).wrapping_mul(524_287))).collect();
    let best = Isa::get();
    for &kind in UnaryKind::ALL.iter().filter(|k| !k.gives_bool() && **k != UnaryKind::BitNot) {
        let run = |isa: Isa| {
            let mut out = vec![0f32; x.len()];
            let src = x.as_ptr().cast();
            let io = Io { dst: out.as_mut_ptr().cast(), src: [src; 3], step: [1; 3], blocks: 64, n: x.len() };
            unsafe { super::step::run_step(isa, super::step::StepOp::Unary(kind, DType::F32), &io) };
            out
        };
        let base = run(Isa::Base);
        for isa in [Isa::Avx2, Isa::Avx512].into_iter().filter(|i| *i as u8 <= best as u8) {
            let got = run(isa);
            for i in 0..x.len() {
                let same = base[i].to_bits() == got[i].to_bits() || (base[i].is_nan() && got[i].is_nan());
                assert!(same, "{kind:?} of {} on {isa:?}: {} is not {}", x[i], got[i], base[i]);
            }
        }
    }
    let x: Vec<f32> = (0..300_001).map(|i| (i as f32 * 0.7).sin() * 4.0).collect();
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run1(UnaryKind::Gelu, &x))
    };
    assert!(on(1).iter().zip(&on(3)).all(|(a, b)| a.to_bits() == b.to_bits()));
}
