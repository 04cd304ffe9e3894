// e^x and what is made of it, as the CPU's functions: polynomials, because the built-in ones lose digits for large arguments.
// Limit: 20 to 60 float instructions for each element.

struct Power {
    digits: vec4f,
    scale: vec4f,
    rest: vec4f,
}

// 2^k for -126 <= k <= 127.
fn power_of_two4(k: vec4i) -> vec4f {
    return bitcast<vec4f>((k + vec4i(127)) << vec4u(23u));
}

// e^r for |r| <= ln 2 / 2 (Cephes expf, Moshier).
fn exp_core4(r: vec4f) -> vec4f {
    var p = vec4f(1.9875691500e-4);
    p = p * r + 1.3981999507e-3;
    p = p * r + 8.3334519073e-3;
    p = p * r + 4.1665795894e-2;
    p = p * r + 1.6666665459e-1;
    p = p * r + 5.0000001201e-1;
    return (p * (r * r) + r) + 1.0;
}

// e^(hi + lo) for a small `lo`, as digits and two powers of two: their product alone may be no normal number.
fn exp_parts4(hi: vec4f, lo: vec4f) -> Power {
    let x = clamp(select(hi, vec4f(0.0), is_nan4(hi)), vec4f(-126.0), vec4f(89.0));
    let n = round(x * 1.44269504);
    // ln 2 in two parts, the first so short that its products are exact (Cody and Waite 1980).
    let r = exact4(x - n * 0.693359375) - (n * -2.12194440e-4 - lo);
    let k = vec4i(n);
    let half = k >> vec4u(1u);
    return Power(exp_core4(r), power_of_two4(half), power_of_two4(k - half));
}

fn exp_value4(x: vec4f, lo: vec4f) -> vec4f {
    let e = exp_parts4(x, lo);
    let edge = select(e.digits * e.scale * e.rest, infinity4(), less4(vec4f(88.8), x));
    return select(edge, vec4f(0.0), less4(x, vec4f(-104.0)));
}

fn exp4(x: vec4f) -> vec4f {
    return keep_nan4(x, exp_value4(x, vec4f(0.0)));
}

// Computed as ((e^r - 1) 2^(n-1) + (2^(n-1) - 1/2)) * 2, so that 2^128 is not needed.
fn expm1_4(x: vec4f) -> vec4f {
    let limited = clamp(select(x, vec4f(0.0), is_nan4(x)), vec4f(-40.0), vec4f(88.9));
    let n = round(limited * 1.44269504);
    let r = exact4(limited - n * 0.693359375) + n * 2.12194440e-4;
    var p = vec4f(1.9875691500e-4);
    p = p * r + 1.3981999507e-3;
    p = p * r + 8.3334519073e-3;
    p = p * r + 4.1665795894e-2;
    p = p * r + 1.6666665459e-1;
    p = p * r + 5.0000001201e-1;
    let small = p * (r * r) + r;
    let half = power_of_two4(vec4i(n) - vec4i(1));
    let y = select((small * half + (half - 0.5)) * 2.0, small, n == vec4f(0.0));
    let edge = select(y, infinity4(), less4(vec4f(88.8), x));
    return select(edge, x, is_nan4(x) | is_zero4(x) | (magnitude4(x) < vec4u(0x322bcc77u)));
}

// e^|x| / 2, which reaches the largest numbers.
fn half_exp4(x: vec4f) -> vec4f {
    let e = exp_parts4(min(abs4(x), vec4f(89.5)) - 0.693359375, vec4f(2.12194440e-4));
    return select(e.digits * e.scale * e.rest, infinity4(), less4(vec4f(89.5), abs4(x)));
}

fn sinh4(x: vec4f) -> vec4f {
    let e = expm1_4(min(abs4(x), vec4f(2.0)));
    let h = half_exp4(x);
    let y = select(0.5 * (e + e / (1.0 + e)), h - 0.25 / h, less4(vec4f(1.0), abs4(x)));
    return select(with_sign4(y, x), x, is_nan4(x) | is_zero4(x));
}

fn cosh4(x: vec4f) -> vec4f {
    let h = half_exp4(x);
    return keep_nan4(x, h + 0.25 / h);
}

// Method and polynomial: Cephes tanhf.
fn tanh4(x: vec4f) -> vec4f {
    let a = abs4(x);
    let e = exp_parts4(min(a + a, vec4f(20.0)), vec4f(0.0));
    let large = 1.0 - 2.0 / (e.digits * e.scale * e.rest + 1.0);
    let z = x * x;
    var p = vec4f(-5.70498872745e-3);
    p = p * z + 2.06390887954e-2;
    p = p * z - 5.37397155531e-2;
    p = p * z + 1.33314422036e-1;
    p = p * z - 3.33332819422e-1;
    let small = p * z * x + x;
    return select(with_sign4(select(large, small, a < vec4f(0.625)), x), x, is_nan4(x) | is_zero4(x));
}

fn sigmoid4(x: vec4f) -> vec4f {
    let e = exp_value4(negative4(abs4(x)), vec4f(0.0));
    return keep_nan4(x, select(vec4f(1.0), e, is_negative4(x)) / (1.0 + e));
}
