// Sort keys of floats: larger for larger numbers and the largest for NaN, inverted where p.is_descending is 1; one for both zeros.
alias Key = u32;

fn is_less(a: u32, b: u32) -> bool {
    return a < b;
}

fn key_of(i: u32) -> u32 {
    let bits = bitcast<u32>(load_x(p.x_at + i));
    let size = bits & 0x7fffffffu;
    let number = select(0x80000000u + size, 0x80000000u - size, bits >> 31u == 1u);
    let key = select(number, 0xffffffffu, size > 0x7f800000u);
    return select(key, ~key, p.is_descending == 1u);
}
