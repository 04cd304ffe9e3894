// Results of a product are stored, rounded where the tensor's elements are shorter.
fn put_one(at: u32, v: Sum) {
    c[at] = Kept(v);
}

fn put_four(at: u32, count: u32, v: vec4<Sum>) {
    c[at] = Kept(v.x);
    if count > 1u { c[at + 1u] = Kept(v.y); }
    if count > 2u { c[at + 2u] = Kept(v.z); }
    if count > 3u { c[at + 3u] = Kept(v.w); }
}
