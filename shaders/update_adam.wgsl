// Adam (Kingma and Ba 2015), decoupled decay as AdamW (Loshchilov and Hutter 2019) through p.kept; in place on the outputs.
// Limited by memory: seven numbers move for each element.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = (group.x + group.y * groups.x) * 256u + lane;
    if i >= p.count {
        return;
    }
    let x = param[p.param_at + i];
    let d = gradient(i) + p.decay * x;
    let old = first[p.first_at + i];
    let mean = old + p.toward_g * (d - old);
    let square = p.beta2 * second[p.second_at + i] + p.toward_g2 * d * d;
    first[p.first_at + i] = mean;
    second[p.second_at + i] = square;
    param[p.param_at + i] = x * p.kept - p.step * (mean / (sqrt(square) / p.root2 + p.eps));
}
