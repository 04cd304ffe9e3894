// The accumulator of float products: digits in [1, 2), what rounding lost of them, and an exponent apart, so that nothing overflows
// on the way.

struct Acc {
    digits: vec4f,
    lost: vec4f,
    exponent: vec4i,
}

fn nothing() -> Acc {
    return Acc(vec4f(1.0), vec4f(0.0), vec4i(0));
}

// Zeros, infinities and NaN stay as they are, with exponent 0.
fn digits_of(x: vec4f, lost: vec4f, exponent: vec4i) -> Acc {
    let field = magnitude4(x) >> vec4u(23u);
    let is_plain = (field != vec4u(0u)) & (field != vec4u(255u));
    let digits = bitcast<vec4f>((bitcast<vec4u>(x) & vec4u(0x807fffffu)) | vec4u(0x3f800000u));
    let more = bitcast<vec4i>(field) - vec4i(127);
    // Digits of a product are below 4: one step down at most, and factors come without losses.
    let scaled = select(lost, lost * 0.5, more == vec4i(1));
    let limited = clamp(exponent + more, vec4i(-0x10000000), vec4i(0x10000000));
    return Acc(select(x, digits, is_plain), select(vec4f(0.0), scaled, is_plain), select(vec4i(0), limited, is_plain));
}

fn join(a: Acc, b: Acc) -> Acc {
    let product = exact4(a.digits * b.digits);
    let left = upper4(a.digits);
    let right = upper4(b.digits);
    // The product's rounding error, from exact products of halves.
    let near = exact4(left * right - product) + left * (b.digits - right);
    let error = (near + (a.digits - left) * right) + (a.digits - left) * (b.digits - right);
    let lost = error + (a.digits * b.lost + a.lost * b.digits);
    return digits_of(product, select(vec4f(0.0), lost, is_finite4(product)), a.exponent + b.exponent);
}

fn add(a: Acc, x: vec4f) -> Acc {
    return join(a, digits_of(x, vec4f(0.0), vec4i(0)));
}

fn result(a: Acc, count: u32) -> vec4f {
    let exponent = clamp(a.exponent, vec4i(-200), vec4i(200));
    let half = exponent >> vec4u(1u);
    return ((a.digits + a.lost) * power_of_two4(half)) * power_of_two4(exponent - half);
}
