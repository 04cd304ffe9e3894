// Rows of a tensor at given offsets; a missing row reads as zeros.
// Limited by memory: neighbouring threads read neighbours of a row.
const MISSING: u32 = 0xffffffffu;
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
        let row = place / p.width;
        let column = place - row * p.width;
        let offset = load_offsets(p.offsets_at + row);
        var value: Value;
        if offset != MISSING {
            value = load_x(p.x_at + offset + column * p.step);
        }
        out[p.out_at + place] = value;
    }
}
