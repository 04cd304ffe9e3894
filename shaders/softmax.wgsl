// Softmax of rows, or its logarithm, of a multiple of the input. Memory limits it: a row is read once, what registers do not keep of it
// twice. Special values are told apart by their bits: a NaN or +infinity, or nothing but -infinity, makes a row NaN.

// Four elements as bits; -infinity behind the end.
fn four(start: u32, c: u32, end: u32) -> vec4<u32> {
    let i = places(c);
    let x = four_x(start, min(i, vec4<u32>(end - 1u))) * p.scale;
    return select(vec4<u32>(0xff800000u), bitcast<vec4<u32>>(x), i < vec4<u32>(end));
}

// Four elements less the largest one.
fn below(bits: vec4<u32>, top: f32) -> vec4<f32> {
    return bitcast<vec4<f32>>(bits) - top;
}

// What four elements become; `powers` are e^(x - top).
fn result(bits: vec4<u32>, powers: vec4<f32>, top: f32, last: f32, is_bad: bool) -> vec4<u32> {
    var v = bitcast<vec4<u32>>(powers * last);
    if LOG == 1u {
        v = select(bitcast<vec4<u32>>(below(bits, top) - last), bits, bits == vec4<u32>(0xff800000u));
    }
    return select(v, vec4<u32>(0x7fc00000u), vec4<bool>(is_bad));
}

// Writes four results, 0 for what the row does not see.
fn put(start: u32, c: u32, seen: u32, values: vec4<u32>) {
    let i = places(c);
    put_y(start, i, select(vec4<u32>(0u), values, i < vec4<u32>(seen)));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = row_of(wid.x + wid.y * nw.x, t);
    let begin = begin_of(lane_of(t));
    let r = min(row, p.rows - 1u);
    let start = p.x_at + r * p.x_step;
    var seen = p.n;
    if CAUSAL == 1u {
        seen = min(p.n, r % p.matrix + 1u);
    }
    let x_# = four(start, begin + #u * PITCH, seen);
    var rest = Part(-INFINITE_KEY, 0.0);
    for (var c = begin + KEPT * PITCH; c < seen; c += PITCH) {
        rest = added(rest, four(start, c, seen));
    }
    var highest = rest.top;
    highest = max(highest, top_of(keys_of(x_#)));
    let top_key = row_top(t, highest);
    let top = finite_of(top_key);
    let powers_# = exp_below(below(x_#, top));
    var sum = rest.sum * exp_below(vec4<f32>(finite_of(rest.top) - top)).x;
    sum += total4(powers_#);
    sum = row_sum(t, 0u, sum);
    let is_bad = top_key >= INFINITE_KEY || top_key == -INFINITE_KEY;
    var last = 1.0 / sum;
    if LOG == 1u {
        last = log_of(sum);
    }
    if row < p.rows {
        let to = p.y_at + r * p.n;
        put(to, begin + #u * PITCH, seen, result(x_#, powers_#, top, last, is_bad));
        for (var c = begin + KEPT * PITCH; c < p.n; c += PITCH) {
            let x = four(start, c, seen);
            put(to, c, seen, result(x, exp_below(below(x, top)), top, last, is_bad));
        }
    }
}
