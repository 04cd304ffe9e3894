// Rows written at their targets, each by the position that claimed it.
// Limited by memory: neighbouring threads write neighbours of a row.
const MISSING: u32 = 0xffffffffu;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let flat = (group.x + group.y * groups.x) * 256u + lane;
    if flat >= p.count {
        return;
    }
    let place = flat / p.width;
    let column = flat - place * p.width;
    let target_row = load_targets(p.targets_at + place);
    if target_row == MISSING {
        return;
    }
    if load_last(p.last_at + target_row) == place + 1u {
        out[p.out_at + target_row * p.width + column] = load_v(p.v_at + flat);
    }
}
