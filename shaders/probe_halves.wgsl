// Conversions between 16-bit floats in memory and f32, both ways.
// A few hundred kilobytes: limited by the launch.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 256u + lane;
    widened[i] = load_halves(i);
    rounded[i] = f16(load_floats(i));
}
