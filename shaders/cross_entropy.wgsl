// Each row of logits against its label: loss, largest logit, sum of the exponentials, the label's weight. Memory limits it: a row is
// read once; where the target is smoothed, what registers do not keep of it once more.
fn four(start: u32, c: u32) -> vec4<u32> {
    let i = places(c);
    let x = four_x(start, min(i, vec4<u32>(p.n - 1u)));
    return select(vec4<u32>(0xff800000u), bitcast<vec4<u32>>(x), i < vec4<u32>(p.n));
}

// The weighted distances of four elements from the largest one, and the weights.
fn spread_of(bits: vec4<u32>, c: u32, top: f32) -> vec2<f32> {
    let i = places(c);
    let is_in = i < vec4<u32>(p.n);
    let w = select(vec4<f32>(0.0), four_weight(min(i, vec4<u32>(p.n - 1u))), is_in);
    let d = select(vec4<f32>(0.0), (top - bitcast<vec4<f32>>(bits)) * w, is_in);
    return vec2<f32>(total4(d), total4(w));
}

// The largest logit as bits: NaN if there is one.
fn top_bits(key: i32) -> u32 {
    if key > INFINITE_KEY {
        return 0x7fc00000u;
    }
    return select(u32(key), u32(-key) | 0x80000000u, key < 0i);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(wid.x + wid.y * nw.x, t);
    let lane = lane_of(t);
    let begin = begin_of(lane);
    let r = min(row, p.rows - 1u);
    let start = p.x_at + r * p.x_step;
    let x_# = four(start, begin + #u * PITCH);
    var rest = Part(-INFINITE_KEY, 0.0);
    for (var c = begin + KEPT * PITCH; c < p.n; c += PITCH) {
        rest = added(rest, four(start, c));
    }
    var highest = rest.top;
    highest = max(highest, top_of(keys_of(x_#)));
    let top_key = row_top(t, highest);
    let top = finite_of(top_key);
    var own = rest.sum * exp_below(vec4<f32>(finite_of(rest.top) - top)).x;
    own += total4(exp_below(bitcast<vec4<f32>>(x_#) - top));
    let sum = row_sum(t, 0u, own);
    var spread = vec2<f32>(0.0);
    if SMOOTHS == 1u {
        spread += spread_of(x_#, begin + #u * PITCH, top);
        for (var c = begin + KEPT * PITCH; c < p.n; c += PITCH) {
            spread += spread_of(four(start, c), c, top);
        }
        spread = row_sums(t, 1u, spread);
    }
    if row < p.rows && lane == 0u {
        let is_bad = top_key >= INFINITE_KEY || top_key == -INFINITE_KEY;
        let chosen = class_of(r);
        var loss = 0.0;
        var share = 0.0;
        if chosen < p.n {
            let log_sum = log_of(sum);
            share = weight_at(chosen);
            let smoothing = smoothing_of();
            loss = share * (1.0 - smoothing) * (top - load_x(start + chosen) + log_sum);
            if SMOOTHS == 1u {
                loss += smoothing / f32(p.n) * (spread.x + spread.y * log_sum);
            }
        }
        loss_out[p.loss_at + r] = select(bitcast<u32>(loss), 0x7fc00000u, is_bad && chosen < p.n);
        top_out[p.top_at + r] = top_bits(top_key);
        sum_out[p.sum_at + r] = select(bitcast<u32>(sum), 0x7fc00000u, is_bad);
        put_share(r, share);
    }
}
