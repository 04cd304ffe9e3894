//! Random numbers of a node: every element is a function of key, counter and position, so threads share them out freely.
use super::elementwise::isa::{Isa, versions};
use super::elementwise::round_bits;
use super::view::View;
use super::{math, parallel};
use crate::backend::op::RandomKind;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::rng;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Counters that are worked off together.
const LANES: usize = 64;
/// Elements made of them at most.
const TILE: usize = 4 * LANES;
/// Elements that are worth a task of their own.
const GRAIN: usize = 64 * TILE;

/// Fills the output: args key, counter, then low and high (uniform, integers) or mean and standard deviation (normal).
pub fn run(kind: RandomKind, out: View, args: &[u64]) -> Result<()> {
    let &[key, counter, a, b] = args else { return Err(Error::Internal("random: args")) };
    if !out.is_contiguous() {
        return Err(Error::Internal("random: output"));
    }
    let draw = Draw { key, counter, a, b, normal: kind == RandomKind::Normal };
    match (kind, out.dtype) {
        (RandomKind::Randint, DType::I64) => fill(&out, &draw, ints, |t: &[i64], o: &mut [i64]| o.copy_from_slice(t)),
        (RandomKind::Randint, DType::I32) => fill(&out, &draw, ints, |t, o: &mut [i32]| convert(t, o, |x| x as i32)),
        (RandomKind::Randint, DType::U8) => fill(&out, &draw, ints, |t, o: &mut [u8]| convert(t, o, |x| x as u8)),
        (RandomKind::Uniform | RandomKind::Normal, DType::F64) => fill(&out, &draw, doubles, |t: &[f64], o| o.copy_from_slice(t)),
        (RandomKind::Uniform | RandomKind::Normal, DType::F32) => fill(&out, &draw, floats, |t: &[f32], o| o.copy_from_slice(t)),
        (RandomKind::Uniform | RandomKind::Normal, DType::F16) => fill(&out, &draw, floats, |t, o: &mut [f16]| {
            o.convert_from_f32_slice(t);
            clamp(o, draw.top(|x| f16::from_bits(round_bits(x, DType::F16)), |x| f16::from_bits(below_bits(x.to_bits()))));
        }),
        (RandomKind::Uniform | RandomKind::Normal, DType::BF16) => fill(&out, &draw, floats, |t, o: &mut [bf16]| {
            o.convert_from_f32_slice(t);
            clamp(o, draw.top(|x| bf16::from_bits(round_bits(x, DType::BF16)), |x| bf16::from_bits(below_bits(x.to_bits()))));
        }),
        _ => return Err(Error::Internal("random: dtype")),
    }
    Ok(())
}

/// What a launch draws.
pub(super) struct Draw {
    key: u64,
    counter: u64,
    a: u64,
    b: u64,
    normal: bool,
}

impl Draw {
    fn bounds(&self) -> (f64, f64) {
        (f64::from_bits(self.a), f64::from_bits(self.b))
    }

    /// The largest value that a uniform draw may give in a type that rounds to it: the one below high, which itself is never given.
    fn top<T: PartialOrd + Copy>(&self, round: impl Fn(f64) -> T, next_down: impl Fn(T) -> T) -> Option<T> {
        let (low, high) = self.bounds();
        let (low, high) = (round(low), round(high));
        // Where no value lies between, low is all there is.
        (!self.normal && low < high).then(|| next_down(high))
    }
}

/// The bits of the next smaller 16-bit float: down for positive ones, away from zero for the others.
const fn below_bits(bits: u16) -> u16 {
    match bits {
        0 | 0x8000 => 0x8001,
        b if b & 0x8000 == 0 => b - 1,
        b => b + 1,
    }
}

fn clamp<T: PartialOrd + Copy>(out: &mut [T], top: Option<T>) {
    if let Some(top) = top {
        out.iter_mut().filter(|x| **x > top).for_each(|x| *x = top);
    }
}

fn convert<T>(from: &[i64], to: &mut [T], as_t: impl Fn(i64) -> T) {
    to.iter_mut().zip(from).for_each(|(t, &f)| *t = as_t(f));
}

/// The numbers of `LANES` counters in a row, and how many there are of a counter.
trait Tile: Copy + Default {
    const PER_COUNTER: usize;
}
impl Tile for f32 {
    const PER_COUNTER: usize = 4;
}
impl Tile for f64 {
    const PER_COUNTER: usize = 2;
}
impl Tile for i64 {
    const PER_COUNTER: usize = 2;
}

/// Draws tile by tile and stores what of each tile lies in the output.
fn fill<W: Tile, T>(
    out: &View,
    draw: &Draw,
    make: unsafe fn(Isa, &Draw, u64, &mut [W; TILE]),
    store: impl Fn(&[W], &mut [T]) + Sync,
) {
    let (isa, view, elems) = (Isa::get(), *out, out.elems());
    let size = W::PER_COUNTER * LANES;
    parallel::ranges(elems, GRAIN, |range| {
        let mut tile = [W::default(); TILE];
        for at in range.clone().step_by(size) {
            // Ranges start at multiples of 64, so tiles, and what is drawn for an element, do not depend on how they are cut.
            let first = draw.counter.wrapping_add((at / W::PER_COUNTER) as u64);
            let len = size.min(range.end - at);
            // SAFETY: `Isa::get` found the instructions; the range of the output is this task's own.
            unsafe {
                make(isa, draw, first, &mut tile);
                store(&tile[..len], std::slice::from_raw_parts_mut(view.as_ptr::<T>().add(at), len));
            }
        }
    });
}

versions!(
    wide
    /// Uniform or normal f32.
    floats(draw: &Draw, first: u64, tile: &mut [f32; TILE]) = floats_body
);
versions!(
    wide
    /// Uniform or normal f64.
    doubles(draw: &Draw, first: u64, tile: &mut [f64; TILE]) = doubles_body
);
versions!(
    wide
    /// Integers.
    ints(draw: &Draw, first: u64, tile: &mut [i64; TILE]) = ints_body
);

/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn floats_body(draw: &Draw, first: u64, tile: &mut [f32; TILE]) {
    let w = rng::words::<LANES>(draw.key, first);
    let (a, b) = draw.bounds();
    let mut x = [[0f32; LANES]; 4];
    if draw.normal {
        let (mean, deviation) = (a as f32, b as f32);
        for pair in 0..2 {
            for l in 0..LANES {
                let r = (-2.0 * math::log(rng::open_f32(w[2 * pair][l]))).sqrt();
                let angle = rng::unit_f32(w[2 * pair + 1][l]) * std::f32::consts::TAU;
                x[2 * pair][l] = mean + deviation * (r * math::cos(angle));
                x[2 * pair + 1][l] = mean + deviation * (r * math::sin(angle));
            }
        }
    } else {
        let (low, high) = (a as f32, b as f32);
        let (span, top) = (high - low, if low < high { high.next_down() } else { high });
        for (x, w) in x.iter_mut().zip(&w) {
            for l in 0..LANES {
                let v = low + rng::unit_f32(w[l]) * span;
                x[l] = if v > top { top } else { v };
            }
        }
    }
    for (l, four) in tile.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *four = [x[0][l], x[1][l], x[2][l], x[3][l]];
    }
}

/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn doubles_body(draw: &Draw, first: u64, tile: &mut [f64; TILE]) {
    let w = rng::words::<LANES>(draw.key, first);
    let (a, b) = draw.bounds();
    let top = if a < b { b.next_down() } else { b };
    for l in 0..LANES {
        let (x, y) = (rng::join(w[0][l], w[1][l]), rng::join(w[2][l], w[3][l]));
        if draw.normal {
            let r = (-2.0 * rng::open_f64(x).ln()).sqrt();
            let (sin, cos) = (rng::unit_f64(y) * std::f64::consts::TAU).sin_cos();
            tile[2 * l] = a + b * (r * cos);
            tile[2 * l + 1] = a + b * (r * sin);
        } else {
            tile[2 * l] = (a + rng::unit_f64(x) * (b - a)).min(top);
            tile[2 * l + 1] = (a + rng::unit_f64(y) * (b - a)).min(top);
        }
    }
}

/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn ints_body(draw: &Draw, first: u64, tile: &mut [i64; TILE]) {
    let w = rng::words::<LANES>(draw.key, first);
    let range = draw.b.wrapping_sub(draw.a);
    for l in 0..LANES {
        for i in 0..2 {
            let bits = rng::join(w[2 * i][l], w[2 * i + 1][l]);
            tile[2 * l + i] = draw.a.wrapping_add(rng::below(bits, range)) as i64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{philox4x32, unit_f32};

    fn drawn<T: Copy + Default>(kind: RandomKind, dtype: DType, n: usize, counter: u64, a: u64, b: u64) -> Vec<T> {
        let mut out = vec![T::default(); n];
        let view = View { ptr: out.as_mut_ptr().cast(), dtype, shape: &[n], strides: &[1] };
        assert_eq!(run(kind, view, &[7, counter, a, b]), Ok(()));
        out
    }

    fn bits(x: f64) -> u64 {
        x.to_bits()
    }

    #[test]
    fn elements_depend_on_key_counter_and_position_alone() {
        let long: Vec<f32> = drawn(RandomKind::Uniform, DType::F32, 100_003, 3, bits(0.0), bits(1.0));
        for (i, x) in long.iter().enumerate() {
            let word = philox4x32([3 + (i / 4) as u32, 0, 0, 0], [7, 0])[i % 4];
            assert_eq!(*x, unit_f32(word));
        }
        let part: Vec<f32> = drawn(RandomKind::Uniform, DType::F32, 9, 3 + 1000, bits(0.0), bits(1.0));
        assert_eq!(part, long[4000..4009]);
        for kind in [RandomKind::Normal, RandomKind::Uniform] {
            let long: Vec<f64> = drawn(kind, DType::F64, 50_001, 0, bits(-1.0), bits(2.0));
            let part: Vec<f64> = drawn(kind, DType::F64, 11, 500, bits(-1.0), bits(2.0));
            assert_eq!(part, long[1000..1011]);
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let alone: Vec<f32> = pool.install(|| drawn(RandomKind::Normal, DType::F32, 100_003, 3, bits(0.0), bits(1.0)));
        assert_eq!(alone, drawn::<f32>(RandomKind::Normal, DType::F32, 100_003, 3, bits(0.0), bits(1.0)));
    }

    #[test]
    fn uniform_stays_below_high() {
        // So few values lie between the bounds that rounding reaches high.
        let (low, high) = (1.0, 1.0 + 2.0 * f64::from(f32::EPSILON));
        let x: Vec<f32> = drawn(RandomKind::Uniform, DType::F32, 10_000, 0, bits(low), bits(high));
        assert!(x.iter().all(|&x| f64::from(x) >= low && f64::from(x) < high));
        let x: Vec<f16> = drawn(RandomKind::Uniform, DType::F16, 100_000, 0, bits(0.0), bits(1.0));
        assert!(x.iter().all(|&x| x >= f16::ZERO && x < f16::ONE));
        let x: Vec<bf16> = drawn(RandomKind::Uniform, DType::BF16, 10_000, 0, bits(-2.0), bits(0.0));
        assert!(x.iter().all(|&x| x.to_f32() >= -2.0 && x.to_f32() < 0.0));
    }

    #[test]
    fn moments() {
        let n = 1_000_000;
        let x: Vec<f32> = drawn(RandomKind::Normal, DType::F32, n, 0, bits(3.0), bits(2.0));
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
        let var = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n as f64;
        let kurt = x.iter().map(|&x| (f64::from(x) - mean).powi(4)).sum::<f64>() / n as f64 / var.powi(2);
        assert!((mean - 3.0).abs() < 0.01 && (var - 4.0).abs() < 0.03 && (kurt - 3.0).abs() < 0.03, "{mean} {var} {kurt}");
        assert!(x.iter().all(|x| x.is_finite()));
    }

    #[test]
    fn integers_cover_their_range_evenly() {
        let x: Vec<i32> = drawn(RandomKind::Randint, DType::I32, 70_000, 0, -3i64 as u64, 4);
        for v in -3..4 {
            let count = x.iter().filter(|&&x| x == v).count();
            assert!((9_500..10_500).contains(&count), "{v} {count}");
        }
        let wide: Vec<i64> = drawn(RandomKind::Randint, DType::I64, 1000, 0, i64::MIN as u64, i64::MAX as u64);
        assert!(wide.iter().any(|&x| x < -(1 << 62)) && wide.iter().any(|&x| x > 1 << 62));
        let bytes: Vec<u8> = drawn(RandomKind::Randint, DType::U8, 1000, 0, 250, 256);
        assert!(bytes.iter().all(|&x| x >= 250));
    }
}
