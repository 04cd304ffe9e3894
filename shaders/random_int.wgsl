// Integers in [low, high), bit for bit those of the CPU: two of a counter, each the upper half of 64 random bits times the range.
// Limited by integer arithmetic.

/// The upper 64 bits of a product.
fn upper_product(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = wide_product(a.x, b.x);
    let left = wide_product(a.x, b.y);
    let right = wide_product(a.y, b.x);
    let middle = add(add(left, vec2<u32>(low.y, 0u)), vec2<u32>(right.x, 0u));
    return add(add(wide_product(a.y, b.y), vec2<u32>(right.y, 0u)), vec2<u32>(middle.y, 0u));
}

fn draw(bits: vec2<u32>) -> vec2<u32> {
    let low = vec2<u32>(p.low_low, p.low_high);
    // high - low; 0 stands for 2^64.
    let range = add(vec2<u32>(p.high_low, p.high_high), add(~low, vec2<u32>(1u, 0u)));
    let above = select(upper_product(bits, range), bits, all(range == vec2<u32>(0u, 0u)));
    return add(low, above);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = (group.x + group.y * groups.x) * 256u + lane;
    if i >= p.counters {
        return;
    }
    let words = words_of(i);
    if 2u * i < p.count {
        out[p.out_at + 2u * i] = narrow(draw(words.xy));
    }
    if 2u * i + 1u < p.count {
        out[p.out_at + 2u * i + 1u] = narrow(draw(words.zw));
    }
}
