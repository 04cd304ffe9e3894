// Stochastic gradient descent with momentum, plain or Nesterov's; in place on the outputs.
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
    let d = gradient(i) + p.decay * x;
    // The first step's buffer may hold anything.
    var buffer = d;
    if p.is_first == 0.0 {
        buffer = p.momentum * velocity[p.velocity_at + i] + p.fresh * d;
    }
    velocity[p.velocity_at + i] = buffer;
    let direction = select(buffer, d + p.momentum * buffer, p.is_nesterov != 0.0);
    param[p.param_at + i] = x - p.lr * direction;
}
