// Softmax of rows, or its logarithm, of a multiple of the input. Memory limits it: a row is read twice, the second time from a cache;
// its first 4 LANES elements once. Special values are told apart by their bits: a NaN or +infinity, or nothing but -infinity, makes a
// row NaN.
struct Part {
    top: i32,
    // Of e^(x - top).
    sum: f32,
}

// Four elements as bits; -infinity behind the end.
fn four(start: u32, c: u32, end: u32) -> vec4<u32> {
    let i = places(c);
    let at = vec4<u32>(start) + min(i, vec4<u32>(end - 1u));
    let x = vec4<f32>(load_x(at.x), load_x(at.y), load_x(at.z), load_x(at.w)) * p.scale;
    return select(vec4<u32>(0xff800000u), bitcast<vec4<u32>>(x), i < vec4<u32>(end));
}

fn added(part: Part, bits: vec4<u32>) -> Part {
    let k = keys_of(bits);
    let top = max(part.top, max(max(k.x, k.y), max(k.z, k.w)));
    let highest = finite_of(top);
    let shrunk = exp_below(vec4<f32>(finite_of(part.top) - highest)).x;
    return Part(top, part.sum * shrunk + total4(exp_below(bitcast<vec4<f32>>(bits) - highest)));
}

// What four elements become.
fn four_out(bits: vec4<u32>, top: f32, last: f32, is_bad: bool) -> vec4<u32> {
    let d = bitcast<vec4<f32>>(bits) - top;
    var v = vec4<u32>(0u);
    if LOG == 1u {
        let is_least = bits == vec4<u32>(0xff800000u);
        v = select(bitcast<vec4<u32>>(d - last), bits, is_least);
    } else {
        v = bitcast<vec4<u32>>(exp_below(d) * last);
    }
    return select(v, vec4<u32>(0x7fc00000u), vec4<bool>(is_bad));
}

fn put(start: u32, c: u32, seen: u32, values: vec4<u32>) {
    let i = places(c);
    let v = select(vec4<u32>(0u), values, i < vec4<u32>(seen));
    if i.x < p.n { y[start + i.x] = v.x; }
    if i.y < p.n { y[start + i.y] = v.y; }
    if i.z < p.n { y[start + i.z] = v.z; }
    if i.w < p.n { y[start + i.w] = v.w; }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(wid.x + wid.y * nw.x, t);
    let lane = lane_of(t);
    let r = min(row, p.rows - 1u);
    let start = p.x_at + r * p.x_step;
    var seen = p.n;
    if CAUSAL == 1u {
        seen = min(p.n, r % p.matrix + 1u);
    }
    let first = four(start, lane, seen);
    var part = added(Part(-INFINITE_KEY, 0.0), first);
    for (var c = lane + 4u * LANES; c < seen; c += 4u * LANES) {
        part = added(part, four(start, c, seen));
    }
    let top_key = row_top(t, part.top);
    let top = finite_of(top_key);
    let sum = row_sum(t, part.sum * exp_below(vec4<f32>(finite_of(part.top) - top)).x);
    let is_bad = top_key >= INFINITE_KEY || top_key == -INFINITE_KEY;
    var last = 1.0 / sum;
    if LOG == 1u {
        last = log_of(sum);
    }
    if row < p.rows {
        let to = p.y_at + r * p.n;
        put(to, lane, seen, four_out(first, top, last, is_bad));
        for (var c = lane + 4u * LANES; c < p.n; c += 4u * LANES) {
            put(to, c, seen, four_out(four(start, c, seen), top, last, is_bad));
        }
    }
}
