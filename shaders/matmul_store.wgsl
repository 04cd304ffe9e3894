// Results of a product are stored.
fn put_one(at: u32, v: Sum) {
    c[at] = v;
}

fn put_four(at: u32, count: u32, v: vec4<Sum>) {
    c[at] = v.x;
    if count > 1u { c[at + 1u] = v.y; }
    if count > 2u { c[at + 2u] = v.z; }
    if count > 3u { c[at + 3u] = v.w; }
}
