//! Branch-free f32 functions that vectorise, with the same bits on every machine.
//!
//! No fused multiply-add is used, so that all machine versions of a loop agree. Bounds are those the tests check, in units in the last
//! place. Where f32 would need care (cancellation, range reduction) the function computes in f64 and rounds once.
//! The constants are decimal expansions as published, so clippy's shorter forms would hide their origin.
#![allow(clippy::excessive_precision, clippy::approx_constant)]

/// 1.5 * 2^23: adding it rounds to an integer, which the low bits then hold.
const MAGIC: f32 = 12_582_912.0;
/// 1.5 * 2^52: the same for f64.
const MAGIC64: f64 = 6_755_399_441_055_744.0;
/// 1 / ln 2.
const LOG2E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts, the first with so few bits that n * LN2_HI is exact (Cody and Waite 1980).
const LN2_HI: f32 = 0.693359375;
const LN2_LO: f32 = -2.121_944_40e-4;

/// `a` where the condition holds, else `b`.
#[inline(always)]
fn pick<T>(cond: bool, a: T, b: T) -> T {
    if cond { a } else { b }
}

/// e^(hi + lo) for a small `lo`, as mantissa and two powers of two whose product is the scale; NaN stays NaN.
#[inline(always)]
fn exp_parts(hi: f32, lo: f32) -> (f32, f32, f32) {
    // Beyond these limits the result is infinite or zero anyway; a NaN passes both tests.
    let x = pick(hi > 89.0, 89.0, hi);
    let x = pick(x < -126.0, -126.0, x);
    let t = x * LOG2E + MAGIC;
    let n = t - MAGIC;
    let r = (x - n * LN2_HI) - (n * LN2_LO - lo);
    // Polynomial: Cephes expf (Moshier), |r| <= ln 2 / 2.
    let mut p = 1.987_569_150_0e-4;
    p = p * r + 1.398_199_950_7e-3;
    p = p * r + 8.333_451_907_3e-3;
    p = p * r + 4.166_579_589_4e-2;
    p = p * r + 1.666_666_545_9e-1;
    p = p * r + 5.000_000_120_1e-1;
    let m = (p * (r * r) + r) + 1.0;
    // Two factors, because 2^-182 and 2^128 are no normal numbers.
    let k = t.to_bits().wrapping_sub(MAGIC.to_bits()) as i32;
    let half = k >> 1;
    let pow2 = |k: i32| f32::from_bits((k.wrapping_add(127) as u32) << 23);
    (m, pow2(half), pow2(k.wrapping_sub(half)))
}

/// e^x, 2 ulp.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (m, s, t) = exp_parts(x, 0.0);
    m * s * t
}

/// cosh r and sinh r (Taylor, |r| <= ln 2 / 2) and 2^n in f64 for x = n ln 2 + r, |x| <= 120.
#[inline(always)]
fn hyperbolic_parts(x: f32) -> (f64, f64, f64, f64) {
    let x = pick(x > 120.0, 120.0, x);
    let x = f64::from(pick(x < -120.0, -120.0, x));
    let t = x * std::f64::consts::LOG2_E + MAGIC64;
    let r = x - (t - MAGIC64) * std::f64::consts::LN_2;
    let z = r * r;
    let c = (((z * (1.0 / 40320.0) + 1.0 / 720.0) * z + 1.0 / 24.0) * z + 0.5) * z + 1.0;
    let s = ((((z * (1.0 / 362_880.0) + 1.0 / 5040.0) * z + 1.0 / 120.0) * z + 1.0 / 6.0) * z) * r + r;
    let bits = t.to_bits();
    let up = f64::from_bits(bits.wrapping_add(1023) << 52);
    let down = f64::from_bits(1023u64.wrapping_sub(bits) << 52);
    (c, s, up, down)
}

/// e^x - 1, 1 ulp.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let (c, s, up, _) = hyperbolic_parts(x);
    // cosh r - 1 must not cancel for small r: it is 2 sinh(r/2)^2, but its size there is far below that of sinh r.
    let y = (up * ((c - 1.0) + s) + (up - 1.0)) as f32;
    pick(x.abs() < 1e-8, x, y)
}

/// Hyperbolic sine, 1 ulp.
#[inline(always)]
pub fn sinh(x: f32) -> f32 {
    let (c, s, up, down) = hyperbolic_parts(x);
    let y = (0.5 * ((up - down) * c + (up + down) * s)) as f32;
    pick(x == 0.0, x, y)
}

/// Hyperbolic cosine, 1 ulp.
#[inline(always)]
pub fn cosh(x: f32) -> f32 {
    let (c, s, up, down) = hyperbolic_parts(x);
    (0.5 * ((up + down) * c + (up - down) * s)) as f32
}

/// Hyperbolic tangent, 2 ulp (method and polynomial: Cephes tanhf).
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let (m, s, t) = exp_parts(pick(a > 10.0, 20.0, a + a), 0.0);
    let large = 1.0 - 2.0 / (m * s * t + 1.0);
    let z = x * x;
    let mut p = -5.704_988_727_45e-3;
    p = p * z + 2.063_908_879_54e-2;
    p = p * z - 5.373_971_555_31e-2;
    p = p * z + 1.333_144_220_36e-1;
    p = p * z - 3.333_328_194_22e-1;
    let small = p * z * x + x;
    pick(a < 0.625, small, large).copysign(x)
}

/// 1 / (1 + e^-x), 2.2 ulp; small results keep their precision.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    pick(x < 0.0, e, 1.0) / (1.0 + e)
}

/// x * sigmoid(scale * x) for the factor given as `y` = scale * x: the power of two comes last, so that tiny tails stay precise.
#[inline(always)]
fn gated(x: f32, y: f32) -> f32 {
    let (m, s, t) = exp_parts(-y.abs(), 0.0);
    let one = 1.0 + m * s * t;
    pick(y < 0.0, (x * m * s) / one * t, x / one)
}

/// x * sigmoid(x), 3 ulp.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    let y = gated(pick(x < -200.0, -200.0, x), x);
    pick(x == f32::NEG_INFINITY, -0.0, y)
}

/// Gaussian error linear unit by tanh: x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)).
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    let lim = pick(x < -20.0, -20.0, x);
    let lim = pick(lim > 20.0, 20.0, lim);
    let y = 1.595_769_121_605_730_7 * (lim + 0.044_715 * lim * lim * lim);
    let out = gated(pick(x < -20.0, -20.0, x), y);
    pick(x < -20.0, -0.0, out)
}

/// The derivative of x * sigmoid(y) for a `y` with derivative `dy`: s + x s (1 - s) dy, to 4e-7 for |x| up to 200.
#[inline(always)]
fn gated_slope(x: f32, y: f32, dy: f32) -> f32 {
    let e = exp(-y.abs());
    let large = 1.0 / (1.0 + e);
    let small = e * large;
    pick(y < 0.0, small, large) + x * (large * small) * dy
}

/// The derivative of `silu`.
#[inline(always)]
pub fn silu_slope(x: f32) -> f32 {
    let x = pick(x < -200.0, -200.0, x);
    let x = pick(x > 200.0, 200.0, x);
    gated_slope(x, x, 1.0)
}

/// The derivative of `gelu_tanh`.
#[inline(always)]
pub fn gelu_tanh_slope(x: f32) -> f32 {
    let x = pick(x < -20.0, -20.0, x);
    let x = pick(x > 20.0, 20.0, x);
    let z = 0.044_715 * x * x;
    gated_slope(x, 1.595_769_121_605_730_7 * (x + z * x), 1.595_769_121_605_730_7 * (1.0 + 3.0 * z))
}

/// The derivative of `gelu`, P(x) + x p(x) with the normal distribution and its density, to 4e-7.
#[inline(always)]
pub fn gelu_slope(x: f32) -> f32 {
    let x = pick(x < -20.0, -20.0, x);
    let x = pick(x > 20.0, 20.0, x);
    let density = 0.398_942_280_4 * exp(-0.5 * x * x);
    0.5 + 0.5 * erf(x * std::f32::consts::FRAC_1_SQRT_2) + x * density
}

/// Gaussian error linear unit, x * (1 - erfc(x / sqrt 2) / 2), 4 ulp, and 5 below -1.5 where the plain formula cancels.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let a = x.abs();
    let a = pick(a > 14.4, 14.4, a);
    let t = a * std::f32::consts::FRAC_1_SQRT_2;
    // erf(t) / t - 1 in t^2, t <= 1/2, error 1.8e-9 (Chebyshev interpolation, as below).
    let z = t * t;
    let mut p = 4.700_057_21e-3;
    p = p * z - 2.674_923_19e-2;
    p = p * z + 1.128_271_51e-1;
    p = p * z - 3.761_260_4e-1;
    p = p * z + 1.283_791_65e-1;
    let small = x * (0.5 + (0.5 * (p * t + t)).copysign(x));
    // erfc(t) = e^(-t^2) g(u) / (1 + 2t), u = (t - 2) / (t + 2), after Shepherd and Laframboise (1981); g fitted by Chebyshev
    // interpolation (mpmath chebyfit, error 6.8e-9) for 0.49 <= t <= 10.2. One division serves both quotients.
    let (d1, d2) = (t + 2.0, 1.0 + 2.0 * t);
    let inv = 1.0 / (d1 * d2);
    let u = (t - 2.0) * (d2 * inv);
    let mut g = -2.413_651_19e-4;
    g = g * u - 1.255_247_31e-3;
    g = g * u + 1.159_643_04e-3;
    g = g * u + 8.651_748e-3;
    g = g * u - 8.009_425_74e-3;
    g = g * u - 5.420_960_46e-2;
    g = g * u + 1.640_491_52e-1;
    g = g * u - 1.660_309_41e-1;
    g = g * u - 9.276_377_67e-2;
    g = g * u + 1.276_978_39;
    // a^2 / 2 in two parts: the upper half of a squares exactly.
    let hi = f32::from_bits(a.to_bits() & 0xffff_f000);
    let (m, s, p2) = exp_parts(-0.5 * (hi * hi), -0.5 * ((a - hi) * (a + hi)));
    let half = 0.5 * (m * s) * (g * (d1 * inv));
    let neg = (x * half) * p2;
    let pos = x - x * (half * p2);
    let y = pick(t < 0.5, small, pick(x < 0.0, neg, pos));
    pick(x < -14.4, -0.0, pick(x > 14.4, x, y))
}

/// The error function, 2 ulp. Both fits: Chebyshev interpolation (mpmath chebyfit).
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let z = x * x;
    // erf(x) / x - 1 in x^2, |x| <= 1, error 1.2e-9.
    let mut p = 7.875_875_1e-5;
    p = p * z - 8.016_864_3e-4;
    p = p * z + 5.189_087_4e-3;
    p = p * z - 2.685_421_2e-2;
    p = p * z + 1.128_359_5e-1;
    p = p * z - 3.761_262_7e-1;
    p = p * z + 1.283_791_7e-1;
    let small = p * x + x;
    // -log(erfc(a)) in a - 1, 0.98 <= a <= 4, error 1.7e-8; beyond 4 the result rounds to 1.
    let a = x.abs();
    let d = pick(a > 4.0, 4.0, a) - 1.0;
    let mut q = -1.639_938_02e-6;
    q = q * d + 3.299_340_98e-5;
    q = q * d - 3.203_923e-4;
    q = q * d + 2.054_665_3e-3;
    q = q * d - 1.007_826_78e-2;
    q = q * d + 4.157_602_15e-2;
    q = q * d + 8.431_046_88e-1;
    q = q * d + 2.638_967_69;
    q = q * d + 1.849_605_51;
    let large = (1.0 - exp(-q)).copysign(x);
    pick(a < 1.0, small, large)
}

/// Mantissa in [sqrt(1/2), sqrt 2) minus 1, and exponent, of a positive number.
#[inline(always)]
fn log_parts(x: f32) -> (f32, f32) {
    let tiny = x < f32::MIN_POSITIVE;
    let bits = pick(tiny, x * 8_388_608.0, x).to_bits().wrapping_sub(0x3f35_04f3);
    let e = (bits as i32 >> 23) - pick(tiny, 23, 0);
    let m = f32::from_bits((bits & 0x007f_ffff) + 0x3f35_04f3);
    (m - 1.0, e as f32)
}

/// The edges of every logarithm: 0, negative numbers, infinity and NaN.
#[inline(always)]
fn log_edges(x: f32, y: f32) -> f32 {
    let y = pick(x == 0.0, f32::NEG_INFINITY, y);
    let y = pick(x < 0.0, f32::NAN, y);
    pick(x < f32::INFINITY, y, x + x)
}

/// log(1 + f) + e ln 2 + c (method and polynomial: Cephes logf).
#[inline(always)]
fn log_core(f: f32, e: f32, c: f32) -> f32 {
    let z = f * f;
    let mut p = 7.037_683_629_2e-2;
    p = p * f - 1.151_461_031_0e-1;
    p = p * f + 1.167_699_874_0e-1;
    p = p * f - 1.242_014_084_6e-1;
    p = p * f + 1.424_932_278_7e-1;
    p = p * f - 1.666_805_766_5e-1;
    p = p * f + 2.000_071_476_5e-1;
    p = p * f - 2.499_999_399_3e-1;
    p = p * f + 3.333_333_117_4e-1;
    let y = f * z * p + e * LN2_LO + c - 0.5 * z;
    (f + y) + e * LN2_HI
}

/// Natural logarithm, 2 ulp.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let (f, e) = log_parts(x);
    log_edges(x, log_core(f, e, 0.0))
}

/// log(1 + x), 2 ulp: the rounding error of 1 + x is added back.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let u = 1.0 + x;
    let (f, e) = log_parts(u);
    let lost = pick(x < 1.0, x - (u - 1.0), 1.0 - (u - x));
    let c = pick(x < 16_777_216.0, lost / u, 0.0);
    let y = log_edges(u, log_core(f, e, c));
    pick(x.abs() < 5.9e-8, x, y)
}

/// log(m) * scale + e * step in f64 by the series of the inverse hyperbolic tangent, |(m-1)/(m+1)| <= 0.172.
#[inline(always)]
fn log_scaled(x: f32, scale: f64, step: f64) -> f32 {
    let (f, e) = log_parts(x);
    let f = f64::from(f);
    let s = f / (2.0 + f);
    let z = s * s;
    let p = ((((z * (1.0 / 11.0) + 1.0 / 9.0) * z + 1.0 / 7.0) * z + 0.2) * z + 1.0 / 3.0) * z + 1.0;
    log_edges(x, (f64::from(e) * step + 2.0 * s * p * scale) as f32)
}

/// Binary logarithm, 1 ulp.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    log_scaled(x, std::f64::consts::LOG2_E, 1.0)
}

/// Decimal logarithm, 1 ulp.
#[inline(always)]
pub fn log10(x: f32) -> f32 {
    log_scaled(x, std::f64::consts::LOG10_E, std::f64::consts::LOG10_2)
}

/// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), 2 ulp.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let e = exp(-x.abs());
    let tail = log1p(e);
    pick(x < 0.0, 0.0, x) + tail
}

/// The largest |x| for which `sin` and `cos` reduce their argument well.
pub const TRIG_MAX: f32 = 1.0e8;

/// Sine and cosine of the argument reduced by multiples of pi/2, and the quadrant.
#[inline(always)]
fn trig_parts(x: f32) -> (f64, f64, u64) {
    let x = f64::from(pick(x.abs() < TRIG_MAX, x, f32::NAN));
    let t = x * std::f64::consts::FRAC_2_PI + MAGIC64;
    let n = t - MAGIC64;
    // pi/2 in a part of 25 bits and the rest (fdlibm, __ieee754_rem_pio2f).
    let r = (x - n * 1.570_796_310_901_641_845_70) - n * 1.589_325_477_352_819_677_88e-8;
    let z = r * r;
    // Taylor, |r| <= pi/4: below 1e-9.
    let s = ((((z * (1.0 / 362_880.0) - 1.0 / 5040.0) * z + 1.0 / 120.0) * z - 1.0 / 6.0) * z) * r + r;
    let c = ((((z * (-1.0 / 3_628_800.0) + 1.0 / 40320.0) * z - 1.0 / 720.0) * z + 1.0 / 24.0) * z - 0.5) * z + 1.0;
    (s, c, t.to_bits())
}

/// `v` with the sign turned where bit 1 of `q` is set.
#[inline(always)]
fn turned(v: f64, q: u64) -> f32 {
    f64::from_bits(v.to_bits() ^ ((q & 2) << 62)) as f32
}

/// Sine, 1 ulp for |x| < `TRIG_MAX` (NaN for infinities; the caller handles larger numbers).
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    let (s, c, q) = trig_parts(x);
    let y = turned(pick(q & 1 == 0, s, c), q);
    pick(x == 0.0, x, y)
}

/// Cosine, 1 ulp for |x| < `TRIG_MAX` (NaN for infinities; the caller handles larger numbers).
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    let (s, c, q) = trig_parts(x);
    turned(pick(q & 1 == 0, c, s), q.wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of `got` in units in the last place of the f32 nearest to `want`.
    fn ulps(got: f32, want: f64) -> f64 {
        let near = want as f32;
        if near.is_nan() || got.is_nan() {
            return if near.is_nan() == got.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if near.is_infinite() || got.is_infinite() {
            return if near == got { 0.0 } else { f64::INFINITY };
        }
        let scale = near.abs().max(f32::MIN_POSITIVE);
        let ulp = f64::from(f32::from_bits(scale.to_bits() + 1)) - f64::from(scale);
        (f64::from(got) - want).abs() / ulp
    }

    /// The worst error over every 997th number within the limits.
    fn worst(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, low: f32, high: f32) -> (f64, f32) {
        let mut worst = (0.0, 0.0);
        for k in 0..u32::MAX / 997 {
            let x = f32::from_bits(k * 997);
            if x >= low && x <= high {
                let e = ulps(f(x), exact(f64::from(x)));
                if e > worst.0 {
                    worst = (e, x);
                }
            }
        }
        worst
    }

    macro_rules! sweep {
        ($($name:ident: $f:expr, $exact:expr, $low:expr, $high:expr, $bound:expr;)*) => {$(
            #[test]
            fn $name() {
                let (e, x) = worst($f, $exact, $low, $high);
                println!("{} {e:.3} ulp at {x}", stringify!($name));
                assert!(e <= $bound, "{e} ulp at {x}");
            }
        )*};
    }

    const INF: f32 = f32::INFINITY;
    fn sigmoid64(x: f64) -> f64 {
        if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
    }
    fn gelu_tanh64(x: f64) -> f64 {
        x * sigmoid64(1.595_769_121_605_730_7 * (x + 0.044_715 * x * x * x))
    }
    fn gelu64(x: f64) -> f64 {
        0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
    }

    sweep! {
        exp_sweep: exp, f64::exp, -INF, INF, 2.0;
        expm1_sweep: expm1, f64::exp_m1, -INF, INF, 1.0;
        log_sweep: log, f64::ln, -INF, INF, 2.0;
        log1p_sweep: log1p, f64::ln_1p, -INF, INF, 2.0;
        log2_sweep: log2, f64::log2, -INF, INF, 1.0;
        log10_sweep: log10, f64::log10, -INF, INF, 1.0;
        tanh_sweep: tanh, f64::tanh, -INF, INF, 2.0;
        sigmoid_sweep: sigmoid, sigmoid64, -INF, INF, 2.2;
        silu_sweep: silu, |x| x * sigmoid64(x), -1e30, INF, 3.0;
        gelu_sweep: gelu, gelu64, -1.5, INF, 4.0;
        gelu_tail_sweep: gelu, gelu64, -13.0, -1.5, 5.0;
        gelu_tanh_sweep: gelu_tanh, gelu_tanh64, -1.0, 1e30, 4.0;
        softplus_sweep: softplus, |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), -INF, INF, 2.0;
        erf_sweep: erf, libm::erf, -INF, INF, 2.0;
        sinh_sweep: sinh, f64::sinh, -INF, INF, 1.0;
        cosh_sweep: cosh, f64::cosh, -INF, INF, 1.0;
        sin_sweep: sin, f64::sin, -9e7, 9e7, 1.0;
        cos_sweep: cos, f64::cos, -9e7, 9e7, 1.0;
    }

    #[test]
    fn gelu_tanh_tail_is_small() {
        for k in 0..200_000 {
            let x = -1.0 - k as f32 * 1e-4;
            assert!((f64::from(gelu_tanh(x)) - gelu_tanh64(f64::from(x))).abs() < 1e-7, "{x}");
        }
    }

    #[test]
    fn slopes_are_near_those_in_double_precision() {
        let gated = |x: f64, y: f64, dy: f64| sigmoid64(y) + x * sigmoid64(y) * sigmoid64(-y) * dy;
        let tanh_form = |x: f64| {
            gated(x, 1.595_769_121_605_730_7 * (x + 0.044_715 * x.powi(3)), 1.595_769_121_605_730_7 * (1.0 + 0.134_145 * x * x))
        };
        let exact_form = |x: f64| {
            0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2) + x * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
        };
        for k in -400_000..=400_000 {
            let x = k as f32 * 5e-5;
            let wide = f64::from(x);
            for (got, exact) in [
                (silu_slope(x), gated(wide, wide, 1.0)),
                (gelu_tanh_slope(x), tanh_form(wide)),
                (gelu_slope(x), exact_form(wide)),
            ] {
                assert!((f64::from(got) - exact).abs() < 4e-7, "{x}: {got} {exact}");
            }
        }
        for f in [silu_slope, gelu_tanh_slope, gelu_slope] {
            assert_eq!((f(INF), f(-INF), f(0.0)), (1.0, 0.0, 0.5));
            assert!(f(f32::NAN).is_nan());
        }
    }

    #[test]
    fn edges() {
        let bits = |x: f32| x.to_bits();
        for f in [expm1, tanh, erf, sinh, sin, log1p, silu, gelu, gelu_tanh] {
            assert_eq!(bits(f(0.0)), bits(0.0));
            assert_eq!(bits(f(-0.0)), bits(-0.0));
        }
        for f in [exp, expm1, log, log1p, log2, log10, tanh, sigmoid, silu, gelu, gelu_tanh, softplus, erf, sinh, cosh, sin, cos]
        {
            assert!(f(f32::NAN).is_nan());
        }
        for f in [exp, expm1, log, log1p, log2, log10, silu, gelu, gelu_tanh, softplus, sinh, cosh] {
            assert_eq!(f(INF), INF);
        }
        for f in [exp, sigmoid, softplus, silu, gelu, gelu_tanh] {
            assert_eq!(f(-INF), 0.0);
            assert_eq!(f(-f32::MAX), 0.0);
        }
        assert_eq!((tanh(INF), tanh(-INF), erf(-INF), sigmoid(INF), expm1(-INF)), (1.0, -1.0, -1.0, 1.0, -1.0));
        assert_eq!((sinh(-INF), cosh(-INF)), (-INF, INF));
        assert!(log(-1.0).is_nan() && log(-INF).is_nan() && log1p(-2.0).is_nan() && sin(INF).is_nan() && cos(-INF).is_nan());
        assert_eq!((log(0.0), log(-0.0), log1p(-1.0), log2(0.0)), (-INF, -INF, -INF, -INF));
        assert_eq!((log(1.0), log2(8.0), log10(1000.0), exp(0.0)), (0.0, 3.0, 3.0, 1.0));
        assert_eq!((exp(89.0), exp(-104.0)), (INF, 0.0));
        assert_eq!(expm1(1e-42), 1e-42);
        assert_eq!(gelu(f32::MAX), f32::MAX);
    }
}
