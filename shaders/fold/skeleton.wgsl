// The frame of a reduction: each workgroup has OUTPUTS outputs of THREADS threads, or one part of each; lines that begin with // and a
// word are where a kernel's own are put. Limit: the memory, where threads have four loads in flight and neighbours read neighbours.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) thread: u32) {
//LETS
    let number = group.x + group.y * groups.x;
    let part = number % parts;
    // Neighbouring threads work on one output, or on neighbouring outputs.
    let rank = select(thread / OUTPUTS, thread % THREADS, ALONG == 1u);
    let column = select(thread % OUTPUTS, thread / THREADS, ALONG == 1u);
    let next = select(OUTPUTS, 1u, ALONG == 1u);
    let output = (number / parts) * OUTPUTS + column;
    let outer_index = output / inner;
    let inner_index = output - outer_index * inner;
    let first = part * part_length;
    let end = select(first, min(first + part_length, reduced), output < outputs);
//BEFORE
    let none = nothing();
    var mine = none;
    for (var turn = first + rank; turn < end; turn += 4u * THREADS) {
        let index = vec4u(turn) + vec4u(0u, THREADS, 2u * THREADS, 3u * THREADS);
        let is_inside = index < vec4u(end);
        let at = min(index, vec4u(end - 1u));
//EACH
    }
//COMBINE
    if (rank == 0u && output < outputs) {
//STORE
    }
}
