// Conversions of 64-bit integers, and those of floats to integers: they saturate, and NaN becomes 0.

// The words of a magnitude as 32 bits from its highest one on, the last one set where others are lost, and the exponent of their unit.
fn long_digits4(size: Long) -> Long {
    let zeros = countLeadingZeros(size.hi);
    let high = long_left4(size, min(zeros, vec4u(31u)));
    let lost = select(vec4u(0u), vec4u(1u), high.lo != vec4u(0u));
    let is_word = size.hi == vec4u(0u);
    return Long(select(high.hi | lost, size.lo, is_word), select(vec4u(32u) - zeros, vec4u(0u), is_word));
}

fn long_scaled4(value: vec4f, exponent: vec4u, is_negative: vec4<bool>) -> vec4f {
    let size = value * bitcast<vec4f>((exponent + vec4u(127u)) << vec4u(23u));
    return select(size, -size, is_negative);
}

fn f32_of_long4(x: Long) -> vec4f {
    let digits = long_digits4(long_abs4(x));
    return long_scaled4(vec4f(digits.lo), digits.hi, long_is_negative4(x));
}

// As `odd_of_i32_4`.
fn odd_of_long4(x: Long) -> vec4f {
    let digits = long_digits4(long_abs4(x));
    return long_scaled4(odd_digits4(digits.lo), digits.hi, long_is_negative4(x));
}

fn long_of_f32_4(x: vec4f) -> Long {
    let bits = bitcast<vec4u>(x);
    let size = bits & vec4u(0x7fffffffu);
    let exponent = size >> vec4u(23u);
    let digits = (size & vec4u(0x7fffffu)) | vec4u(0x800000u);
    let large = long_left4(long_of_u32_4(digits), clamp(exponent, vec4u(150u), vec4u(190u)) - vec4u(150u));
    let small = long_of_u32_4(digits >> min(vec4u(150u) - clamp(exponent, vec4u(127u), vec4u(150u)), vec4u(31u)));
    let whole = long_select4(small, large, exponent > vec4u(150u));
    let is_negative = bits > vec4u(0x80000000u);
    let signed = long_select4(whole, long_neg4(whole), is_negative);
    let ones = select(vec4u(0xffffffffu), vec4u(0u), is_negative);
    let limited = long_select4(signed, Long(ones, ones ^ vec4u(0x80000000u)), size >= vec4u(0x5f000000u));
    let is_none = (size < vec4u(0x3f800000u)) | (size > vec4u(0x7f800000u));
    return long_select4(limited, Long(vec4u(0u), vec4u(0u)), is_none);
}

fn i32_of_f32_4(x: vec4f) -> vec4i {
    let size = bitcast<vec4u>(x) & vec4u(0x7fffffffu);
    let is_inside = size < vec4u(0x4f000000u);
    let whole = vec4i(select(vec4f(0.0), x, is_inside));
    let edge = bitcast<vec4i>(vec4u(0x7fffffffu) + (bitcast<vec4u>(x) >> vec4u(31u)));
    return select(select(edge, whole, is_inside), vec4i(0), size > vec4u(0x7f800000u));
}

fn u8_of_f32_4(x: vec4f) -> vec4u {
    let bits = bitcast<vec4u>(x);
    let whole = vec4u(select(vec4f(0.0), x, bits < vec4u(0x437f0000u)));
    return select(whole, vec4u(255u), (bits >= vec4u(0x437f0000u)) & (bits <= vec4u(0x7f800000u)));
}
