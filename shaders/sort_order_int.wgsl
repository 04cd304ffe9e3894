// Sort keys of 32-bit integers, inverted where p.is_descending is 1.
alias Key = u32;

fn is_less(a: u32, b: u32) -> bool {
    return a < b;
}

fn key_of(i: u32) -> u32 {
    let bits = bitcast<u32>(load_x(p.x_at + i)) ^ 0x80000000u;
    return select(bits, ~bits, p.is_descending == 1u);
}
