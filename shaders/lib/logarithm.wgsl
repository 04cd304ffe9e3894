// Logarithms and powers; where one float is too short a value is held as the sum of two.
// Limit: 30 float instructions for each logarithm, about 100 for a power.

// The mantissa in [sqrt(1/2), sqrt 2) minus 1, and the exponent, of a positive number.
struct Split {
    mantissa: vec4f,
    exponent: vec4f,
}

struct Double {
    hi: vec4f,
    lo: vec4f,
}

fn log_split4(x: vec4f) -> Split {
    let bits = bitcast<vec4u>(x);
    let is_tiny = bits < vec4u(0x800000u);
    // As an integer a denormal converts exactly.
    let normal = select(bits, bitcast<vec4u>(vec4f(bits & vec4u(0x7fffffu))), is_tiny) - vec4u(0x3f3504f3u);
    let exponent = (bitcast<vec4i>(normal) >> vec4u(23u)) - select(vec4i(0), vec4i(149), is_tiny);
    let mantissa = bitcast<vec4f>((normal & vec4u(0x7fffffu)) + vec4u(0x3f3504f3u));
    return Split(mantissa - 1.0, vec4f(exponent));
}

// `y`, but for 0, negative numbers, infinity and NaN what a logarithm gives there.
fn log_edges4(x: vec4f, y: vec4f) -> vec4f {
    let is_odd = is_nan4(x) | (bitcast<vec4u>(x) == vec4u(0x7f800000u));
    let valid = select(select(y, negative4(infinity4()), is_zero4(x)), nan4(), is_negative4(x));
    return select(valid, x, is_odd);
}

// log(1 + f) + e ln 2 + c (method and polynomial: Cephes logf).
fn log_core4(f: vec4f, e: vec4f, c: vec4f) -> vec4f {
    let z = f * f;
    var p = vec4f(7.0376836292e-2);
    p = p * f - 1.1514610310e-1;
    p = p * f + 1.1676998740e-1;
    p = p * f - 1.2420140846e-1;
    p = p * f + 1.4249322787e-1;
    p = p * f - 1.6668057665e-1;
    p = p * f + 2.0000714765e-1;
    p = p * f - 2.4999993993e-1;
    p = p * f + 3.3333331174e-1;
    let y = f * z * p + e * -2.12194440e-4 + c - 0.5 * z;
    return (f + y) + e * 0.693359375;
}

fn log4(x: vec4f) -> vec4f {
    let s = log_split4(x);
    return log_edges4(x, log_core4(s.mantissa, s.exponent, vec4f(0.0)));
}

// The rounding error of 1 + x is added back.
fn log1p_4(x: vec4f) -> vec4f {
    let u = exact4(1.0 + x);
    let s = log_split4(u);
    let lost = select(1.0 - (u - x), x - (u - 1.0), x < vec4f(1.0));
    let c = select(vec4f(0.0), lost / u, x < vec4f(16777216.0));
    let y = log_edges4(u, log_core4(s.mantissa, s.exponent, c));
    return select(y, x, (magnitude4(x) < vec4u(0x337d6bf0u)) | is_nan4(x));
}

// The upper 12 digits: products of two such are exact.
fn upper4(x: vec4f) -> vec4f {
    return bitcast<vec4f>(bitcast<vec4u>(x) & vec4u(0xfffff000u));
}

// A sum of two floats times a constant given as an upper and a lower part.
fn double_scaled4(x: Double, hi: f32, lo: f32) -> Double {
    let upper = upper4(x.hi);
    return Double(upper * hi, upper * lo + ((x.hi - upper) + x.lo) * (hi + lo));
}

// Adds an integer, whose size is that of the largest term if it is not 0.
fn double_plus4(n: vec4f, x: Double) -> Double {
    let sum = exact4(n + x.hi);
    return Double(sum, (x.hi - (sum - n)) + x.lo);
}

// log(1 + f) by the series of the inverse hyperbolic tangent in s = f / (2 + f), |s| <= 0.172.
fn double_log4(f: vec4f) -> Double {
    let d = exact4(2.0 + f);
    let d_lost = f - (d - 2.0);
    let upper = upper4(f / d);
    let d_upper = upper4(d);
    let lower = ((exact4(f - upper * d_upper) - upper * (d - d_upper)) - upper * d_lost) / d;
    let s = upper + lower;
    let z = s * s;
    var p = vec4f(0.18181818);
    p = p * z + 0.22222222;
    p = p * z + 0.28571429;
    p = p * z + 0.4;
    p = p * z + 0.66666667;
    return Double(2.0 * upper, 2.0 * lower + p * z * s);
}

fn double_log2_4(x: vec4f) -> Double {
    let s = log_split4(x);
    return double_plus4(s.exponent, double_scaled4(double_log4(s.mantissa), 1.4423828125, 3.1222839606925845e-4));
}

fn log2_4(x: vec4f) -> vec4f {
    let y = double_log2_4(x);
    return log_edges4(x, y.hi + y.lo);
}

fn log10_4(x: vec4f) -> vec4f {
    let s = log_split4(x);
    let digits = double_scaled4(double_log4(s.mantissa), 0.4342041015625, 9.038033749675378e-5);
    let y = double_plus4(s.exponent * 0.301025390625, digits);
    return log_edges4(x, y.hi + (y.lo + s.exponent * 4.605039066518657e-6));
}
