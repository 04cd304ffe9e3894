// Rows made to have mean 0 and variance 1, or mean square 1, then scaled and shifted. Memory limits it: a row is read once, what registers
// do not keep of it three times.
fn four(start: u32, c: u32) -> vec4<f32> {
    return four_x(start, min(places(c), vec4<u32>(p.n - 1u)));
}

// x - mean, 0 behind the end.
fn distances(x: vec4<f32>, c: u32, mean: f32) -> vec4<f32> {
    return select(vec4<f32>(0.0), x - mean, places(c) < vec4<u32>(p.n));
}

// What is summed of distances: their squares, themselves.
fn sums_of(d: vec4<f32>) -> vec2<f32> {
    return vec2<f32>(total4(d * d), total4(d));
}

fn put(row: u32, c: u32, d: vec4<f32>, rstd: f32) {
    let i = places(c);
    let k = min(i, vec4<u32>(p.n - 1u));
    put_y(p.y_at + row * p.n, i, d * rstd * four_weight(k) + four_bias(k));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(wid.x + wid.y * nw.x, t);
    let lane = lane_of(t);
    let begin = begin_of(lane);
    let r = min(row, p.rows - 1u);
    let start = p.x_at + r * p.x_step;
    let next = begin + KEPT * PITCH;
    let count = f32(p.n);
    let x_# = four(start, begin + #u * PITCH);
    var mean = 0.0;
    if CENTRES == 1u {
        var sum = 0.0;
        sum += total4(distances(x_#, begin + #u * PITCH, 0.0));
        for (var c = next; c < p.n; c += PITCH) {
            sum += total4(distances(four(start, c), c, 0.0));
        }
        mean = row_sum(t, 0u, sum) / count;
    }
    var sums = vec2<f32>(0.0);
    sums += sums_of(distances(x_#, begin + #u * PITCH, mean));
    for (var c = next; c < p.n; c += PITCH) {
        sums += sums_of(distances(four(start, c), c, mean));
    }
    sums = row_sums(t, 1u, sums) / count;
    var variance = sums.x;
    if CENTRES == 1u {
        // What rounding left of the mean: the sum of the distances would be 0. An infinite mean stays.
        let left = sums.y;
        if (bitcast<u32>(left) & 0x7f800000u) != 0x7f800000u {
            mean += left;
        }
        let centred = variance - left * left;
        variance = select(centred, 0.0, centred < 0.0);
    }
    let rstd = 1.0 / sqrt(variance + p.eps);
    if row < p.rows {
        if lane == 0u {
            rstd_out[p.rstd_at + r] = rstd;
            put_mean(r, mean);
        }
        put(r, begin + #u * PITCH, x_# - mean, rstd);
        for (var c = next; c < p.n; c += PITCH) {
            put(r, c, four(start, c) - mean, rstd);
        }
    }
}
