// One number in every word of a tensor, or two in turn for 8-byte elements.
// Limited by the memory's write bandwidth.
const GROUP: u32 = 256u;
const ITEMS: u32 = 4u;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = (group.x + group.y * groups.x) * (GROUP * ITEMS) + lane;
    // GROUP is even, so a thread's words are all low or all high ones.
    let value = select(p.low, p.high, (lane & 1u) == 1u);
    for (var item = 0u; item < ITEMS; item += 1u) {
        let word = first + item * GROUP;
        if word < p.count {
            out[p.out_at + word] = value;
        }
    }
}
