// Stochastic gradient descent, the weight decay added to the gradient; in place on the output.
// Limited by memory.

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
    param[p.param_at + i] = x - p.lr * (gradient(i) + p.decay * x);
}
