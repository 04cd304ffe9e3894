// The position of the largest or smallest element of each line, the first of equal ones; NaN wins. Memory limits it: elements are read
// once. Element j of line l lies at l / inner * x_step + l % inner + j * inner. A long line may be cut into parts, which a second
// dispatch compares.
struct Best {
    high: i32,
    low: i32,
    at: u32,
}

var<workgroup> best: array<Best, 256>;

// Whether b takes a's place: larger, or equal and earlier.
fn is_better(b: Best, a: Best) -> bool {
    if b.high != a.high {
        return b.high > a.high;
    }
    if b.low != a.low {
        return b.low > a.low;
    }
    return b.at < a.at;
}

fn better(a: Best, b: Best) -> Best {
    if is_better(b, a) {
        return b;
    }
    return a;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let line = row_of(wid.x + wid.y * nw.x, t);
    let lane = lane_of(t);
    let l = min(line, p.lines * p.parts - 1u);
    let real = l % p.lines;
    let part = l / p.lines;
    let start = p.x_at + real / p.inner * p.x_step + real % p.inner;
    let end = min(p.n, (part + 1u) * p.span);
    var found = Best(LEAST, LEAST, 0xffffffffu);
    for (var j = part * p.span + lane; j < end; j += 4u * LANES) {
        // Four at a time; the last element may be looked at twice.
        let i = min(places(j), vec4<u32>(end - 1u));
        let at = vec4<u32>(start) + i * p.inner;
        let a = better(element(at.x, i.x), element(at.y, i.y));
        let b = better(element(at.z, i.z), element(at.w, i.w));
        found = better(found, better(a, b));
    }
    best[t] = found;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if lane < step {
            best[t] = better(best[t], best[t + step * STRIDE]);
        }
    }
    workgroupBarrier();
    if line < p.lines * p.parts && lane == 0u {
        put(l, best[t]);
    }
}
