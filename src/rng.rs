//! Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011) and what is made of its words.
//!
//! A draw depends only on a key and a position, so any part of a stream can be computed anywhere, in any order, again. A counter gives
//! four words; `per_counter` says how many elements they make. Word w of counter c of element i: uniform f32 uses one word, normal f32
//! a pair of words for two elements (cosine first, then sine), float64 and integers two words each, the first word in the low half.
use crate::dtype::DType;

/// Random draws: Philox 4x32-10 keyed by (seed, stream), counted from args.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RandomKind {
    /// Uniform in [low, high): args key, counter, low, high (f64 bits).
    Uniform,
    /// Normal: args key, counter, mean, standard deviation (f64 bits).
    Normal,
    /// Integers in [low, high): args key, counter, low, high (i64 bits).
    Randint,
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The four random words at a counter.
#[inline(always)]
pub fn philox4x32(counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    for _ in 0..ROUNDS {
        let a = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
        let b = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    c
}

/// The words at the `N` counters from `first` on, under a 64-bit key: `words[w][lane]`. Vectorised along the lanes if `N` is large
/// enough (64) not to be unrolled before.
#[inline(always)]
pub fn words<const N: usize>(key: u64, first: u64) -> [[u32; N]; 4] {
    let [mut w0, mut w1, mut w2, mut w3] = [[0; N]; 4];
    for l in 0..N {
        let at = first.wrapping_add(l as u64);
        let w = philox4x32([at as u32, (at >> 32) as u32, 0, 0], [key as u32, (key >> 32) as u32]);
        (w0[l], w1[l], w2[l], w3[l]) = (w[0], w[1], w[2], w[3]);
    }
    [w0, w1, w2, w3]
}

/// A float in [0, 1): the word's upper 24 bits.
#[inline(always)]
pub fn unit_f32(word: u32) -> f32 {
    // Through i32, which every vector unit converts; 24 bits are never negative.
    (word >> 8) as i32 as f32 * (1.0 / 16_777_216.0)
}

/// A double in [0, 1): the upper 53 bits.
#[inline(always)]
pub fn unit_f64(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// A float in (0, 1] with finer steps near 0: what the logarithm of Box and Muller (1958) wants.
#[inline(always)]
pub fn open_f32(word: u32) -> f32 {
    (word as f32 + 1.0) * (1.0 / 4_294_967_296.0)
}

/// A double in (0, 1].
#[inline(always)]
pub fn open_f64(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// An integer below `range` (any, if `range` is 0, which stands for 2^64): the upper half of bits * range. No value is likelier than
/// another by more than a factor of 1 + range / 2^64.
#[inline(always)]
pub fn below(bits: u64, range: u64) -> u64 {
    if range == 0 { bits } else { ((u128::from(bits) * u128::from(range)) >> 64) as u64 }
}

/// Two words as one number, the first in the low half.
#[inline(always)]
pub fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// How many elements one counter makes.
pub const fn per_counter(kind: RandomKind, dtype: DType) -> usize {
    match (kind, dtype) {
        (RandomKind::Randint, _) | (_, DType::F64) => 2,
        _ => 4,
    }
}

/// How many counters a node of `elems` elements consumes.
pub const fn counters(kind: RandomKind, dtype: DType, elems: usize) -> u64 {
    elems.div_ceil(per_counter(kind, dtype)) as u64
}

/// A position in a stream of random numbers: what nodes take their counters from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// Which stream: the key.
    pub seed: u64,
    /// The next counter that no node has.
    pub counter: u64,
}

impl State {
    /// The beginning of a stream.
    pub const fn new(seed: u64) -> State {
        State { seed, counter: 0 }
    }

    /// Hands out `count` counters: the position of the first.
    pub const fn take(&mut self, count: u64) -> State {
        let first = *self;
        self.counter = first.counter.wrapping_add(count);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors() {
        // kat_vectors of Random123 1.14.
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn lanes_are_single_counters() {
        let many = words::<8>(0x1234_5678_9abc_def0, u64::from(u32::MAX) - 3);
        for l in 0..8 {
            let at = u64::from(u32::MAX) - 3 + l as u64;
            let one = philox4x32([at as u32, (at >> 32) as u32, 0, 0], [0x9abc_def0, 0x1234_5678]);
            assert_eq!(many.map(|w| w[l]), one);
        }
    }

    #[test]
    fn ends_of_the_ranges() {
        assert_eq!((unit_f32(0), unit_f64(0), below(0, 7)), (0.0, 0.0, 0));
        assert!(unit_f32(!0) < 1.0 && unit_f64(!0) < 1.0);
        assert!(open_f32(0) > 0.0 && open_f64(0) > 0.0);
        assert_eq!((open_f32(!0), open_f64(!0)), (1.0, 1.0));
        assert_eq!((below(!0, 7), below(!0, 1), below(!0, 0)), (6, 0, !0));
    }

    #[test]
    fn counters_are_handed_out_once() {
        let mut g = State::new(5);
        assert_eq!(g.take(counters(RandomKind::Uniform, DType::F32, 9)), State::new(5));
        assert_eq!(g.take(counters(RandomKind::Randint, DType::I32, 9)).counter, 3);
        assert_eq!(g, State { seed: 5, counter: 8 });
    }
}
