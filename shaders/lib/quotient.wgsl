// Quotients rounded down, remainders, powers and shifts of integers, and the exact float remainder.
// Limit: loops over bits; a float remainder takes a round for each eight binary places between dividend and divisor.

// The remainder of a / b with the sign of a, exact.
fn truncated_remainder(a: f32, b: f32) -> f32 {
    let x = bitcast<u32>(a) & 0x7fffffffu;
    let y = bitcast<u32>(b) & 0x7fffffffu;
    let side = bitcast<u32>(a) & 0x80000000u;
    var special = 0x7fc00000u;
    if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) {
        return bitcast<f32>(special);
    }
    if (x < y) {
        return a;
    }
    let unit = max(y >> 23u, 1u);
    let divisor = (y & 0x7fffffu) | select(0u, 0x800000u, y >= 0x800000u);
    var rest = ((x & 0x7fffffu) | select(0u, 0x800000u, x >= 0x800000u)) % divisor;
    var left = max(x >> 23u, 1u) - unit;
    while (left > 0u) {
        let step = min(left, 8u);
        rest = (rest << step) % divisor;
        left -= step;
    }
    let zeros = min(countLeadingZeros(rest) - 8u, 31u);
    var bits = rest << min(zeros, unit - 1u);
    if (rest != 0u && zeros < unit) {
        bits = ((rest << zeros) & 0x7fffffu) | ((unit - zeros) << 23u);
    }
    return bitcast<f32>(bits | side);
}

// Quotient rounded down, and remainder with the sign of b.
fn floor_quotient(a: f32, b: f32) -> vec2f {
    let exact = truncated_remainder(a, b);
    let b_bits = bitcast<u32>(b);
    if ((b_bits & 0x7fffffffu) == 0u) {
        return vec2f(a / b, exact);
    }
    var remainder = exact;
    var quotient = (a - exact) / b;
    let size = bitcast<u32>(exact) & 0x7fffffffu;
    if (size == 0u) {
        remainder = bitcast<f32>(b_bits & 0x80000000u);
    } else if (size <= 0x7f800000u && (bitcast<u32>(exact) ^ b_bits) >= 0x80000000u) {
        remainder = exact + b;
        quotient -= 1.0;
    }
    let below = floor(quotient);
    let rounded = select(below, below + 1.0, quotient - below > 0.5);
    let zero = bitcast<f32>((bitcast<u32>(a) ^ b_bits) & 0x80000000u);
    return vec2f(select(rounded, zero, (bitcast<u32>(quotient) & 0x7fffffffu) == 0u), remainder);
}

fn floor_divide4(a: vec4f, b: vec4f) -> vec4f {
    return vec4f(floor_quotient(a.x, b.x).x, floor_quotient(a.y, b.y).x, floor_quotient(a.z, b.z).x, floor_quotient(a.w, b.w).x);
}

fn remainder4(a: vec4f, b: vec4f) -> vec4f {
    return vec4f(floor_quotient(a.x, b.x).y, floor_quotient(a.y, b.y).y, floor_quotient(a.z, b.z).y, floor_quotient(a.w, b.w).y);
}

// Quotients of divisors that need no care (neither 0 nor -1).
fn i32_floor_divide4(a: vec4i, b: vec4i) -> vec4i {
    let safe = select(b, vec4i(1), (b == vec4i(0)) | (b == vec4i(-1)));
    let quotient = a / safe;
    let rest = a - quotient * safe;
    let down = select(vec4i(0), vec4i(1), (rest != vec4i(0)) & ((rest ^ safe) < vec4i(0)));
    return select(select(quotient - down, vec4i(0) - a, b == vec4i(-1)), vec4i(0), b == vec4i(0));
}

fn i32_remainder4(a: vec4i, b: vec4i) -> vec4i {
    return select(a - i32_floor_divide4(a, b) * b, vec4i(0), b == vec4i(0));
}

fn u8_floor_divide4(a: vec4u, b: vec4u) -> vec4u {
    return select(a / max(b, vec4u(1u)), vec4u(0u), b == vec4u(0u));
}

fn u8_remainder4(a: vec4u, b: vec4u) -> vec4u {
    return select(a % max(b, vec4u(1u)), vec4u(0u), b == vec4u(0u));
}

fn u32_pow4(a: vec4u, b: vec4u) -> vec4u {
    var base = a;
    var left = b;
    var out = vec4u(1u);
    while (any(left != vec4u(0u))) {
        out = select(out, out * base, (left & vec4u(1u)) == vec4u(1u));
        base *= base;
        left = left >> vec4u(1u);
    }
    return out;
}

fn i32_pow4(a: vec4i, b: vec4i) -> vec4i {
    let power = bitcast<vec4i>(u32_pow4(bitcast<vec4u>(a), bitcast<vec4u>(max(b, vec4i(0)))));
    let turned = select(vec4i(-1), vec4i(1), (b & vec4i(1)) == vec4i(0));
    let inverse = select(select(vec4i(0), turned, a == vec4i(-1)), vec4i(1), a == vec4i(1));
    return select(power, inverse, b < vec4i(0));
}

fn i32_left4(a: vec4i, b: vec4i) -> vec4i {
    let count = bitcast<vec4u>(b);
    return select(a << (count & vec4u(31u)), vec4i(0), count > vec4u(31u));
}

fn i32_right4(a: vec4i, b: vec4i) -> vec4i {
    return a >> min(bitcast<vec4u>(b), vec4u(31u));
}

fn u8_left4(a: vec4u, b: vec4u) -> vec4u {
    return select((a << min(b, vec4u(8u))) & vec4u(255u), vec4u(0u), b > vec4u(7u));
}

fn u8_right4(a: vec4u, b: vec4u) -> vec4u {
    return a >> min(b, vec4u(8u));
}
