// Each row of logits against its label: loss, largest logit, sum of the exponentials, the label's weight. Memory limits it: a row is
// read once, and once more from a cache where the target is smoothed.
struct Part {
    top: i32,
    sum: f32,
}

fn four(start: u32, c: u32) -> vec4<u32> {
    let i = places(c);
    let at = vec4<u32>(start) + min(i, vec4<u32>(p.n - 1u));
    let x = vec4<f32>(load_x(at.x), load_x(at.y), load_x(at.z), load_x(at.w));
    return select(vec4<u32>(0xff800000u), bitcast<vec4<u32>>(x), i < vec4<u32>(p.n));
}

fn added(part: Part, bits: vec4<u32>) -> Part {
    let k = keys_of(bits);
    let top = max(part.top, max(max(k.x, k.y), max(k.z, k.w)));
    let highest = finite_of(top);
    let shrunk = exp_below(vec4<f32>(finite_of(part.top) - highest)).x;
    return Part(top, part.sum * shrunk + total4(exp_below(bitcast<vec4<f32>>(bits) - highest)));
}

// The weighted distances of a thread's elements from the largest one, and the weights.
fn below(start: u32, lane: u32, top: f32) -> vec2<f32> {
    var sums = vec2<f32>(0.0);
    for (var c = lane; c < p.n; c += LANES) {
        let w = weight_at(c);
        sums += vec2<f32>((top - load_x(start + c)) * w, w);
    }
    return sums;
}

// The largest logit as bits: NaN if there is one.
fn top_bits(key: i32) -> u32 {
    if key > INFINITE_KEY {
        return 0x7fc00000u;
    }
    return select(u32(key), u32(-key) | 0x80000000u, key < 0i);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(wid.x + wid.y * nw.x, t);
    let lane = lane_of(t);
    let r = min(row, p.rows - 1u);
    let start = p.x_at + r * p.x_step;
    var part = Part(-INFINITE_KEY, 0.0);
    for (var c = lane; c < p.n; c += 4u * LANES) {
        part = added(part, four(start, c));
    }
    let top_key = row_top(t, part.top);
    let top = finite_of(top_key);
    let sum = row_sum(t, part.sum * exp_below(vec4<f32>(finite_of(part.top) - top)).x);
    var spread = vec2<f32>(0.0);
    if SMOOTHS == 1u {
        let own = below(start, lane, top);
        spread = vec2<f32>(row_sum(t, own.x), row_sum(t, own.y));
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
