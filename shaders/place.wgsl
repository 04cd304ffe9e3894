// A strided copy into a window of a row-major tensor: what concatenation and slice assignment write.
// Limited by memory. Neighbouring threads write neighbours along the window's last axis; table holds size, step in x and step in out of
// every axis, the last axis first.
const GROUP: u32 = 256u;
const ITEMS: u32 = 4u;

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
        var rest = place;
        var source = p.x_at;
        var to = p.out_at + p.first;
        for (var axis = 0u; axis < p.rank; axis += 1u) {
            let size = load_table(3u * axis);
            let x_step = load_table(3u * axis + 1u);
            let out_step = load_table(3u * axis + 2u);
            let next = rest / size;
            let at = rest - next * size;
            source += at * x_step;
            to += at * out_step;
            rest = next;
        }
        out[to] = load_x(source);
    }
}
