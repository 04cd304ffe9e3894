// The gradient of the logits: g (A e^(x - top) / sum - t), where t is the target, (1 - s) w at the label plus s w / classes everywhere,
// and A its sum. Memory limits it: logits are read once.
struct Row {
    chosen: u32,
    top: f32,
    // Of e^(x - top).
    factor: f32,
    // What is taken off at the label, and everywhere times the weight.
    own: f32,
    each: f32,
}

fn result(x: vec4<f32>, c: u32, row: Row) -> vec4<u32> {
    let i = places(c);
    var d = exp_below(x - row.top) * row.factor - select(vec4<f32>(0.0), vec4<f32>(row.own), i == vec4<u32>(row.chosen));
    if SMOOTHS == 1u {
        d -= row.each * four_weight(min(i, vec4<u32>(p.n - 1u)));
    }
    let is_bad = (bitcast<u32>(row.factor) & 0x7fffffffu) > 0x7f800000u;
    let v = select(bitcast<vec4<u32>>(d), vec4<u32>(0x7fc00000u), vec4<bool>(is_bad));
    return select(v, vec4<u32>(0u), vec4<bool>(row.chosen == NONE));
}

fn four(start: u32, c: u32) -> vec4<f32> {
    return four_x(start, min(places(c), vec4<u32>(p.n - 1u)));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(wid.x + wid.y * nw.x, t);
    let begin = begin_of(lane_of(t));
    let r = min(row, p.rows - 1u);
    let start = p.x_at + r * p.x_step;
    let x_# = four(start, begin + #u * PITCH);
    let smoothing = smoothing_of();
    var weights = f32(p.n);
    if SMOOTHS == 1u && WEIGHTS == 1u {
        var sum = 0.0;
        for (var c = lane_of(t); c < p.n; c += LANES) {
            sum += weight_at(c);
        }
        weights = row_sum(t, 0u, sum);
    }
    if row < p.rows {
        let chosen = class_of(r);
        let share = weight_at(min(chosen, p.n - 1u)) * (1.0 - smoothing);
        let g = load_g(p.g_at + r * p.g_step);
        let top = load_top(p.top_at + r * p.top_step);
        let sum = load_sum(p.sum_at + r * p.sum_step);
        let each = smoothing / f32(p.n);
        let own = Row(chosen, top, g * (share + each * weights) / sum, g * share, g * each);
        let to = p.y_at + r * p.n;
        put_y(to, places(begin + #u * PITCH), result(x_#, begin + #u * PITCH, own));
        for (var c = begin + KEPT * PITCH; c < p.n; c += PITCH) {
            put_y(to, places(c), result(four(start, c), c, own));
        }
    }
}
