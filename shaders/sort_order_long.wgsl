// Sort keys of 64-bit integers as pairs of words, the low one first; inverted where p.is_descending is 1.
alias Key = vec2<u32>;

fn is_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn key_of(i: u32) -> vec2<u32> {
    let bits = load_x(p.x_at + i) ^ vec2<u32>(0u, 0x80000000u);
    return select(bits, ~bits, p.is_descending == 1u);
}
