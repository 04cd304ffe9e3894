// Rows made to have mean 0 and variance 1, or mean square 1, then scaled and shifted. Memory limits it: a row's first 4 LANES elements
// are read once, what follows three times, mostly from a cache.
fn four(start: u32, c: u32, end: u32) -> vec4<f32> {
    let at = vec4<u32>(start) + min(places(c), vec4<u32>(end - 1u));
    return vec4<f32>(load_x(at.x), load_x(at.y), load_x(at.z), load_x(at.w));
}

// x - mean, 0 behind the end.
fn distances(x: vec4<f32>, c: u32, mean: f32) -> vec4<f32> {
    return select(vec4<f32>(0.0), x - mean, places(c) < vec4<u32>(p.n));
}

fn put(row: u32, i: u32, d: f32, rstd: f32) {
    if i < p.n {
        y[p.y_at + row * p.n + i] = d * rstd * weight_at(i) + bias_at(i);
    }
}

fn put4(row: u32, c: u32, d: vec4<f32>, rstd: f32) {
    let i = places(c);
    put(row, i.x, d.x, rstd);
    put(row, i.y, d.y, rstd);
    put(row, i.z, d.z, rstd);
    put(row, i.w, d.w, rstd);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(wid.x + wid.y * nw.x, t);
    let lane = lane_of(t);
    let r = min(row, p.rows - 1u);
    let start = p.x_at + r * p.x_step;
    let next = lane + 4u * LANES;
    let count = f32(p.n);
    let first = four(start, lane, p.n);
    var mean = 0.0;
    if CENTRES == 1u {
        var sum = total4(distances(first, lane, 0.0));
        for (var c = next; c < p.n; c += 4u * LANES) {
            sum += total4(distances(four(start, c, p.n), c, 0.0));
        }
        mean = row_sum(t, sum) / count;
    }
    let d = distances(first, lane, mean);
    var sum = total4(d);
    var squares = total4(d * d);
    for (var c = next; c < p.n; c += 4u * LANES) {
        let d = distances(four(start, c, p.n), c, mean);
        sum += total4(d);
        squares += total4(d * d);
    }
    var variance = row_sum(t, squares) / count;
    if CENTRES == 1u {
        // What rounding left of the mean: the sum of the distances would be 0. An infinite mean stays.
        let left = row_sum(t, sum) / count;
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
        put4(r, lane, first - mean, rstd);
        for (var c = next; c < p.n; c += 4u * LANES) {
            put4(r, c, four(start, c, p.n) - mean, rstd);
        }
    }
}
