//! The interpreter against a scalar reference over random expressions, shapes, strides and dtypes.
use super::reference::{V, arg, binary, cast, read, round, same, unary};
use super::*;
use crate::backend::expr::{EwOp, Instr, Src};
use crate::backend::kind::{BinaryKind, UnaryKind};
use crate::dtype::DType;
use half::{bf16, f16};
use proptest::prelude::*;

/// A generator of test choices.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) ^ self.0 >> 47
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A tensor with its own memory, strides and offset.
struct Tensor {
    mem: Vec<u64>,
    offset: usize,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

impl Tensor {
    fn view(&self) -> View<'_> {
        let ptr = self.mem.as_ptr().cast::<u8>().wrapping_add(self.offset * self.dtype.size_bytes()).cast_mut();
        View { ptr, dtype: self.dtype, shape: &self.shape, strides: &self.strides }
    }

    fn at(&self, mut linear: usize) -> V {
        let mut off = 0;
        for (&d, &s) in self.shape.iter().zip(&self.strides).rev() {
            off += (linear % d) as isize * s;
            linear /= d;
        }
        read(self.view().ptr, off, self.dtype)
    }

    fn random(rng: &mut Rng, dtype: DType, shape: &[usize]) -> Tensor {
        let rank = shape.len();
        let mut order: Vec<usize> = (0..rank).collect();
        if rng.below(3) == 0 {
            (0..rank).for_each(|i| order.swap(i, rng.below(rank)));
        }
        let sliced = rng.below(3) == 0;
        let (mut strides, mut step, mut offset) = (vec![0isize; rank], 1usize, 0usize);
        for &a in order.iter().rev() {
            if rng.below(5) == 0 {
                continue;
            }
            let gap = if sliced { 1 + rng.below(3) } else { 1 };
            strides[a] = (step * gap) as isize;
            if rng.below(6) == 0 {
                strides[a] = -strides[a];
                offset += step * gap * shape[a].saturating_sub(1);
            }
            step *= gap * shape[a].max(1);
        }
        let mut t = Tensor { mem: vec![0; step + 8], offset, dtype, shape: shape.to_vec(), strides };
        t.fill(rng, step + 8);
        t
    }

    fn fill(&mut self, rng: &mut Rng, n: usize) {
        let p = self.mem.as_mut_ptr().cast::<u8>();
        for i in 0..n {
            let special = [f32::NAN, f32::INFINITY, -0.0, 0.0, 1e-40, f32::NEG_INFINITY];
            let f = if rng.below(16) == 0 { rng.pick(&special) } else { (rng.below(4001) as f32 - 2000.0) / 128.0 };
            let int = if rng.below(16) == 0 { i64::MIN + rng.below(3) as i64 } else { rng.below(300) as i64 - 100 };
            unsafe {
                match self.dtype {
                    DType::Bool => *p.add(i) = (int & 1) as u8,
                    DType::U8 => *p.add(i) = int as u8,
                    DType::I32 => *p.cast::<i32>().add(i) = (int >> 20) as i32 ^ int as i32,
                    DType::I64 => *p.cast::<i64>().add(i) = int,
                    DType::F16 => *p.cast::<u16>().add(i) = f16::from_f32(f).to_bits(),
                    DType::BF16 => *p.cast::<u16>().add(i) = bf16::from_f32(f).to_bits(),
                    DType::F32 => *p.cast::<f32>().add(i) = f,
                    DType::F64 => *p.cast::<f64>().add(i) = f64::from(f),
                }
            }
        }
    }

    fn empty(dtype: DType, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        let strides = crate::shape::strides(shape).to_vec();
        Tensor { mem: vec![0x5a5a_5a5a_5a5a_5a5a; n + 8], offset: 0, dtype, shape: shape.to_vec(), strides }
    }
}

/// A random expression whose every instruction has the dtype of some earlier value or is a cast.
fn expression(rng: &mut Rng, inputs: &[DType], args: &mut Vec<u64>) -> Expr {
    use BinaryKind::*;
    let mut values: Vec<(Src, DType)> = inputs.iter().enumerate().map(|(i, &d)| (Src::Input(i as u8), d)).collect();
    let mut instrs = Vec::new();
    for k in 0..1 + rng.below(14) {
        let (a, d) = rng.pick(&values);
        let partner = |rng: &mut Rng, args: &mut Vec<u64>, d: DType| {
            let fits: Vec<Src> = values.iter().filter(|v| v.1 == d).map(|v| v.0).collect();
            if rng.below(3) == 0 || fits.is_empty() {
                let x = rng.below(9) as f64 - 3.3;
                args.push(if d.is_float() {
                    x.to_bits()
                } else if d == DType::Bool {
                    u64::from(x > 0.0)
                } else {
                    x as i64 as u64
                });
                Src::Arg(args.len() as u16 - 1)
            } else {
                rng.pick(&fits)
            }
        };
        let (op, out, srcs) = match rng.below(10) {
            0 => (EwOp::Cast, rng.pick(&DType::ALL), vec![a]),
            1 => {
                let kinds: &[UnaryKind] = match d {
                    DType::F32 | DType::F16 | DType::BF16 => {
                        &[UnaryKind::Neg, UnaryKind::Relu, UnaryKind::Exp, UnaryKind::Tanh, UnaryKind::IsNan, UnaryKind::IsFinite]
                    }
                    DType::F64 => &[UnaryKind::Neg, UnaryKind::Exp, UnaryKind::Tanh, UnaryKind::IsNan, UnaryKind::LogicalNot],
                    DType::Bool => &[UnaryKind::LogicalNot, UnaryKind::IsFinite],
                    _ => &[UnaryKind::Neg, UnaryKind::LogicalNot, UnaryKind::IsNan],
                };
                let kind = rng.pick(kinds);
                (EwOp::Unary(kind), if kind.gives_bool() { DType::Bool } else { d }, vec![a])
            }
            2 => {
                let c = partner(rng, args, DType::Bool);
                let b = partner(rng, args, d);
                (EwOp::Where, d, vec![c, a, b])
            }
            _ => {
                let mut kinds = vec![Add, Sub, Mul, Maximum, Minimum, Eq, Ne, Lt, Ge];
                if d != DType::Bool {
                    kinds.push(ReluGrad);
                }
                if d.is_float() {
                    kinds.push(Div);
                }
                let kind = rng.pick(&kinds);
                let b = partner(rng, args, d);
                let srcs = if rng.below(2) == 0 { vec![a, b] } else { vec![b, a] };
                (EwOp::Binary(kind), if kind.gives_bool() { DType::Bool } else { d }, srcs)
            }
        };
        instrs.push(Instr { op, input: d, out, srcs: srcs.into_iter().collect() });
        values.push((Src::Instr(k as u8), out));
    }
    let mut outputs = SmallVec::new();
    outputs.push(*values.last().unwrap());
    for _ in 0..rng.below(3) {
        outputs.push(rng.pick(&values));
    }
    Expr { inputs: inputs.iter().copied().collect(), instrs, outputs }
}

fn reference(expr: &Expr, ins: &[Tensor], args: &[u64], i: usize) -> Vec<V> {
    let mut regs: Vec<V> = Vec::new();
    let get = |s: Src, d: DType, regs: &[V]| match s {
        Src::Input(k) => ins[usize::from(k)].at(i),
        Src::Arg(k) => arg(args[usize::from(k)], d),
        Src::Instr(k) => regs[usize::from(k)],
    };
    for t in &expr.instrs {
        let a = get(t.srcs[0], if t.op == EwOp::Where { DType::Bool } else { t.input }, &regs);
        let v = match t.op {
            EwOp::Unary(k) => unary(k, a),
            EwOp::Binary(k) => binary(k, a, get(t.srcs[1], t.input, &regs), t.input),
            EwOp::Where => {
                let (x, y) = (get(t.srcs[1], t.input, &regs), get(t.srcs[2], t.input, &regs));
                if matches!(a, V::U8(0)) { y } else { x }
            }
            EwOp::Cast => cast(a, t.out),
        };
        regs.push(round(v, t.out));
    }
    expr.outputs.iter().map(|&(s, d)| get(s, d, &regs)).collect()
}

fn shapes(rng: &mut Rng) -> Vec<usize> {
    let fixed: [&[usize]; 18] = [
        &[3, 70, 90],
        &[257, 200],
        &[],
        &[0],
        &[1],
        &[127],
        &[128],
        &[129],
        &[7, 13],
        &[3, 0, 2],
        &[2, 3, 5, 7],
        &[31, 257],
        &[64, 64],
        &[5, 1023],
        &[3, 5000],
        &[9000],
        &[17, 3, 41, 2],
        &[1, 1, 4096],
    ];
    rng.pick(&fixed).to_vec()
}

fn check(seed: u64) {
    let rng = &mut Rng(seed);
    let shape = shapes(rng);
    let dtypes: Vec<DType> = (0..1 + rng.below(4)).map(|_| rng.pick(&DType::ALL)).collect();
    let mut args = Vec::new();
    let expr = expression(rng, &dtypes, &mut args);
    let ins: Vec<Tensor> = dtypes.iter().map(|&d| Tensor::random(rng, d, &shape)).collect();
    let outs: Vec<Tensor> = expr.outputs.iter().map(|&(_, d)| Tensor::empty(d, &shape)).collect();
    let program = FusedProgram::new(&expr).unwrap();
    let n: usize = shape.iter().product();
    let expected: Vec<Vec<V>> = (0..n).map(|i| reference(&expr, &ins, &args, i)).collect();
    let views: Vec<View> = ins.iter().map(Tensor::view).collect();
    let out_views: Vec<View> = outs.iter().map(Tensor::view).collect();
    program.run(&views, &out_views, &args).unwrap();
    for (k, out) in outs.iter().enumerate() {
        for i in 0..n {
            assert!(
                same(out.at(i), expected[i][k]),
                "seed {seed} out {k} at {i}: {:?} is not {:?}\n{expr:?}",
                out.at(i),
                expected[i][k]
            );
        }
        let past = unsafe { *out.view().ptr.add(n * out.dtype.size_bytes()) };
        assert_eq!(past, 0x5a, "wrote past the end");
    }
    // In place: an output takes the memory of a contiguous input of its dtype.
    let Some((j, k)) = (0..ins.len())
        .flat_map(|j| (0..outs.len()).map(move |k| (j, k)))
        .find(|&(j, k)| views[j].is_contiguous() && ins[j].dtype == outs[k].dtype && n > 0)
    else {
        return;
    };
    let mut out_views = out_views.clone();
    out_views[k].ptr = views[j].ptr;
    program.run(&views, &out_views, &args).unwrap();
    for i in 0..n {
        let got = read(out_views[k].ptr, i as isize, outs[k].dtype);
        assert!(same(got, expected[i][k]), "seed {seed} in place, out {k} at {i}: {got:?} is not {:?}\n{expr:?}", expected[i][k]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn random_expressions_match_the_reference(seed: u64) {
        check(seed);
    }
}

#[test]
fn a_quotient_beside_a_tie_of_bfloat16_is_rounded_away_from_it() {
    check(1_443_852_789_474_441_964);
}
