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

// Four results beside each other.
fn put(to: u32, row: u32, column: u32, is_whole: bool, v: vec4<f32>) {
    let at = to + row * p.n + column;
    if is_whole {
        c[at] = v.x;
        c[at + 1u] = v.y;
        c[at + 2u] = v.z;
        c[at + 3u] = v.w;
    } else if row < p.m {
        if column < p.n { c[at] = v.x; }
        if column + 1u < p.n { c[at + 1u] = v.y; }
        if column + 2u < p.n { c[at + 2u] = v.z; }
        if column + 3u < p.n { c[at + 3u] = v.w; }
    }
}
