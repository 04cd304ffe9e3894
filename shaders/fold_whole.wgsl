// Sums of whole numbers, or products where PRODUCT is 1: they wrap, and accumulators are elements. Sum is declared in front.

fn nothing() -> Sum {
    return number(PRODUCT);
}

fn join(a: Sum, b: Sum) -> Sum {
    if PRODUCT == 1u {
        return multiply(a, b);
    }
    return add(a, b);
}

fn unpack(x: Sum) -> Sum {
    return x;
}

fn pack(sum: Sum) -> Sum {
    return sum;
}

fn widen(x: Sum) -> Sum {
    return x;
}

fn narrow(sum: Sum) -> Sum {
    return sum;
}
