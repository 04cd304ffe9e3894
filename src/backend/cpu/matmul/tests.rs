//! Tests of products against naive loops, over layouts, types and sizes.
use super::*;
use crate::backend::cpu::elementwise::run_fused;
use crate::backend::expr::{EwOp, Expr, Instr, Src};
use crate::backend::kind::{BinaryKind, UnaryKind};
use ::half::{bf16, f16};
use proptest::prelude::*;

/// How an operand lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    Plain,
    Transposed,
    Sliced,
    Reversed,
    Spread,
}

/// A value that every dtype holds, small enough for exact sums in 16 bits where the tests want them.
trait Number: Copy + PartialEq + std::fmt::Debug {
    const DTYPE: DType;
    fn of(i: i64) -> Self;
    fn wide(self) -> f64;
}
macro_rules! number {
    ($($t:ty, $d:ident, $of:expr, $wide:expr;)*) => {$(
        impl Number for $t {
            const DTYPE: DType = DType::$d;
            fn of(i: i64) -> $t { $of(i) }
            fn wide(self) -> f64 { $wide(self) }
        }
    )*};
}
number! {
    f32, F32, |i| i as f32 * 0.25, f64::from;
    f64, F64, |i| i as f64 * 0.25, |x| x;
    f16, F16, |i| f16::from_f64(i as f64 * 0.25), f64::from;
    bf16, BF16, |i| bf16::from_f64(i as f64 * 0.25), f64::from;
    i32, I32, |i| i as i32 * 0x0123_4567, f64::from;
    i64, I64, |i| i, |x| x as f64;
    u8, U8, |i| i as u8, f64::from;
}

/// Memory, first element, sizes and strides of an operand.
struct Operand<T> {
    data: Vec<T>,
    first: usize,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

impl<T: Number> Operand<T> {
    fn new(shape: &[usize], lie: Lie, seed: i64) -> Self {
        let rank = shape.len();
        let mut stored = shape.to_vec();
        match lie {
            Lie::Transposed => stored.swap(rank - 1, rank - 2),
            Lie::Sliced => stored.iter_mut().for_each(|d| *d = *d * 2 + 1),
            _ => {}
        }
        let mut strides = shape::strides(&stored).to_vec();
        let mut first = 0;
        match lie {
            Lie::Transposed => strides.swap(rank - 1, rank - 2),
            Lie::Sliced => {
                first = strides.iter().map(|&s| s as usize).sum();
                strides.iter_mut().for_each(|s| *s *= 2);
            }
            Lie::Reversed if shape.contains(&0) => {}
            Lie::Reversed => {
                first = shape.iter().zip(&strides).map(|(&d, &s)| d.saturating_sub(1) * s as usize).sum();
                strides.iter_mut().for_each(|s| *s = -*s);
            }
            Lie::Spread => strides[0] = 0,
            Lie::Plain => {}
        }
        let len = stored.iter().product::<usize>() + 1;
        let data = (0..len as i64).map(|i| T::of((i * 7 + seed) * 5 % 17 - 8)).collect();
        Operand { data, first, shape: shape.to_vec(), strides }
    }

    fn view(&self) -> View<'_> {
        let ptr = self.data[self.first..].as_ptr().cast_mut().cast();
        View { ptr, dtype: T::DTYPE, shape: &self.shape, strides: &self.strides }
    }

    fn at(&self, batch: &[usize], i: usize, j: usize) -> T {
        let rank = self.shape.len();
        let mut index = vec![0; rank];
        index[rank - 2] = i;
        index[rank - 1] = j;
        for x in 0..rank - 2 {
            index[x] = if self.shape[x] == 1 { 0 } else { batch[batch.len() + x + 2 - rank] };
        }
        let offset: isize = index.iter().zip(&self.strides).map(|(&i, &s)| i as isize * s).sum();
        self.data[(self.first as isize + offset) as usize]
    }
}

fn multiplied<T: Number>(a: &Operand<T>, b: &Operand<T>) -> (Vec<usize>, Vec<T>) {
    let (ra, rb) = (a.shape.len(), b.shape.len());
    let mut shape = shape::broadcast("test", &a.shape[..ra - 2], &b.shape[..rb - 2]).unwrap().to_vec();
    shape.extend([a.shape[ra - 2], b.shape[rb - 1]]);
    let strides = shape::strides(&shape);
    let mut out = vec![T::of(99); shape.iter().product::<usize>() + 1];
    let view = View { ptr: out.as_mut_ptr().cast(), dtype: T::DTYPE, shape: &shape, strides: &strides };
    assert_eq!(run(&[a.view(), b.view()], &[view], &[]), Ok(()));
    assert_eq!(out.pop(), Some(T::of(99)));
    (shape, out)
}

/// Calls `check(batch index, i, j, flat)` for every element of the output.
fn each(shape: &[usize], mut check: impl FnMut(&[usize], usize, usize, usize)) {
    let rank = shape.len();
    for flat in 0..shape.iter().product() {
        let (mut index, mut rest) = (vec![0; rank], flat);
        for x in (0..rank).rev() {
            index[x] = rest % shape[x];
            rest /= shape[x];
        }
        check(&index[..rank - 2], index[rank - 2], index[rank - 1], flat);
    }
}

fn check_float<T: Number>(a: &Operand<T>, b: &Operand<T>, epsilon: f64) {
    let k = a.shape[a.shape.len() - 1];
    let (shape, out) = multiplied(a, b);
    each(&shape, |batch, i, j, flat| {
        let terms = (0..k).map(|p| a.at(batch, i, p).wide() * b.at(batch, p, j).wide());
        let (sum, size) = terms.fold((0.0, 0.0), |(s, z), t| (s + t, z + t.abs()));
        assert!((out[flat].wide() - sum).abs() <= epsilon * size, "{:?} {sum} at {batch:?} {i} {j}", out[flat]);
    });
}

fn check_int<T: Number>(a: &Operand<T>, b: &Operand<T>, dot: impl Fn(&mut dyn Iterator<Item = (T, T)>) -> T) {
    let k = a.shape[a.shape.len() - 1];
    let (shape, out) = multiplied(a, b);
    each(&shape, |batch, i, j, flat| {
        let sum = dot(&mut (0..k).map(|p| (a.at(batch, i, p), b.at(batch, p, j))));
        assert_eq!(out[flat], sum, "at {batch:?} {i} {j}");
    });
}

fn check_all(a: &[usize], b: &[usize], lies: (Lie, Lie)) {
    fn pair<T: Number>(a: &[usize], b: &[usize], lies: (Lie, Lie)) -> (Operand<T>, Operand<T>) {
        (Operand::new(a, lies.0, 1), Operand::new(b, lies.1, 2))
    }
    let (x, y) = pair::<f32>(a, b, lies);
    check_float(&x, &y, 1e-6);
    let (x, y) = pair::<f64>(a, b, lies);
    check_float(&x, &y, 1e-15);
    let (x, y) = pair::<f16>(a, b, lies);
    check_float(&x, &y, 1e-3);
    let (x, y) = pair::<bf16>(a, b, lies);
    check_float(&x, &y, 8e-3);
    let (x, y) = pair::<i32>(a, b, lies);
    check_int(&x, &y, |t| t.fold(0, |s, (a, b)| s.wrapping_add(a.wrapping_mul(b))));
    let (x, y) = pair::<i64>(a, b, lies);
    check_int(&x, &y, |t| t.fold(0, |s, (a, b)| s.wrapping_add(a.wrapping_mul(b))));
    let (x, y) = pair::<u8>(a, b, lies);
    check_int(&x, &y, |t| t.fold(0, |s, (a, b)| s.wrapping_add(a.wrapping_mul(b))));
}

fn any_lie() -> impl Strategy<Value = Lie> {
    prop_oneof![Just(Lie::Plain), Just(Lie::Transposed), Just(Lie::Sliced), Just(Lie::Reversed), Just(Lie::Spread)]
}

fn any_size() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0usize), Just(1), 2usize..20, Just(31), Just(32), Just(33), Just(67)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_sizes_and_strides(
        m in any_size(), k in any_size(), n in any_size(), a_lie in any_lie(), b_lie in any_lie(),
        a_batch in prop::collection::vec(1usize..3, 0..3), wide in 1usize..4, share in 0usize..3,
    ) {
        // Batch axes of the right side: as the left's, one or missing.
        let b_batch: Vec<usize> = match share {
            0 => vec![],
            1 => a_batch.iter().map(|_| 1).collect(),
            _ => a_batch.iter().map(|&d| if d == 1 { wide } else { d }).collect(),
        };
        let a: Vec<usize> = a_batch.iter().copied().chain([m, k]).collect();
        let b: Vec<usize> = b_batch.iter().copied().chain([k, n]).collect();
        check_all(&a, &b, (a_lie, b_lie));
    }
}

#[test]
fn sizes_around_the_blocks() {
    use Lie::*;
    for (m, k, n) in [(193, 257, 65), (1, 513, 300), (300, 513, 1), (65, 70, 129), (7, 1030, 1025), (200, 300, 100)] {
        for (la, lb) in [(Plain, Plain), (Transposed, Plain), (Plain, Transposed), (Reversed, Sliced)] {
            check_float(&Operand::<f32>::new(&[m, k], la, 1), &Operand::new(&[k, n], lb, 2), 1e-6);
            check_float(&Operand::<f64>::new(&[m, k], la, 1), &Operand::new(&[k, n], lb, 2), 1e-15);
            check_float(&Operand::<f16>::new(&[m, k], la, 1), &Operand::new(&[k, n], lb, 2), 1e-3);
        }
    }
}

#[test]
fn neither_threads_nor_strides_change_a_bit() {
    use Lie::*;
    let single = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let many = rayon::ThreadPoolBuilder::new().num_threads(5).build().unwrap();
    let noise = |o: &mut Operand<f32>, lie: Lie| {
        let (rows, cols) = (o.shape[0], o.shape[1]);
        for i in 0..rows * cols {
            let at = if lie == Transposed { i % cols * rows + i / cols } else { i };
            o.data[at] = ((i * 7919) % 10007) as f32 * 1e-3 - 5.0;
        }
    };
    for (m, k, n) in [(300, 700, 200), (64, 64, 64), (5, 3000, 700), (1000, 129, 3), (1, 2000, 2000), (2000, 900, 1)] {
        let mut seen: Option<Vec<f32>> = None;
        for (la, lb) in [(Plain, Plain), (Transposed, Plain), (Plain, Transposed), (Transposed, Transposed)] {
            let (mut a, mut b) = (Operand::<f32>::new(&[m, k], la, 1), Operand::<f32>::new(&[k, n], lb, 2));
            noise(&mut a, la);
            noise(&mut b, lb);
            for pool in [&single, &many] {
                let (_, out) = pool.install(|| multiplied(&a, &b));
                assert_eq!(*seen.get_or_insert(out.clone()), out);
            }
        }
    }
}

#[test]
fn machine_versions_agree() {
    let (a, b) = (Operand::<f32>::new(&[37, 300], Lie::Plain, 1), Operand::<f32>::new(&[300, 45], Lie::Transposed, 2));
    check_float(&a, &b, 1e-6);
    let (_, best) = multiplied(&a, &b);
    let versions = [Isa::Base, Isa::Avx2, Isa::Avx512];
    for isa in versions.into_iter().filter(|&i| i as u8 <= Isa::get() as u8) {
        let mut out = vec![0f32; 37 * 45];
        let strides = [45, 1];
        let view = View { ptr: out.as_mut_ptr().cast(), dtype: DType::F32, shape: &[37, 45], strides: &strides };
        let batch = Batch::<f32>::new(&a.view(), &b.view(), &view).unwrap();
        // SAFETY: the operands are as the view describes them, and the machine has at least this version.
        unsafe { f32::product(isa, &batch.first) };
        assert!(out.iter().zip(&best).all(|(x, y)| (x - y).abs() < 1e-2));
        if isa != Isa::Base {
            assert_eq!(out, best);
        }
    }
}

#[test]
fn what_is_not_a_product_is_refused() {
    let a = Operand::<f32>::new(&[2, 3], Lie::Plain, 0);
    assert!(run(&[a.view(), a.view()], &[a.view()], &[]).is_err());
    assert!(run(&[a.view()], &[a.view()], &[]).is_err());
}

/// Where the results of an epilogue go: memory of one more element, which must stay as it is.
struct Results {
    data: Vec<u64>,
    dtype: DType,
    bytes: usize,
}

impl Results {
    fn new(dtype: DType, elems: usize) -> Results {
        Results { data: vec![0x5b5b_5b5b_5b5b_5b5b; elems + 1], dtype, bytes: elems * dtype.size_bytes() }
    }

    fn view<'a>(&self, shape: &'a [usize], strides: &'a [isize]) -> View<'a> {
        View { ptr: self.data.as_ptr().cast_mut().cast(), dtype: self.dtype, shape, strides }
    }

    fn bits(&self) -> Vec<u8> {
        let all: Vec<u8> = self.data.iter().flat_map(|w| w.to_ne_bytes()).collect();
        assert!(all[self.bytes..].iter().all(|&b| b == 0x5b), "written beyond the end");
        all[..self.bytes].to_vec()
    }
}

/// Epilogues over inputs product, column vector, matrix (of the product's dtype): outputs by expression.
fn epilogues(dtype: DType) -> Vec<Expr> {
    let instr = |op, input, out, srcs: &[Src]| Instr { op, input, out, srcs: srcs.into() };
    let sum = |a, b| instr(EwOp::Binary(BinaryKind::Add), dtype, dtype, &[a, b]);
    let (p, v, m) = (Src::Input(0), Src::Input(1), Src::Input(2));
    let square = instr(EwOp::Unary(UnaryKind::Square), dtype, dtype, &[Src::Instr(0)]);
    let cast = |to| instr(EwOp::Cast, dtype, to, &[Src::Instr(0)]);
    let expr =
        |instrs: Vec<Instr>, outputs: &[(Src, DType)]| Expr { inputs: [dtype; 3][..].into(), instrs, outputs: outputs.into() };
    let other = if dtype == DType::F64 { DType::F32 } else { DType::F64 };
    vec![
        expr(vec![sum(p, v)], &[(Src::Instr(0), dtype)]),
        expr(vec![sum(p, v), square.clone()], &[(p, dtype), (Src::Instr(1), dtype)]),
        expr(vec![sum(p, m), square], &[(Src::Instr(1), dtype), (Src::Instr(0), dtype)]),
        // No output has elements of the product's size.
        expr(vec![sum(p, v), cast(other)], &[(Src::Instr(1), other)]),
        expr(vec![sum(m, p), cast(other)], &[(Src::Instr(1), other), (Src::Instr(0), dtype)]),
    ]
}

/// Every epilogue gives the bits that the product and the expression give one after the other.
fn check_epilogues<T: Number>(a: &Operand<T>, b: &Operand<T>) {
    let (shape, product) = multiplied(a, b);
    let strides = shape::strides(&shape);
    let (elems, n) = (product.len(), shape[shape.len() - 1]);
    let column: Vec<T> = (0..n as i64).map(|i| T::of(i % 13 - 6)).collect();
    let matrix: Vec<T> = (0..elems as i64).map(|i| T::of(i % 11 - 5)).collect();
    let mut spread = vec![0isize; shape.len()];
    spread[shape.len() - 1] = 1;
    let dtype = T::DTYPE;
    let view = |of: &[T], strides| View { ptr: of.as_ptr().cast_mut().cast(), dtype, shape: &shape, strides };
    let others = [view(&column, &spread), view(&matrix, &strides)];
    for expr in epilogues(dtype) {
        let results = || -> Vec<Results> { expr.outputs.iter().map(|&(_, d)| Results::new(d, elems)).collect() };
        let views = |of: &[Results]| -> Vec<View> { of.iter().map(|r| r.view(&shape, &strides)).collect() };
        let (apart, fused) = (results(), results());
        assert_eq!(run_fused(&expr, &[view(&product, &strides), others[0], others[1]], &views(&apart), &[]), Ok(()));
        let kernel = FusedProduct::new(&expr).unwrap();
        assert_eq!(kernel.run(&[a.view(), b.view(), others[0], others[1]], &views(&fused), &[]), Ok(()));
        for (x, y) in apart.iter().zip(&fused) {
            assert!(x.bits() == y.bits(), "{expr:?} of {:?} by {:?}", a.shape, b.shape);
        }
    }
}

#[test]
fn test_t16_an_epilogue_gives_the_bits_of_a_kernel_of_its_own() {
    use Lie::*;
    let many = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let sizes: [(&[usize], &[usize]); 9] = [
        (&[5, 7], &[7, 9]),
        (&[193, 257], &[257, 65]),
        (&[70, 1030], &[1030, 520]),
        (&[300, 513], &[513, 1]),
        (&[1, 700], &[700, 1200]),
        (&[3, 40, 30], &[30, 70]),
        (&[4, 64, 32], &[4, 32, 64]),
        (&[2, 1, 33, 20], &[3, 20, 129]),
        (&[1100, 16], &[16, 140]),
    ];
    for (a, b) in sizes {
        for (la, lb) in [(Plain, Plain), (Transposed, Transposed), (Reversed, Sliced)] {
            check_epilogues(&Operand::<f32>::new(a, la, 1), &Operand::new(b, lb, 2));
            many.install(|| check_epilogues(&Operand::<f32>::new(a, la, 1), &Operand::new(b, lb, 2)));
            check_epilogues(&Operand::<f16>::new(a, la, 1), &Operand::new(b, lb, 2));
        }
        many.install(|| check_epilogues(&Operand::<bf16>::new(a, Plain, 1), &Operand::new(b, Plain, 2)));
        check_epilogues(&Operand::<f64>::new(a, Plain, 1), &Operand::new(b, Plain, 2));
        check_epilogues(&Operand::<i32>::new(a, Plain, 1), &Operand::new(b, Plain, 2));
        check_epilogues(&Operand::<u8>::new(a, Plain, 1), &Operand::new(b, Plain, 2));
    }
    // Terms in several rounds.
    many.install(|| {
        check_epilogues_with_room(&Operand::<f32>::new(&[9, 70_000], Plain, 1), &Operand::new(&[70_000, 20], Plain, 2))
    });
}

/// With more terms than a product without a place may have, that form is refused and the others stay right.
fn check_epilogues_with_room(a: &Operand<f32>, b: &Operand<f32>) {
    let (shape, product) = multiplied(a, b);
    let strides = shape::strides(&shape);
    let exprs = epilogues(DType::F32);
    let zero = vec![0f32; product.len()];
    let zeros = View { ptr: zero.as_ptr().cast_mut().cast(), dtype: DType::F32, shape: &shape, strides: &strides };
    let run = |expr: &Expr| {
        let out = Results::new(expr.outputs[0].1, product.len());
        let done = FusedProduct::new(expr).unwrap().run(&[a.view(), b.view(), zeros, zeros], &[out.view(&shape, &strides)], &[]);
        done.map(|()| out.bits())
    };
    assert!(run(&exprs[3]).is_err());
    let bits: Vec<u8> = product.iter().flat_map(|x| (x + 0.0).to_ne_bytes()).collect();
    assert!(run(&exprs[0]) == Ok(bits));
}
