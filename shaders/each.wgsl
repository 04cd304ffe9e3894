// Every place below p.count, given to each(place). Neighbouring threads have neighbours, and a thread ITEMS places of its own: several
// where the latency of its loads is to be hidden.
const GROUP: u32 = 256u;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = (group.x + group.y * groups.x) * (GROUP * ITEMS) + lane;
    for (var item = 0u; item < ITEMS; item += 1u) {
        let place = first + item * GROUP;
        if place >= p.count {
            return;
        }
        each(place);
    }
}
