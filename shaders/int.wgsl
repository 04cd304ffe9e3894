// 32-bit integers by the names that 64-bit ones have; arithmetic wraps.

fn add(a: i32, b: i32) -> i32 {
    return a + b;
}

fn multiply(a: i32, b: i32) -> i32 {
    return a * b;
}

fn number(x: u32) -> i32 {
    return i32(x);
}
