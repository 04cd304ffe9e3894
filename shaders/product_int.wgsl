// Products of 32-bit integers, which wrap.
alias Sum = i32;

fn nothing() -> Sum {
    return 1;
}

fn join(a: Sum, b: Sum) -> Sum {
    return a * b;
}

fn unpack(x: i32) -> Sum {
    return x;
}

fn pack(sum: Sum) -> i32 {
    return sum;
}

fn widen(x: i32) -> Sum {
    return x;
}

fn narrow(sum: Sum) -> i32 {
    return sum;
}
