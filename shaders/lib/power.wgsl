// Powers of floats: 2^(b log2 a) with the logarithm as a sum of two floats.
// Limit: about 120 float instructions for each element.

// |a|^b for a finite positive |a|.
fn power_core4(a: vec4f, b: vec4f) -> vec4f {
    let t = double_log2_4(a);
    let hi = exact4(t.hi + t.lo);
    let lo = (t.hi - hi) + t.lo;
    let w = exact4(b * hi);
    let n = round(clamp(select(w, vec4f(0.0), is_nan4(w)), vec4f(-160.0), vec4f(130.0)));
    // The product's rounding error, from exact products of upper halves.
    let b_upper = upper4(b);
    let upper = upper4(hi);
    let near = exact4(b_upper * upper - w);
    let lost = ((near + b_upper * (hi - upper)) + (b - b_upper) * upper) + (b - b_upper) * (hi - upper);
    let r = ((w - n) + (lost + b * lo)) * 0.69314718;
    let k = vec4i(n);
    let half = k >> vec4u(1u);
    let y = exp_core4(r) * power_of_two4(half) * power_of_two4(k - half);
    return select(select(y, infinity4(), less4(vec4f(128.5), w)), vec4f(0.0), less4(w, vec4f(-151.0)));
}

fn pow4(a: vec4f, b: vec4f) -> vec4f {
    let size = abs4(a);
    let is_falling = bitcast<vec4u>(b) >= vec4u(0x80000000u);
    let grows = (magnitude4(a) > vec4u(0x3f800000u)) != is_falling;
    // Where a is 0 or infinite, or b infinite, only the side of 1 counts.
    let is_edge = is_zero4(a) | is_inf4(a) | is_inf4(b);
    let core = select(power_core4(size, b), select(vec4f(0.0), infinity4(), grows), is_edge);
    let is_large = magnitude4(b) >= vec4u(0x4b800000u);
    let whole = is_large | (trunc(b) == b);
    let low = vec4i(clamp(b, vec4f(-16777216.0), vec4f(16777216.0))) & vec4i(1);
    let is_odd = whole & !is_large & (low == vec4i(1));
    let is_left = bitcast<vec4u>(a) >= vec4u(0x80000000u);
    let turned = select(core, negative4(core), is_left & is_odd);
    let real = select(turned, nan4(), is_negative4(a) & is_finite4(a) & !whole);
    let is_one = (magnitude4(a) == vec4u(0x3f800000u)) & (!is_left | is_inf4(b));
    let known = select(select(real, nan4(), is_nan4(a) | is_nan4(b)), vec4f(1.0), is_zero4(b) | is_one);
    // As on the CPU: whether the exponent is a constant of the kernel may not change a bit.
    return select(select(known, a, b == vec4f(1.0)), a * a, b == vec4f(2.0));
}
