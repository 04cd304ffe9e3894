// 64-bit integers as pairs of words, the low one first; arithmetic wraps.

/// The 64-bit product of two words.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let low = a0 * b0;
    let middle = a1 * b0 + (low >> 16u);
    let cross = a0 * b1 + (middle & 0xffffu);
    return vec2<u32>((cross << 16u) | (low & 0xffffu), a1 * b1 + (middle >> 16u) + (cross >> 16u));
}

fn add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = wide_product(a.x, b.x);
    return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}

fn number(x: u32) -> vec2<u32> {
    return vec2<u32>(x, 0u);
}
