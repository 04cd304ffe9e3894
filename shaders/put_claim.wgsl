// Which position writes to a target: the last one in index order, whatever order the threads run in.
// Limited by atomics on repeated targets.
const MISSING: u32 = 0xffffffffu;

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
    let target_row = load_targets(p.targets_at + place);
    if target_row != MISSING {
        atomicMax(&last[p.last_at + target_row], place + 1u);
    }
}
