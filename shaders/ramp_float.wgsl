// start + i * step in floats, from exact fixed-point numbers of three words (where both are finite): rounded once, or to odd where the
// result is rounded to 16 bits afterwards.
// Limited by integer arithmetic, a few tens of operations an element.

/// a + b for numbers of three words.
fn sum(a: vec3<u32>, b: vec3<u32>) -> vec3<u32> {
    let low = a.x + b.x;
    let carry = select(0u, 1u, low < a.x);
    let middle = a.y + b.y;
    let over = select(0u, 1u, middle < a.y);
    let sum = middle + carry;
    let again = select(0u, 1u, sum < middle);
    return vec3<u32>(low, sum, a.z + b.z + over + again);
}

/// step * i.
fn times(step: vec3<u32>, i: u32) -> vec3<u32> {
    let low = wide_product(step.x, i);
    let middle = wide_product(step.y, i);
    return sum(vec3<u32>(low, 0u), vec3<u32>(0u, middle.x, middle.y + step.z * i));
}

fn power_of_two(exponent: i32) -> f32 {
    return bitcast<f32>(u32(exponent + 127) << 23u);
}

/// The number times 2^p.last as a float.
fn to_float(number: vec3<u32>) -> f32 {
    let is_negative = (number.z >> 31u) == 1u;
    var size = number;
    if is_negative {
        size = sum(~number, vec3<u32>(1u, 0u, 0u));
    }
    if all(size == vec3<u32>(0u)) {
        return 0.0;
    }
    // The highest bit goes to the top of the highest word; what is below 32 bits is only told from zero.
    var moved = 0u;
    if size.z == 0u {
        size = vec3<u32>(0u, size.x, size.y);
        moved += 32u;
    }
    if size.z == 0u {
        size = vec3<u32>(0u, 0u, size.y);
        moved += 32u;
    }
    let lead = countLeadingZeros(size.z);
    let top = (size.z << lead) | select(0u, size.y >> (32u - lead), lead > 0u);
    let is_inexact = (size.y << lead) != 0u || size.x != 0u;
    let sticky = select(0u, 1u, is_inexact);
    var mantissa = top >> 8u;
    let rest = ((top & 0xffu) << 1u) | sticky;
    if p.is_odd == 1u {
        mantissa |= select(0u, 1u, rest != 0u);
    } else {
        // To nearest, ties to even: a half is 0x100.
        mantissa += select(0u, 1u, rest > 0x100u || (rest == 0x100u && (mantissa & 1u) == 1u));
    }
    let exponent = clamp(bitcast<i32>(p.last) + 72 - i32(moved + lead), -252, 254);
    let half = exponent >> 1u;
    let value = f32(mantissa) * power_of_two(half) * power_of_two(exponent - half);
    return select(value, -value, is_negative);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = (group.x + group.y * groups.x) * 256u + lane;
    if i >= p.count {
        return;
    }
    let start = vec3<u32>(p.start0, p.start1, p.start2);
    let step = vec3<u32>(p.step0, p.step1, p.step2);
    var value = p.start + f32(i) * p.step;
    if p.is_finite == 1u {
        value = to_float(sum(start, times(step, i)));
    }
    out[p.out_at + i] = value;
}
