// The sums for weight and bias of a normalization over a chunk of rows: 32 columns a workgroup, 8 threads a column. Memory limits it: g
// and x are read once, neighbouring threads reading neighbouring columns.
var<workgroup> parts: array<vec2<f32>, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let group = wid.x + wid.y * nw.x;
    let chunk = group / p.blocks;
    let column = group % p.blocks * 32u + t % 32u;
    let c = min(column, p.n - 1u);
    let end = min(p.rows, (chunk + 1u) * p.span);
    var sums = vec2<f32>(0.0);
    for (var r = chunk * p.span + t / 32u; r < end; r += 8u) {
        let g = load_g(p.g_at + r * p.g_step + c);
        let x = load_x(p.x_at + r * p.x_step + c);
        let normed = (x - mean_at(r)) * load_rstd(p.rstd_at + r * p.rstd_step);
        sums += vec2<f32>(g * normed, g);
    }
    parts[t] = sums;
    for (var step = 128u; step >= 32u; step /= 2u) {
        workgroupBarrier();
        if t < step {
            parts[t] += parts[t + step];
        }
    }
    workgroupBarrier();
    if t < 32u && column < p.n && chunk < p.chunks {
        sums_out[p.sums_at + 2u * chunk * p.n + column] = parts[t].x;
        sums_out[p.sums_at + (2u * chunk + 1u) * p.n + column] = parts[t].y;
    }
}
