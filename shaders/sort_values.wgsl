// The last stage of a sort: the elements at the sorted positions, and the positions as 64-bit integers.
// Limited by memory; reads are scattered within a row.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let place = (group.x + group.y * groups.x) * 256u + lane;
    if place >= p.count {
        return;
    }
    let row = place / p.length * p.length;
    let at = load_places(p.places_at + place);
    store_out(p.out_at + place, load_x(p.x_at + row + at));
    positions[p.positions_at + place] = vec2<u32>(at, 0u);
}
