// The chunks' sums for weight or bias added up: 32 columns a workgroup, 8 threads a column. Little work: the launch itself limits it.
var<workgroup> parts: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let column = (wid.x + wid.y * nw.x) * 32u + t % 32u;
    let c = min(column, p.n - 1u);
    var sum = 0.0;
    for (var k = t / 32u; k < p.chunks; k += 8u) {
        sum += load_sums(p.sums_at + (2u * k + p.which) * p.n + c);
    }
    parts[t] = sum;
    for (var step = 128u; step >= 32u; step /= 2u) {
        workgroupBarrier();
        if t < step {
            parts[t] += parts[t + step];
        }
    }
    workgroupBarrier();
    if t < 32u && column < p.n {
        total[p.total_at + column] = parts[t];
    }
}
