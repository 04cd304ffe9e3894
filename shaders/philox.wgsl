// The four random words of a counter: Philox 4x32-10 (Salmon et al. 2011) under a 64-bit key.

fn philox(counter: vec2<u32>) -> vec4<u32> {
    var c = vec4<u32>(counter, 0u, 0u);
    var key = vec2<u32>(p.key_low, p.key_high);
    for (var round = 0u; round < 10u; round += 1u) {
        let a = wide_product(0xD2511F53u, c.x);
        let b = wide_product(0xCD9E8D57u, c.z);
        c = vec4<u32>(b.y ^ c.y ^ key.x, b.x, a.y ^ c.w ^ key.y, a.x);
        key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}

/// The words of the launch's i-th counter.
fn words_of(i: u32) -> vec4<u32> {
    return philox(add(vec2<u32>(p.counter_low, p.counter_high), vec2<u32>(i, 0u)));
}

/// A float in [0, 1): the word's upper 24 bits.
fn unit(word: u32) -> f32 {
    return f32(word >> 8u) * (1.0 / 16777216.0);
}

/// A number as it is, rounded: p.zero is 0, which the compiler cannot know, so it cannot fuse a product with the sum it goes into.
fn rounded(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ p.zero);
}
