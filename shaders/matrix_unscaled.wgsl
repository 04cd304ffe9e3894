// Results of products of halves that were halves before, infinities and NaN among them: four beside each other, from workgroup memory.
fn finish(item: u32, to: u32, row: u32, column: u32, at: u32) {
    put(to, row, column, vec4<f32>(stage[at], stage[at + 1u], stage[at + 2u], stage[at + 3u]));
}
