// A row times a matrix: one sum of products a column, LANES threads each. Memory limits it: the matrix is read once, neighbouring
// threads reading along whichever of its axes is dense (STRIDE says which).
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let column = row_of(wid.x + wid.y * nw.x, t);
    let lane = lane_of(t);
    let item = item_of(wid.z / p.splits);
    let split = wid.z % p.splits;
    let end = min(p.k, (split + 1u) * p.span);
    let start = item.b + min(column, p.n - 1u) * p.b_col;
    var sums = vec4<f32>(0.0);
    var k = split * p.span + lane;
    for (; k + 3u * LANES < end; k += 4u * LANES) {
        let at = places(k);
        let a_at = vec4<u32>(item.a) + at * p.a_col;
        let b_at = vec4<u32>(start) + at * p.b_row;
        let left = vec4<f32>(load_a(a_at.x), load_a(a_at.y), load_a(a_at.z), load_a(a_at.w));
        let right = vec4<f32>(load_b(b_at.x), load_b(b_at.y), load_b(b_at.z), load_b(b_at.w));
        sums = fma(left, right, sums);
    }
    for (; k < end; k += LANES) {
        sums.x = fma(load_a(item.a + k * p.a_col), load_b(start + k * p.b_row), sums.x);
    }
    let sum = row_sum(t, 0u, total4(sums));
    if lane == 0u && column < p.n {
        put_one(item.c + split * p.items * p.n + column, sum);
    }
}
