// Sort keys that are words already.
alias Key = u32;

fn is_less(a: u32, b: u32) -> bool {
    return a < b;
}

fn key_of(i: u32) -> u32 {
    return load_x(p.x_at + i) ^ (0u - p.is_descending);
}
