// Tests and choices on the bits of f32: drivers may compile float code as if there were no NaN or infinity, integer code they may not.
// Limit: a few integer instructions for each element; all of this hides behind the memory.

// The same number, of which a compiler knows nothing: some fold (1 + x) - 1 to x, and with it every correction of rounding errors.
fn exact4(x: vec4f) -> vec4f {
    return bitcast<vec4f>(bitcast<vec4u>(x) ^ vec4u(p.nought));
}

fn magnitude4(x: vec4f) -> vec4u {
    return bitcast<vec4u>(x) & vec4u(0x7fffffffu);
}

fn is_nan4(x: vec4f) -> vec4<bool> {
    return magnitude4(x) > vec4u(0x7f800000u);
}

fn is_finite4(x: vec4f) -> vec4<bool> {
    return magnitude4(x) < vec4u(0x7f800000u);
}

fn is_inf4(x: vec4f) -> vec4<bool> {
    return magnitude4(x) == vec4u(0x7f800000u);
}

fn is_zero4(x: vec4f) -> vec4<bool> {
    return magnitude4(x) == vec4u(0u);
}

// Below zero; false for -0 and NaN.
fn is_negative4(x: vec4f) -> vec4<bool> {
    let bits = bitcast<vec4u>(x);
    return (bits > vec4u(0x80000000u)) & (bits <= vec4u(0xff800000u));
}

// Above zero; false for NaN.
fn is_positive4(x: vec4f) -> vec4<bool> {
    return (bitcast<vec4i>(x) > vec4i(0)) & !is_nan4(x);
}

fn are_numbers4(a: vec4f, b: vec4f) -> vec4<bool> {
    return !(is_nan4(a) | is_nan4(b));
}

// Through variables: constant expressions may not be infinite.
fn infinity4() -> vec4f {
    var bits = vec4u(0x7f800000u);
    return bitcast<vec4f>(bits);
}

fn nan4() -> vec4f {
    var bits = vec4u(0x7fc00000u);
    return bitcast<vec4f>(bits);
}

fn with_sign4(x: vec4f, side: vec4f) -> vec4f {
    return bitcast<vec4f>(magnitude4(x) | (bitcast<vec4u>(side) & vec4u(0x80000000u)));
}

// `y`, but x where x is NaN.
fn keep_nan4(x: vec4f, y: vec4f) -> vec4f {
    return select(y, x, is_nan4(x));
}

fn negative4(x: vec4f) -> vec4f {
    return bitcast<vec4f>(bitcast<vec4u>(x) ^ vec4u(0x80000000u));
}

fn abs4(x: vec4f) -> vec4f {
    return bitcast<vec4f>(magnitude4(x));
}

fn sign4(x: vec4f) -> vec4f {
    return select(select(x, vec4f(-1.0), is_negative4(x)), vec4f(1.0), is_positive4(x));
}

fn relu4(x: vec4f) -> vec4f {
    return select(x, vec4f(0.0), is_negative4(x));
}

fn equal4(a: vec4f, b: vec4f) -> vec4<bool> {
    return (a == b) & are_numbers4(a, b);
}

fn less4(a: vec4f, b: vec4f) -> vec4<bool> {
    return (a < b) & are_numbers4(a, b);
}

fn less_equal4(a: vec4f, b: vec4f) -> vec4<bool> {
    return (a <= b) & are_numbers4(a, b);
}

fn maximum4(a: vec4f, b: vec4f) -> vec4f {
    return select(b, a, less4(b, a) | is_nan4(a));
}

fn minimum4(a: vec4f, b: vec4f) -> vec4f {
    return select(b, a, less4(a, b) | is_nan4(a));
}

// The reciprocal of a divisor above 2^126 is a denormal, which a device may take for 0: such quotients are scaled.
fn divide4(a: vec4f, b: vec4f) -> vec4f {
    let scale = select(vec4f(1.0), vec4f(0.00390625), magnitude4(b) > vec4u(0x7e000000u));
    return (a * scale) / (b * scale);
}

fn sqrt4(x: vec4f) -> vec4f {
    return select(select(sqrt(x), nan4(), is_negative4(x)), x, is_zero4(x) | is_nan4(x));
}

fn rsqrt4(x: vec4f) -> vec4f {
    let edge = with_sign4(infinity4(), x);
    return keep_nan4(x, select(select(inverseSqrt(x), nan4(), is_negative4(x)), edge, is_zero4(x)));
}
