// 64-bit integers as two words, so that they need nothing of the adapter.
// Limit: products take four 16-bit multiplications more than native ones; quotients a loop of 64 rounds.

struct Long {
    lo: vec4u,
    hi: vec4u,
}

fn long_of_i32_4(x: vec4i) -> Long {
    return Long(bitcast<vec4u>(x), bitcast<vec4u>(x >> vec4u(31u)));
}

fn long_of_u32_4(x: vec4u) -> Long {
    return Long(x, vec4u(0u));
}

fn long_add4(a: Long, b: Long) -> Long {
    let lo = a.lo + b.lo;
    return Long(lo, a.hi + b.hi + select(vec4u(0u), vec4u(1u), lo < a.lo));
}

fn long_sub4(a: Long, b: Long) -> Long {
    return Long(a.lo - b.lo, a.hi - b.hi - select(vec4u(0u), vec4u(1u), a.lo < b.lo));
}

fn long_neg4(a: Long) -> Long {
    return Long(~a.lo + vec4u(1u), ~a.hi + select(vec4u(0u), vec4u(1u), a.lo == vec4u(0u)));
}

fn long_select4(a: Long, b: Long, takes_b: vec4<bool>) -> Long {
    return Long(select(a.lo, b.lo, takes_b), select(a.hi, b.hi, takes_b));
}

fn long_is_negative4(a: Long) -> vec4<bool> {
    return bitcast<vec4i>(a.hi) < vec4i(0);
}

fn long_is_zero4(a: Long) -> vec4<bool> {
    return (a.lo | a.hi) == vec4u(0u);
}

fn long_abs4(a: Long) -> Long {
    return long_select4(a, long_neg4(a), long_is_negative4(a));
}

fn long_sign4(a: Long) -> Long {
    let ones = select(vec4u(0u), vec4u(0xffffffffu), long_is_negative4(a));
    return Long(select(ones | vec4u(1u), vec4u(0u), long_is_zero4(a)), ones);
}

fn long_relu4(a: Long) -> Long {
    return long_select4(a, Long(vec4u(0u), vec4u(0u)), long_is_negative4(a));
}

fn long_equal4(a: Long, b: Long) -> vec4<bool> {
    return (a.lo == b.lo) & (a.hi == b.hi);
}

fn long_less4(a: Long, b: Long) -> vec4<bool> {
    return (bitcast<vec4i>(a.hi) < bitcast<vec4i>(b.hi)) | ((a.hi == b.hi) & (a.lo < b.lo));
}

fn long_max4(a: Long, b: Long) -> Long {
    return long_select4(a, b, long_less4(a, b));
}

fn long_min4(a: Long, b: Long) -> Long {
    return long_select4(a, b, long_less4(b, a));
}

fn long_and4(a: Long, b: Long) -> Long {
    return Long(a.lo & b.lo, a.hi & b.hi);
}

fn long_or4(a: Long, b: Long) -> Long {
    return Long(a.lo | b.lo, a.hi | b.hi);
}

fn long_xor4(a: Long, b: Long) -> Long {
    return Long(a.lo ^ b.lo, a.hi ^ b.hi);
}

fn long_not4(a: Long) -> Long {
    return Long(~a.lo, ~a.hi);
}

// The 64 bits of a product of words.
fn wide_mul4(a: vec4u, b: vec4u) -> Long {
    let mask = vec4u(0xffffu);
    let half = vec4u(16u);
    let low = (a & mask) * (b & mask);
    let left = (a >> half) * (b & mask) + (low >> half);
    let right = (a & mask) * (b >> half) + (left & mask);
    return Long(a * b, (a >> half) * (b >> half) + (left >> half) + (right >> half));
}

fn long_mul4(a: Long, b: Long) -> Long {
    let low = wide_mul4(a.lo, b.lo);
    return Long(low.lo, low.hi + a.lo * b.hi + a.hi * b.lo);
}

// Shifts by 0 to 63.
fn long_left4(a: Long, count: vec4u) -> Long {
    let by = count & vec4u(31u);
    let over = (a.lo >> vec4u(1u)) >> (vec4u(31u) - by);
    let near = Long(a.lo << by, (a.hi << by) | over);
    return long_select4(near, Long(vec4u(0u), a.lo << by), count > vec4u(31u));
}

fn long_right4(a: Long, count: vec4u) -> Long {
    let by = count & vec4u(31u);
    let hi = bitcast<vec4i>(a.hi);
    let over = (a.hi << vec4u(1u)) << (vec4u(31u) - by);
    let near = Long((a.lo >> by) | over, bitcast<vec4u>(hi >> by));
    let far = Long(bitcast<vec4u>(hi >> by), bitcast<vec4u>(hi >> vec4u(31u)));
    return long_select4(near, far, count > vec4u(31u));
}
