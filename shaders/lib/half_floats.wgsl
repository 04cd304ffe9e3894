// 16-bit floats and roundings as integers: drivers fold float conversions away or flush what is small.
// Limit: about 25 integer instructions for each rounding to half precision.

// The bits of the half nearest to x, ties to even.
fn f16_bits4(x: vec4f) -> vec4u {
    let bits = bitcast<vec4u>(x);
    let size = bits & vec4u(0x7fffffffu);
    // Normal results: half a unit is added (to even) and the exponent re-biased.
    let normal = (size + vec4u(0xfffu) + ((size >> vec4u(13u)) & vec4u(1u)) - vec4u(0x38000000u)) >> vec4u(13u);
    // Denormal ones: multiples of 2^-24, rounded from the significand.
    let shift = min(vec4u(126u) - min(size >> vec4u(23u), vec4u(112u)), vec4u(31u));
    let digits = (size & vec4u(0x7fffffu)) | vec4u(0x800000u);
    let whole = digits >> shift;
    let rest = digits - (whole << shift);
    let half = vec4u(1u) << (shift - vec4u(1u));
    let up = (rest > half) | ((rest == half) & ((whole & vec4u(1u)) == vec4u(1u)));
    let denormal = whole + select(vec4u(0u), vec4u(1u), up);
    let finite = select(normal, denormal, size < vec4u(0x38800000u));
    let limited = select(finite, vec4u(0x7c00u), size >= vec4u(0x477ff000u));
    let kept = vec4u(0x7e00u) | ((size >> vec4u(13u)) & vec4u(0x3ffu));
    return select(limited, kept, size > vec4u(0x7f800000u)) | ((bits >> vec4u(16u)) & vec4u(0x8000u));
}

fn f16_value4(half: vec4u) -> vec4f {
    let rest = half & vec4u(0x7fffu);
    let normal = (rest << vec4u(13u)) + vec4u(0x38000000u);
    let denormal = bitcast<vec4u>(vec4f(rest) * 5.9604644775390625e-8);
    let finite = select(normal, denormal, rest < vec4u(0x400u));
    let all = select(finite, vec4u(0x7f800000u) | (rest << vec4u(13u)), rest >= vec4u(0x7c00u));
    return bitcast<vec4f>(all | ((half & vec4u(0x8000u)) << vec4u(16u)));
}

fn round_f16_4(x: vec4f) -> vec4f {
    return f16_value4(f16_bits4(x));
}

// The bits of the bfloat16 nearest to x, ties to even.
fn bf16_bits4(x: vec4f) -> vec4u {
    let bits = bitcast<vec4u>(x);
    let rounded = (bits + vec4u(0x7fffu) + ((bits >> vec4u(16u)) & vec4u(1u))) >> vec4u(16u);
    let kept = (bits >> vec4u(16u)) | vec4u(0x40u);
    return select(rounded, kept, (bits & vec4u(0x7fffffffu)) > vec4u(0x7f800000u));
}

fn bf16_value4(half: vec4u) -> vec4f {
    return bitcast<vec4f>(half << vec4u(16u));
}

fn round_bf16_4(x: vec4f) -> vec4f {
    return bf16_value4(bf16_bits4(x));
}

// An f64, given by its words, as f32 with an odd last bit where it is inexact: rounding that to 16 bits is as rounding once.
fn odd_of_f64_4(low: vec4u, high: vec4u) -> vec4f {
    let exponent = (high >> vec4u(20u)) & vec4u(0x7ffu);
    let digits = ((high & vec4u(0xfffffu)) << vec4u(3u)) | (low >> vec4u(29u));
    let lost = select(vec4u(0u), vec4u(1u), (low & vec4u(0x1fffffffu)) != vec4u(0u));
    let normal = (((exponent - vec4u(896u)) & vec4u(0xffu)) << vec4u(23u)) | digits | lost;
    let large = select(vec4u(0x7f7fffffu), vec4u(0x7f800000u) | digits | lost, exponent == vec4u(0x7ffu));
    let bits = select(select(normal, large, exponent > vec4u(1150u)), vec4u(0u), exponent < vec4u(897u));
    return bitcast<vec4f>(bits | (high & vec4u(0x80000000u)));
}

// An unsigned integer made odd where 24 bits do not hold it: then it converts exactly.
fn odd_digits4(x: vec4u) -> vec4f {
    let shift = vec4u(8u) - min(countLeadingZeros(x), vec4u(8u));
    let kept = x >> shift;
    let lost = select(vec4u(0u), vec4u(1u), (kept << shift) != x);
    return vec4f((kept | lost) << shift);
}

fn odd_of_i32_4(x: vec4i) -> vec4f {
    let value = odd_digits4(bitcast<vec4u>(abs(x)));
    return select(value, -value, x < vec4i(0));
}
