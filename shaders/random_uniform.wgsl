// Uniform numbers in [low, high), bit for bit those of the CPU: four of a counter.
// Limited by integer arithmetic: ten rounds for each counter.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = (group.x + group.y * groups.x) * 256u + lane;
    if i >= p.counters {
        return;
    }
    var words = words_of(i);
    for (var k = 0u; k < 4u; k += 1u) {
        let place = 4u * i + k;
        if place < p.count {
            let value = p.low + rounded(unit(words[k]) * p.span);
            out[p.out_at + place] = select(value, p.top, value > p.top);
        }
    }
}
