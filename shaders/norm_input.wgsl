// The gradient that a normalization gives back to its input, row by row: rstd (v - mean(v) - x' mean(v x')) with v = g weight and x' the
// normalized row. Memory limits it: g and x are read once, what registers do not keep of them twice.
struct Four {
    v: vec4<f32>,
    normed: vec4<f32>,
}

fn four(g_start: u32, x_start: u32, c: u32, mean: f32, rstd: f32) -> Four {
    let places = places(c);
    let i = min(places, vec4<u32>(p.n - 1u));
    let g = four_g(g_start, i);
    let x = four_x(x_start, i);
    let is_in = places < vec4<u32>(p.n);
    return Four(select(vec4<f32>(0.0), g * four_weight(i), is_in), select(vec4<f32>(0.0), (x - mean) * rstd, is_in));
}

// What is summed: v x', v.
fn sums_of(f: Four) -> vec2<f32> {
    return vec2<f32>(total4(f.v * f.normed), total4(f.v));
}

fn result(f: Four, means: vec2<f32>, rstd: f32) -> vec4<f32> {
    return (f.v - means.y - f.normed * means.x) * rstd;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(wid.x + wid.y * nw.x, t);
    let begin = begin_of(lane_of(t));
    let r = min(row, p.rows - 1u);
    let rstd = load_rstd(p.rstd_at + r * p.rstd_step);
    let mean = mean_at(r);
    let g_start = p.g_at + r * p.g_step;
    let x_start = p.x_at + r * p.x_step;
    let next = begin + KEPT * PITCH;
    let f_# = four(g_start, x_start, begin + #u * PITCH, mean, rstd);
    var sums = vec2<f32>(0.0);
    sums += sums_of(f_#);
    for (var c = next; c < p.n; c += PITCH) {
        sums += sums_of(four(g_start, x_start, c, mean, rstd));
    }
    var means = row_sums(t, 0u, sums) / f32(p.n);
    if CENTRES == 0u {
        means.y = 0.0;
    }
    if row < p.rows {
        let to = p.dx_at + r * p.n;
        put_dx(to, places(begin + #u * PITCH), result(f_#, means, rstd));
        for (var c = next; c < p.n; c += PITCH) {
            put_dx(to, places(c), result(four(g_start, x_start, c, mean, rstd), means, rstd));
        }
    }
}
