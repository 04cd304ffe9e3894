// Quotients, powers and shifts of 64-bit integers.
// Limit: a loop of 64 rounds for each quotient.

struct Parts {
    quotient: Long,
    rest: Long,
}

// Of magnitudes, by shifting and subtracting; a divisor of 0 gives rubbish.
fn long_divide4(a: Long, b: Long) -> Parts {
    var out = Parts(a, Long(vec4u(0u), vec4u(0u)));
    for (var k = 0u; k < 64u; k++) {
        let over = out.rest.hi >= vec4u(0x80000000u);
        let into = out.quotient.hi >> vec4u(31u);
        out.quotient = long_left4(out.quotient, vec4u(1u));
        let next = long_left4(out.rest, vec4u(1u));
        out.rest = Long(next.lo | into, next.hi);
        let is_less = (out.rest.hi < b.hi) | ((out.rest.hi == b.hi) & (out.rest.lo < b.lo));
        let takes = over | !is_less;
        out.rest = long_select4(out.rest, long_sub4(out.rest, b), takes);
        out.quotient.lo |= select(vec4u(0u), vec4u(1u), takes);
    }
    return out;
}

fn long_floor_divide4(a: Long, b: Long) -> Long {
    let parts = long_divide4(long_abs4(a), long_abs4(b));
    let turns = long_is_negative4(a) != long_is_negative4(b);
    // -(q + 1) where there is a rest, as ~q.
    let inexact = long_select4(long_not4(parts.quotient), long_neg4(parts.quotient), long_is_zero4(parts.rest));
    return long_select4(long_select4(parts.quotient, inexact, turns), Long(vec4u(0u), vec4u(0u)), long_is_zero4(b));
}

fn long_remainder4(a: Long, b: Long) -> Long {
    let rest = long_sub4(a, long_mul4(long_floor_divide4(a, b), b));
    return long_select4(rest, Long(vec4u(0u), vec4u(0u)), long_is_zero4(b));
}

fn long_pow4(a: Long, b: Long) -> Long {
    let is_negative = long_is_negative4(b);
    let one = Long(vec4u(1u), vec4u(0u));
    let none = Long(vec4u(0u), vec4u(0u));
    var base = a;
    var left = long_select4(b, none, is_negative);
    var out = one;
    while (any(!long_is_zero4(left))) {
        out = long_select4(out, long_mul4(out, base), (left.lo & vec4u(1u)) == vec4u(1u));
        base = long_mul4(base, base);
        left = long_right4(left, vec4u(1u));
    }
    let ones = Long(vec4u(0xffffffffu), vec4u(0xffffffffu));
    let turned = long_select4(ones, one, (b.lo & vec4u(1u)) == vec4u(0u));
    let inverse = long_select4(long_select4(none, turned, long_equal4(a, ones)), one, long_equal4(a, one));
    return long_select4(out, inverse, is_negative);
}

fn long_shift_left4(a: Long, b: Long) -> Long {
    let is_far = (b.hi != vec4u(0u)) | (b.lo > vec4u(63u));
    return long_select4(long_left4(a, b.lo & vec4u(63u)), Long(vec4u(0u), vec4u(0u)), is_far);
}

fn long_shift_right4(a: Long, b: Long) -> Long {
    let is_far = (b.hi != vec4u(0u)) | (b.lo > vec4u(63u));
    return long_right4(a, select(b.lo, vec4u(63u), is_far));
}
