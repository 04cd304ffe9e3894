// The gradient that a normalization gives back to its input, row by row: rstd (v - mean(v) - x' mean(v x')) with v = g weight and x' the
// normalized row. Memory limits it: the first 4 LANES elements of g and x are read once, what follows twice.
struct Four {
    v: vec4<f32>,
    normed: vec4<f32>,
}

fn four(g_start: u32, x_start: u32, c: u32, mean: f32, rstd: f32) -> Four {
    let places = places(c);
    let i = min(places, vec4<u32>(p.n - 1u));
    let g_at = vec4<u32>(g_start) + i;
    let x_at = vec4<u32>(x_start) + i;
    let g = vec4<f32>(load_g(g_at.x), load_g(g_at.y), load_g(g_at.z), load_g(g_at.w));
    let x = vec4<f32>(load_x(x_at.x), load_x(x_at.y), load_x(x_at.z), load_x(x_at.w));
    let w = vec4<f32>(weight_at(i.x), weight_at(i.y), weight_at(i.z), weight_at(i.w));
    let is_in = places < vec4<u32>(p.n);
    return Four(select(vec4<f32>(0.0), g * w, is_in), select(vec4<f32>(0.0), (x - mean) * rstd, is_in));
}

fn put(start: u32, c: u32, f: Four, shift: f32, slope: f32, rstd: f32) {
    let d = (f.v - shift - f.normed * slope) * rstd;
    let i = places(c);
    if i.x < p.n { dx[start + i.x] = d.x; }
    if i.y < p.n { dx[start + i.y] = d.y; }
    if i.z < p.n { dx[start + i.z] = d.z; }
    if i.w < p.n { dx[start + i.w] = d.w; }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(wid.x + wid.y * nw.x, t);
    let lane = lane_of(t);
    let r = min(row, p.rows - 1u);
    let rstd = load_rstd(p.rstd_at + r * p.rstd_step);
    let mean = mean_at(r);
    let g_start = p.g_at + r * p.g_step;
    let x_start = p.x_at + r * p.x_step;
    let next = lane + 4u * LANES;
    let first = four(g_start, x_start, lane, mean, rstd);
    var sum = total4(first.v);
    var product = total4(first.v * first.normed);
    for (var c = next; c < p.n; c += 4u * LANES) {
        let f = four(g_start, x_start, c, mean, rstd);
        sum += total4(f.v);
        product += total4(f.v * f.normed);
    }
    let slope = row_sum(t, product) / f32(p.n);
    var shift = 0.0;
    if CENTRES == 1u {
        shift = row_sum(t, sum) / f32(p.n);
    }
    if row < p.rows {
        let to = p.dx_at + r * p.n;
        put(to, lane, first, shift, slope, rstd);
        for (var c = next; c < p.n; c += 4u * LANES) {
            put(to, c, four(g_start, x_start, c, mean, rstd), shift, slope, rstd);
        }
    }
}
