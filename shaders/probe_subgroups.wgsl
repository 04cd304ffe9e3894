// What each invocation knows of its subgroup: the size, its own place, and by which steps it reaches the neighbour in the workgroup.
// One workgroup: limited by the launch.
@compute @workgroup_size(THREADS)
fn main(
    @builtin(local_invocation_index) t: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    var reached = 0u;
    for (var step = 1u; step < LEAST; step *= 2u) {
        if subgroupShuffleXor(t, step) == (t ^ step) {
            reached |= step;
        }
    }
    found[3u * t] = size;
    found[3u * t + 1u] = lane;
    found[3u * t + 2u] = reached;
}
