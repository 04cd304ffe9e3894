// The gradient of the logits: g (A e^(x - top) / sum - t), where t is the target, (1 - s) w at the label plus s w / classes everywhere,
// and A its sum. Memory limits it: logits are read once.
fn put(c: u32, start: u32, to: u32, chosen: u32, top: f32, factor: f32, own: f32, each: f32) {
    let i = places(c);
    let last = vec4<u32>(p.n - 1u);
    let k = min(i, last);
    let at = vec4<u32>(start) + k;
    let x = vec4<f32>(load_x(at.x), load_x(at.y), load_x(at.z), load_x(at.w));
    var d = exp_below(x - top) * factor - select(vec4<f32>(0.0), vec4<f32>(own), i == vec4<u32>(chosen));
    if SMOOTHS == 1u {
        d -= each * vec4<f32>(weight_at(k.x), weight_at(k.y), weight_at(k.z), weight_at(k.w));
    }
    let is_bad = (bitcast<u32>(factor) & 0x7fffffffu) > 0x7f800000u;
    var v = select(bitcast<vec4<u32>>(d), vec4<u32>(0x7fc00000u), vec4<bool>(is_bad));
    v = select(v, vec4<u32>(0u), vec4<bool>(chosen == NONE));
    if i.x < p.n { y[to + i.x] = v.x; }
    if i.y < p.n { y[to + i.y] = v.y; }
    if i.z < p.n { y[to + i.z] = v.z; }
    if i.w < p.n { y[to + i.w] = v.w; }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(wid.x + wid.y * nw.x, t);
    let lane = lane_of(t);
    let r = min(row, p.rows - 1u);
    let smoothing = smoothing_of();
    var weights = f32(p.n);
    if SMOOTHS == 1u && WEIGHTS == 1u {
        var sum = 0.0;
        for (var c = lane; c < p.n; c += LANES) {
            sum += weight_at(c);
        }
        weights = row_sum(t, sum);
    }
    if row < p.rows {
        let chosen = class_of(r);
        let share = weight_at(min(chosen, p.n - 1u)) * (1.0 - smoothing);
        let g = load_g(p.g_at + r * p.g_step);
        let top = load_top(p.top_at + r * p.top_step);
        let sum = load_sum(p.sum_at + r * p.sum_step);
        let each = smoothing / f32(p.n);
        let factor = g * (share + each * weights) / sum;
        for (var c = lane; c < p.n; c += 4u * LANES) {
            put(c, p.x_at + r * p.x_step, p.y_at + r * p.n, chosen, top, factor, g * share, g * each);
        }
    }
}
