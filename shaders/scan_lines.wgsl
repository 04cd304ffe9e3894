// Running sums or products, a thread for each line and chunk of it: the totals of chunks, or every element from a carried start.
// Neighbouring threads work on neighbouring lines, so this is limited by memory where lines lie side by side.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let thread = (group.x + group.y * groups.x) * 256u + lane;
    let line = thread % p.inner;
    let rest = thread / p.inner;
    let chunk = rest % p.chunks;
    let outer = rest / p.chunks;
    if outer >= p.outer {
        return;
    }
    let first = chunk * p.chunk;
    let end = min(first + p.chunk, p.length);
    var sum = nothing();
    if p.is_carried == 1u && chunk > 0u {
        sum = unpack(load_carries(p.carries_at + thread - p.inner));
    }
    let base = outer * p.length * p.inner + line;
    for (var j = first; j < end; j += 1u) {
        let place = base + select(j, p.length - 1u - j, p.is_reverse == 1u) * p.inner;
        sum = join(sum, open(load_x(p.x_at + place)));
        if TOTALS == 0u {
            out[p.out_at + place] = close(sum);
        }
    }
    if TOTALS == 1u {
        out[p.out_at + thread] = close(sum);
    }
}
