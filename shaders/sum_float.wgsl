// Float sums as a rounded number and what rounding left off (Knuth's exact sum of two): about as accurate as f64.
alias Sum = vec2<f32>;

fn nothing() -> Sum {
    return vec2<f32>(0.0, 0.0);
}

/// A number as it is: p.zero is 0, which the compiler cannot know, so it cannot take (a + b) - a for b.
fn rounded(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ p.zero);
}

fn join(a: Sum, b: Sum) -> Sum {
    let sum = rounded(a.x + b.x);
    let part = rounded(sum - a.x);
    let lost = ((a.x - (sum - part)) + (b.x - part)) + (a.y + b.y);
    let total = rounded(sum + lost);
    let rest = lost - (total - sum);
    // Nothing is left off an infinity or NaN.
    let is_finite = (bitcast<u32>(total) & 0x7f800000u) != 0x7f800000u;
    let has_sum = (bitcast<u32>(sum) & 0x7f800000u) != 0x7f800000u;
    return vec2<f32>(select(sum, total, has_sum), select(0.0, rest, is_finite && has_sum));
}

fn unpack(bits: vec2<u32>) -> Sum {
    return bitcast<vec2<f32>>(bits);
}

fn pack(sum: Sum) -> vec2<u32> {
    return bitcast<vec2<u32>>(sum);
}

fn widen(x: f32) -> Sum {
    return vec2<f32>(x, 0.0);
}

fn narrow(sum: Sum) -> f32 {
    return sum.x;
}
