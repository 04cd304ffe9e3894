//! Optimizer updates: every state is read and written in one pass; outputs may be the inputs' own memory.
use super::elementwise::isa::{Isa, versions};
use super::parallel;
use super::real::{Float, Real, by_real};
use super::view::View;
use super::walk::runs;
use crate::backend::op::UpdateKind;
use crate::error::{Error, Result};
use half::slice::HalfFloatSliceExt;

/// Elements that are copied to the stack, updated there and written back: no result depends on how operands overlap.
const TILE: usize = 1024;
/// Elements that are worth a task of their own.
const GRAIN: usize = 32 * TILE;

/// Runs an update; args and operands as `UpdateKind` documents them.
pub fn run(kind: UpdateKind, ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
    let (states, numbers) = match kind {
        UpdateKind::Sgd => (1, 2),
        UpdateKind::SgdMomentum => (2, 6),
        UpdateKind::Adam => (3, 8),
    };
    let Some(p) = ins.first() else { return Err(Error::Internal("update: operands")) };
    let fits = |v: &View| v.dtype == p.dtype && v.shape == p.shape;
    if ins.len() != states + 1 || outs.len() != states || args.len() != numbers || !ins.iter().chain(outs).all(fits) {
        return Err(Error::Internal("update: operands"));
    }
    if !outs.iter().all(View::is_contiguous) {
        return Err(Error::Internal("update: output"));
    }
    by_real!(p.dtype, "update: dtype", typed(kind, ins, outs, args))
}

/// The numbers of an update, derived in f64 and rounded once, as PyTorch does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule<W> {
    Sgd { lr: W, decay: W },
    Momentum { lr: W, decay: W, momentum: W, fresh: W, is_nesterov: bool, is_first: bool },
    Adam { step: W, kept: W, decay: W, toward_g: W, beta2: W, toward_g2: W, root2: W, eps: W },
}

/// The numbers of a rule, in the order in which `Rule` lists them.
pub(crate) fn numbers(kind: UpdateKind, args: &[u64]) -> [f64; 8] {
    let a = |i: usize| args.get(i).map_or(0.0, |&bits| f64::from_bits(bits));
    match kind {
        UpdateKind::Sgd => [a(0), a(1), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        UpdateKind::SgdMomentum => [a(0), a(1), a(2), 1.0 - a(3), a(4), a(5), 0.0, 0.0],
        UpdateKind::Adam => {
            let is_decoupled = a(7) != 0.0;
            let kept = if is_decoupled { 1.0 - a(0) * a(4) } else { 1.0 };
            let decay = if is_decoupled { 0.0 } else { a(4) };
            [a(0) / a(5), kept, decay, 1.0 - a(1), a(2), 1.0 - a(2), a(6).sqrt(), a(3)]
        }
    }
}

impl<W: Float> Rule<W> {
    fn new(kind: UpdateKind, args: &[u64]) -> Self {
        let n = numbers(kind, args);
        let w = |i: usize| W::of(n[i]);
        match kind {
            UpdateKind::Sgd => Rule::Sgd { lr: w(0), decay: w(1) },
            UpdateKind::SgdMomentum => Rule::Momentum {
                lr: w(0),
                decay: w(1),
                momentum: w(2),
                fresh: w(3),
                is_nesterov: n[4] != 0.0,
                is_first: n[5] != 0.0,
            },
            UpdateKind::Adam => Rule::Adam {
                step: w(0),
                kept: w(1),
                decay: w(2),
                toward_g: w(3),
                beta2: w(4),
                toward_g2: w(5),
                root2: w(6),
                eps: w(7),
            },
        }
    }
}

/// The state's tiles in the order p, buffers; and the gradient's.
pub(super) struct Tiles<W> {
    state: [[W; TILE]; 3],
    g: [W; TILE],
}

/// The loop over a tile in the machine's best version.
trait Updates: Real {
    fn step(isa: Isa, rule: &Rule<Self::Wide>, tiles: &mut Tiles<Self::Wide>);
    fn read(from: &[Self], to: &mut [Self::Wide]);
    fn write(from: &[Self::Wide], to: &mut [Self]);
}

macro_rules! updates {
    ($($t:ty, $step:ident, |$from:ident, $to:ident| $read:expr, $write:expr;)*) => {$(
        impl Updates for $t {
            fn step(isa: Isa, rule: &Rule<Self::Wide>, tiles: &mut Tiles<Self::Wide>) {
                // SAFETY: `Isa::get` found the instructions.
                unsafe { $step(isa, rule, tiles) }
            }
            fn read($from: &[$t], $to: &mut [Self::Wide]) {
                $read;
            }
            fn write($from: &[Self::Wide], $to: &mut [$t]) {
                $write;
            }
        }
    )*};
}
updates! {
    f32, step_f32, |from, to| to.copy_from_slice(from), to.copy_from_slice(from);
    f64, step_f64, |from, to| to.copy_from_slice(from), to.copy_from_slice(from);
    half::f16, step_f32, |from, to| from.convert_to_f32_slice(to), to.convert_from_f32_slice(from);
    half::bf16, step_f32, |from, to| from.convert_to_f32_slice(to), to.convert_from_f32_slice(from);
}
versions!(
    /// One tile of f32.
    step_f32(rule: &Rule<f32>, tiles: &mut Tiles<f32>) = step_body
);
versions!(
    /// One tile of f64.
    step_f64(rule: &Rule<f64>, tiles: &mut Tiles<f64>) = step_body
);

fn typed<T: Updates>(kind: UpdateKind, ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
    let (isa, rule) = (Isa::get(), Rule::<T::Wide>::new(kind, args));
    let (p, g, buffers) = (&ins[0], &ins[1], &ins[2..]);
    parallel::ranges(p.elems(), GRAIN, |range| {
        let zero = [T::Wide::of(0.0); TILE];
        let mut tiles = Tiles { state: [zero; 3], g: zero };
        for at in range.clone().step_by(TILE) {
            let len = TILE.min(range.end - at);
            // SAFETY: the elements lie inside the operands, and this range of the outputs is this task's own.
            unsafe {
                load::<T>(g, at, &mut tiles.g[..len]);
                for (tile, from) in tiles.state.iter_mut().zip(std::iter::once(p).chain(buffers)) {
                    load::<T>(from, at, &mut tile[..len]);
                }
                T::step(isa, &rule, &mut tiles);
                for (tile, to) in tiles.state.iter().zip(outs) {
                    T::write(&tile[..len], std::slice::from_raw_parts_mut(to.as_ptr::<T>().add(at), len));
                }
            }
        }
    });
    Ok(())
}

/// Widens the row-major elements from `at` on.
///
/// # Safety
/// The view has `to.len()` elements from `at` on, readable and not written meanwhile.
unsafe fn load<T: Updates>(v: &View, at: usize, to: &mut [T::Wide]) {
    let first = v.as_ptr::<T>().cast_const();
    if v.is_contiguous() {
        // SAFETY: contiguous, and the caller vouches for the range.
        return T::read(unsafe { std::slice::from_raw_parts(first.add(at), to.len()) }, to);
    }
    let step = v.strides.last().copied().unwrap_or(0);
    runs(v.shape, [v.strides], at..at + to.len(), |flat, [offset], len| {
        for (i, t) in to[flat - at..][..len].iter_mut().enumerate() {
            // SAFETY: the offset and step are those of elements inside the view.
            *t = unsafe { *first.offset(offset + i as isize * step) }.widen();
        }
    });
}

/// Buffers of elements whose gradients stay 0 decay until rounding holds them at a few denormals, where each operation takes the processor
/// a hundred times as long, for ever: such a buffer is 0.
///
/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn step_body<W: Float>(rule: &Rule<W>, tiles: &mut Tiles<W>) {
    let Tiles { state: [p, b, v], g } = tiles;
    match *rule {
        Rule::Sgd { lr, decay } => {
            for i in 0..TILE {
                p[i] = p[i] - lr * (g[i] + decay * p[i]);
            }
        }
        Rule::Momentum { lr, decay, momentum, fresh, is_nesterov, is_first } => {
            for i in 0..TILE {
                let d = g[i] + decay * p[i];
                b[i] = if is_first { d } else { (momentum * b[i] + fresh * d).flushed() };
                p[i] = p[i] - lr * if is_nesterov { d + momentum * b[i] } else { b[i] };
            }
        }
        Rule::Adam { step, kept, decay, toward_g, beta2, toward_g2, root2, eps } => {
            for i in 0..TILE {
                let d = g[i] + decay * p[i];
                b[i] = (b[i] + toward_g * (d - b[i])).flushed();
                v[i] = (beta2 * v[i] + toward_g2 * d * d).flushed();
                p[i] = p[i] * kept - step * (b[i] / (v[i].root() / root2 + eps));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use half::{bf16, f16};
    use proptest::prelude::*;

    /// The published formulas, one element at a time in f64; gives the new p and buffers.
    fn reference(kind: UpdateKind, x: [f64; 4], h: &[f64]) -> [f64; 3] {
        let [p, g, b, v] = x;
        match kind {
            UpdateKind::Sgd => [p - h[0] * (g + h[1] * p), b, v],
            UpdateKind::SgdMomentum => {
                let d = g + h[1] * p;
                let buf = if h[5] != 0.0 { d } else { h[2] * b + (1.0 - h[3]) * d };
                [p - h[0] * if h[4] != 0.0 { d + h[2] * buf } else { buf }, buf, v]
            }
            UpdateKind::Adam => {
                let (d, p) = if h[7] != 0.0 { (g, p * (1.0 - h[0] * h[4])) } else { (g + h[4] * p, p) };
                let m = h[1] * b + (1.0 - h[1]) * d;
                let v = h[2] * v + (1.0 - h[2]) * d * d;
                [p - h[0] / h[5] * m / ((v / h[6]).sqrt() + h[3]), m, v]
            }
        }
    }

    /// An update, its size and numbers, whether the gradient is one number spread out, and whether outputs are the inputs' memory.
    struct Case<'a> {
        kind: UpdateKind,
        n: usize,
        h: &'a [f64],
        spread: bool,
        in_place: bool,
    }

    fn check<T: Copy>(dtype: DType, of: fn(f64) -> T, case: &Case, tolerance: f64)
    where
        f64: From<T>,
    {
        let &Case { kind, n, h, spread, in_place } = case;
        let value = |i: usize, s: usize| ((i * 37 + s * 101) % 199) as f64 / 199.0 - if s == 3 { 0.0 } else { 0.5 };
        let mut data: Vec<Vec<T>> =
            (0..4).map(|s| (0..n).map(|i| of(value(if spread && s == 1 { 0 } else { i }, s))).collect()).collect();
        let before: Vec<Vec<f64>> = data.iter().map(|d| d.iter().map(|&x| f64::from(x)).collect()).collect();
        let states = match kind {
            UpdateKind::Sgd => 1,
            UpdateKind::SgdMomentum => 2,
            UpdateKind::Adam => 3,
        };
        let mut fresh = data.clone();
        let (shape, plain, none) = ([n], [1isize], [0isize]);
        let view = |d: &mut Vec<T>, strides| View { ptr: d.as_mut_ptr().cast(), dtype, shape: &shape, strides };
        let mut ins = Vec::new();
        for (s, d) in data.iter_mut().enumerate().take(states + 1) {
            ins.push(view(d, if spread && s == 1 { &none[..] } else { &plain[..] }));
        }
        let state = |s: usize| if s == 0 { 0 } else { s + 1 };
        let outs: Vec<View> =
            (0..states).map(|s| if in_place { ins[state(s)] } else { view(&mut fresh[state(s)], &plain[..]) }).collect();
        let args: Vec<u64> = h.iter().map(|x| x.to_bits()).collect();
        assert_eq!(run(kind, &ins, &outs, &args), Ok(()));
        let after = if in_place { &data } else { &fresh };
        for i in 0..n {
            let want = reference(kind, std::array::from_fn(|s| before[s][i]), h);
            for s in 0..states {
                let got = f64::from(after[state(s)][i]);
                assert!((got - want[s]).abs() <= tolerance * (1.0 + want[s].abs()), "{kind:?} {s} at {i}: {got} {}", want[s]);
            }
        }
    }

    fn check_all(case: &Case) {
        check(DType::F64, |x| x, case, 1e-14);
        check(DType::F32, |x| x as f32, case, 1e-6);
        check(DType::F16, f16::from_f64, case, 2e-3);
        check(DType::BF16, bf16::from_f64, case, 1.6e-2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn as_the_published_formulas(n in 0usize..600, spread: bool, in_place: bool, flag: bool, first: bool, t in 1i32..20) {
            let on = |b: bool| f64::from(u8::from(b));
            check_all(&Case { kind: UpdateKind::Sgd, n, h: &[0.1, 0.01], spread, in_place });
            let h = [0.1, 0.01, 0.9, 0.2, on(flag), on(first)];
            check_all(&Case { kind: UpdateKind::SgdMomentum, n, h: &h, spread, in_place });
            let bias = |beta: f64| 1.0 - beta.powi(t);
            let h = [0.01, 0.9, 0.99, 1e-3, 0.1, bias(0.9), bias(0.99), on(flag)];
            check_all(&Case { kind: UpdateKind::Adam, n, h: &h, spread, in_place });
        }
    }

    #[test]
    fn buffers_of_gradients_that_stay_0_decay_to_0() {
        for (kind, h) in [
            (UpdateKind::SgdMomentum, &[0.1_f64, 0.0, 0.9, 0.0, 0.0, 0.0][..]),
            (UpdateKind::Adam, &[0.01, 0.9, 0.9, 1e-8, 0.0, 1.0, 1.0, 1.0]),
        ] {
            let mut data: Vec<Vec<f32>> = (0..4).map(|s| vec![if s == 1 { 0.0 } else { 1.0 }; 100]).collect();
            let args: Vec<u64> = h.iter().map(|x| x.to_bits()).collect();
            for _ in 0..1000 {
                let views: Vec<View> = (data.iter_mut())
                    .map(|d| View { ptr: d.as_mut_ptr().cast(), dtype: DType::F32, shape: &[100], strides: &[1] })
                    .collect();
                let buffers = if kind == UpdateKind::Adam { 2 } else { 1 };
                let outs = [&views[..1], &views[2..2 + buffers]].concat();
                assert_eq!(run(kind, &views[..2 + buffers], &outs, &args), Ok(()));
                assert!(data[2..2 + buffers].iter().flatten().all(|x| !x.is_subnormal()), "{kind:?}");
            }
            assert!(data[2].iter().all(|&x| x == 0.0), "{kind:?}: {}", data[2][0]);
        }
    }

    #[test]
    fn many_elements_and_threads() {
        let h = [0.01, 0.9, 0.999, 1e-8, 0.0, 0.1, 0.001, 1.0];
        check(DType::F32, |x| x as f32, &Case { kind: UpdateKind::Adam, n: 100_003, h: &h, spread: false, in_place: true }, 1e-5);
    }

    #[test]
    fn a_wrong_number_of_operands_is_refused() {
        assert!(run(UpdateKind::Sgd, &[], &[], &[0, 0]).is_err());
    }
}
