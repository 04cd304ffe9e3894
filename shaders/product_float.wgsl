// Float products as a number of magnitude 1 to 2 and an exponent of its own: what leaves f32's range on the way may come back.
alias Sum = vec2<f32>;

/// x * 2^exponent with a magnitude from 1 to 2; zero, infinities and NaN stay as they are.
fn normal(x: f32, exponent: f32) -> Sum {
    let bits = bitcast<u32>(x);
    let biased = (bits >> 23u) & 0xffu;
    if biased == 0u || biased == 0xffu {
        return vec2<f32>(x, 0.0);
    }
    return vec2<f32>(bitcast<f32>((bits & 0x807fffffu) | 0x3f800000u), exponent + f32(biased) - 127.0);
}

fn nothing() -> Sum {
    return vec2<f32>(1.0, 0.0);
}

fn join(a: Sum, b: Sum) -> Sum {
    return normal(a.x * b.x, a.y + b.y);
}

fn unpack(bits: vec2<u32>) -> Sum {
    return bitcast<vec2<f32>>(bits);
}

fn pack(sum: Sum) -> vec2<u32> {
    return bitcast<vec2<u32>>(sum);
}

fn widen(x: f32) -> Sum {
    // Subnormal numbers are brought into the normal range first.
    let is_tiny = (bitcast<u32>(x) & 0x7f800000u) == 0u;
    return normal(select(x, x * 16777216.0, is_tiny), select(0.0, -24.0, is_tiny));
}

fn narrow(sum: Sum) -> f32 {
    let exponent = i32(clamp(sum.y, -250.0, 250.0));
    let half = exponent >> 1u;
    let one = bitcast<f32>(u32(half + 127) << 23u);
    let two = bitcast<f32>(u32(exponent - half + 127) << 23u);
    return sum.x * one * two;
}
