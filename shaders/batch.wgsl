// Where the matrices of one item of a batch of products begin: three axes of the batch, the outermost first.
struct Item {
    a: u32,
    b: u32,
    c: u32,
}

fn item_of(z: u32) -> Item {
    let i = p.from_item + z;
    let i2 = i % p.size2;
    let i1 = i / p.size2 % p.size1;
    let i0 = i / p.size2 / p.size1;
    let a = p.a_at + p.a_plus + i0 * p.a0 + i1 * p.a1 + i2 * p.a2;
    let b = p.b_at + p.b_plus + i0 * p.b0 + i1 * p.b1 + i2 * p.b2;
    return Item(a, b, p.c_at + (p.base + i) * p.m * p.n);
}
