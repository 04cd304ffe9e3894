// Elements of the operands of a product that may lie outside of them: 0 there.
fn edge_a(start: u32, row: u32, k: u32, end: u32) -> f32 {
    let is_in = row < p.m && k < end;
    let at = select(0u, row * p.a_row + k * p.a_col, is_in);
    return select(0.0, load_a(start + at), is_in);
}

fn edge_b(start: u32, column: u32, k: u32, end: u32) -> f32 {
    let is_in = column < p.n && k < end;
    let at = select(0u, k * p.b_row + column * p.b_col, is_in);
    return select(0.0, load_b(start + at), is_in);
}

// Up to four results beside each other, as many as the product has there.
fn put(to: u32, row: u32, column: u32, v: vec4<f32>) {
    if row < p.m && column < p.n {
        put_four(to + row * p.n + column, min(4u, p.n - column), v);
    }
}
