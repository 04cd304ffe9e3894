// Sines, cosines, tangents and their inverses.
// Limit: 30 float instructions for each element; arguments above 8192 take a reduction of 100 integer ones.

struct Angle {
    rest: vec4f,
    quadrant: vec4u,
}

// x minus the nearest multiple of pi/2, for |x| <= 8192: pi/2 in parts of 8, 11 and 24 bits, so that the first two products are exact.
fn reduce_near4(x: vec4f) -> Angle {
    let n = round(x * 0.63661977236758134);
    let near = exact4(exact4(x - n * 1.5703125) - n * 4.837512969970703125e-4);
    let r = near - n * 7.549790126404332e-8;
    return Angle(r, bitcast<vec4u>(vec4i(n)));
}

// 32 bits of 2/pi from a bit position on; bits before the first are 0.
fn two_over_pi4(bit: vec4u) -> vec4u {
    var words = array<u32, 8>(
        0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu
    );
    let word = bit >> vec4u(5u);
    let by = bit & vec4u(31u);
    let first = vec4u(words[word.x], words[word.y], words[word.z], words[word.w]);
    let second = vec4u(words[word.x + 1u], words[word.y + 1u], words[word.z + 1u], words[word.w + 1u]);
    return (first << by) | ((second >> vec4u(1u)) >> (vec4u(31u) - by));
}

// The same for any finite x, with as many bits of 2/pi as matter (Payne and Hanek 1983).
fn reduce_far4(x: vec4f) -> Angle {
    let exponent = clamp(magnitude4(x) >> vec4u(23u), vec4u(128u), vec4u(254u));
    let digits = ((bitcast<vec4u>(x) & vec4u(0x7fffffu)) | vec4u(0x800000u)) << vec4u(8u);
    // Of the product digits * 2/pi * 2^exponent the bits from 2 on down: those of more weight are whole turns.
    let first = exponent - vec4u(128u);
    let low = wide_mul4(digits, two_over_pi4(first + vec4u(64u)));
    let middle = long_add4(wide_mul4(digits, two_over_pi4(first + vec4u(32u))), long_of_u32_4(low.hi));
    let product = Long(middle.lo, middle.hi + digits * two_over_pi4(first));
    let fraction = long_left4(product, vec4u(2u));
    let size = long_abs4(fraction);
    let zeros = min(countLeadingZeros(size.hi), vec4u(31u));
    let value = vec4f(long_left4(size, zeros).hi) * power_of_two4(vec4i(-32) - bitcast<vec4i>(zeros)) * 1.5707963267948966;
    let is_left = bitcast<vec4u>(x) >= vec4u(0x80000000u);
    let up = product.hi >> vec4u(29u);
    let quadrant = (up + vec4u(1u)) >> vec4u(1u);
    let turns = long_is_negative4(fraction) != is_left;
    return Angle(select(value, -value, turns), select(quadrant, ~quadrant + vec4u(1u), is_left));
}

fn reduce_angle4(x: vec4f) -> Angle {
    let is_far = magnitude4(x) > vec4u(0x46000000u);
    let near = reduce_near4(select(x, vec4f(0.0), is_far));
    if (!any(is_far)) {
        return near;
    }
    let far = reduce_far4(x);
    return Angle(select(near.rest, far.rest, is_far), select(near.quadrant, far.quadrant, is_far));
}

// Cephes sinf and cosf, |r| <= pi/4.
fn sin_core4(r: vec4f) -> vec4f {
    let z = r * r;
    return ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * r + r;
}

fn cos_core4(r: vec4f) -> vec4f {
    let z = r * r;
    return ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1.0;
}

fn turned_sin4(a: Angle, more: vec4u) -> vec4f {
    let quadrant = a.quadrant + more;
    let y = select(sin_core4(a.rest), cos_core4(a.rest), (quadrant & vec4u(1u)) == vec4u(1u));
    return select(y, -y, (quadrant & vec4u(2u)) == vec4u(2u));
}

fn sin4(x: vec4f) -> vec4f {
    let y = turned_sin4(reduce_angle4(x), vec4u(0u));
    return select(select(y, x, is_zero4(x)), nan4(), !is_finite4(x));
}

fn cos4(x: vec4f) -> vec4f {
    return select(turned_sin4(reduce_angle4(x), vec4u(1u)), nan4(), !is_finite4(x));
}

fn tan4(x: vec4f) -> vec4f {
    let a = reduce_angle4(x);
    let y = turned_sin4(a, vec4u(0u)) / turned_sin4(a, vec4u(1u));
    return select(select(y, x, is_zero4(x)), nan4(), !is_finite4(x));
}
