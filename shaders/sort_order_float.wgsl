// Sort keys of floats: larger for larger numbers (smaller where p.is_descending is 1), one for both zeros, the largest for NaN.
alias Key = u32;

fn is_less(a: u32, b: u32) -> bool {
    return a < b;
}

fn key_of(i: u32) -> u32 {
    let bits = bitcast<u32>(load_x(p.x_at + i));
    let size = bits & 0x7fffffffu;
    let is_negative = (bits >> 31u) != p.is_descending;
    let key = select(0x80000000u + size, 0x80000000u - size, is_negative);
    return select(key, 0xffffffffu, size > 0x7f800000u);
}
