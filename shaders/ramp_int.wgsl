// start + i * step in wrapping 64-bit integers, written as elements of 4 or 8 bytes.
// Limited by the memory's write bandwidth.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = (group.x + group.y * groups.x) * 256u + lane;
    if i >= p.count {
        return;
    }
    let product = multiply(vec2<u32>(p.step_low, p.step_high), vec2<u32>(i, 0u));
    out[p.out_at + i] = narrow(add(vec2<u32>(p.start_low, p.start_high), product));
}
