// Results of a product are given to what follows it: the elements from position `at` on, of which `count` are there.
fn put_four(at: u32, count: u32, v: vec4<f32>) {
    epilogue(vec4<u32>(at, at + 1u, at + 2u, at + 3u), at + count, v);
}

fn put_one(at: u32, v: f32) {
    put_four(at, 1u, vec4<f32>(v));
}
