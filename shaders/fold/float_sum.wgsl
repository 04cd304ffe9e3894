// The accumulator of float sums and means: a sum, and the rounding errors that it made (two-sum, Knuth).
// Limit: six additions for each element, which the memory hides.

struct Acc {
    s: vec4f,
    c: vec4f,
}

fn nothing() -> Acc {
    return Acc(vec4f(0.0), vec4f(0.0));
}

fn add(a: Acc, x: vec4f) -> Acc {
    let s = exact4(a.s + x);
    let taken = exact4(s - a.s);
    return Acc(s, a.c + ((a.s - (s - taken)) + (x - taken)));
}

fn join(a: Acc, b: Acc) -> Acc {
    let sum = add(a, b.s);
    return Acc(sum.s, sum.c + b.c);
}

// Beside an infinity the errors are NaN; the mean of nothing is NaN, which not every device makes of 0 / 0.
fn result(a: Acc, count: u32) -> vec4f {
    let sum = select(a.s, a.s + a.c, is_finite4(a.s));
    return select(sum / f32(count), nan4(), count == 0u);
}
