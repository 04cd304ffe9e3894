// Smooth activations and their slopes, as the CPU's functions.
// Limit: 30 to 80 float instructions for each element.

// x * sigmoid(y); the power of two comes last, so that tiny tails stay precise.
fn gated4(x: vec4f, y: vec4f) -> vec4f {
    let e = exp_parts4(negative4(abs4(y)), vec4f(0.0));
    let one = 1.0 + e.digits * e.scale * e.rest;
    return select(x / one, (x * e.digits * e.scale) / one * e.rest, y < vec4f(0.0));
}

// -0, as the limit of what falls off to the left.
fn minus_zero4() -> vec4f {
    var bits = vec4u(0x80000000u);
    return bitcast<vec4f>(bits);
}

fn silu4(x: vec4f) -> vec4f {
    let y = gated4(max(x, vec4f(-200.0)), x);
    return keep_nan4(x, select(y, minus_zero4(), bitcast<vec4u>(x) == vec4u(0xff800000u)));
}

fn gelu_tanh4(x: vec4f) -> vec4f {
    let c = clamp(x, vec4f(-20.0), vec4f(20.0));
    let y = 1.5957691216057307 * (c + 0.044715 * c * c * c);
    let out = gated4(max(x, vec4f(-20.0)), y);
    return keep_nan4(x, select(out, minus_zero4(), less4(x, vec4f(-20.0))));
}

// The derivative of x * sigmoid(y) for a y with derivative `dy`: s + x s (1 - s) dy.
fn gated_slope4(x: vec4f, y: vec4f, dy: vec4f) -> vec4f {
    let e = exp_value4(negative4(abs4(y)), vec4f(0.0));
    let large = 1.0 / (1.0 + e);
    let small = e * large;
    return select(large, small, y < vec4f(0.0)) + x * (large * small) * dy;
}

fn silu_slope4(x: vec4f) -> vec4f {
    let c = clamp(x, vec4f(-200.0), vec4f(200.0));
    return keep_nan4(x, gated_slope4(c, c, vec4f(1.0)));
}

fn gelu_tanh_slope4(x: vec4f) -> vec4f {
    let c = clamp(x, vec4f(-20.0), vec4f(20.0));
    let z = 0.044715 * c * c;
    let slope = 1.5957691216057307 * (1.0 + 3.0 * z);
    return keep_nan4(x, gated_slope4(c, 1.5957691216057307 * (c + z * c), slope));
}

// P(x) + x p(x) with the normal distribution and its density.
fn gelu_slope4(x: vec4f) -> vec4f {
    let c = clamp(x, vec4f(-20.0), vec4f(20.0));
    let density = 0.3989422804 * exp4(-0.5 * c * c);
    return keep_nan4(x, 0.5 + 0.5 * erf4(c * 0.70710678118654752) + c * density);
}

// x * (1 - erfc(x / sqrt 2) / 2). erfc(t) = e^(-t^2) g(u) / (1 + 2t), u = (t - 2) / (t + 2), after Shepherd and Laframboise (1981).
fn gelu4(x: vec4f) -> vec4f {
    let a = min(abs4(x), vec4f(14.4));
    let t = a * 0.70710678118654752;
    let z = t * t;
    var p = vec4f(4.70005721e-3);
    p = p * z - 2.67492319e-2;
    p = p * z + 1.12827151e-1;
    p = p * z - 3.7612604e-1;
    p = p * z + 1.28379165e-1;
    let small = x * (0.5 + with_sign4(0.5 * (p * t + t), x));
    let d1 = t + 2.0;
    let d2 = 1.0 + 2.0 * t;
    let inverse = 1.0 / (d1 * d2);
    let u = (t - 2.0) * (d2 * inverse);
    var g = vec4f(-2.41365119e-4);
    g = g * u - 1.25524731e-3;
    g = g * u + 1.15964304e-3;
    g = g * u + 8.651748e-3;
    g = g * u - 8.00942574e-3;
    g = g * u - 5.42096046e-2;
    g = g * u + 1.64049152e-1;
    g = g * u - 1.66030941e-1;
    g = g * u - 9.27637767e-2;
    g = g * u + 1.27697839;
    // a^2 / 2 in two parts: the upper half of a squares exactly.
    let hi = bitcast<vec4f>(bitcast<vec4u>(a) & vec4u(0xfffff000u));
    let e = exp_parts4(-0.5 * (hi * hi), -0.5 * ((a - hi) * (a + hi)));
    let half = 0.5 * (e.digits * e.scale) * (g * (d1 * inverse));
    let tail = select(x - x * (half * e.rest), (x * half) * e.rest, is_negative4(x));
    let y = select(tail, small, t < vec4f(0.5));
    let edge = select(y, x, less4(vec4f(14.4), x));
    return keep_nan4(x, select(edge, minus_zero4(), less4(x, vec4f(-14.4))));
}

fn softplus4(x: vec4f) -> vec4f {
    let tail = log1p_4(exp_value4(negative4(abs4(x)), vec4f(0.0)));
    return keep_nan4(x, relu4(x) + tail);
}

// The error function; both fits by Chebyshev interpolation.
fn erf4(x: vec4f) -> vec4f {
    let z = x * x;
    var p = vec4f(7.8758751e-5);
    p = p * z - 8.0168643e-4;
    p = p * z + 5.1890874e-3;
    p = p * z - 2.6854212e-2;
    p = p * z + 1.1283595e-1;
    p = p * z - 3.7612627e-1;
    p = p * z + 1.2837917e-1;
    let small = p * x + x;
    // -log(erfc(a)) in a - 1; beyond 4 the result rounds to 1.
    let a = abs4(x);
    let d = min(a, vec4f(4.0)) - 1.0;
    var q = vec4f(-1.63993802e-6);
    q = q * d + 3.29934098e-5;
    q = q * d - 3.203923e-4;
    q = q * d + 2.0546653e-3;
    q = q * d - 1.00782678e-2;
    q = q * d + 4.15760215e-2;
    q = q * d + 8.43104688e-1;
    q = q * d + 2.63896769;
    q = q * d + 1.84960551;
    let large = with_sign4(1.0 - exp4(negative4(q)), x);
    return select(select(large, small, less4(a, vec4f(1.0))), x, is_nan4(x) | is_zero4(x));
}
