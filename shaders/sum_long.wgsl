// Sums of 64-bit integers, which wrap.
alias Sum = vec2<u32>;

fn nothing() -> Sum {
    return vec2<u32>(0u, 0u);
}

fn join(a: Sum, b: Sum) -> Sum {
    return add(a, b);
}

fn unpack(x: vec2<u32>) -> Sum {
    return x;
}

fn pack(sum: Sum) -> vec2<u32> {
    return sum;
}

fn widen(x: vec2<u32>) -> Sum {
    return x;
}

fn narrow(sum: Sum) -> vec2<u32> {
    return sum;
}
