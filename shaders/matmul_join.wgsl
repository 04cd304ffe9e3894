// The parts of products whose sums were cut along k, added up in order; of no parts 0. Memory limits it: parts are read once.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let i = (wid.x + wid.y * nw.x) * 256u + t;
    if i < p.elems {
        var sum = Sum(0);
        for (var s = 0u; s < p.splits; s++) {
            sum += load_parts(p.parts_at + s * p.elems + i);
        }
        put_one(p.c_at + i, sum);
    }
}
