// Normal numbers by the method of Box and Muller (1958): four of a counter.
// Limited by arithmetic: ten rounds, two logarithms and two rotations for each counter.

/// Natural logarithm of a number in (0, 1] (method and polynomial: Cephes logf): drivers' own is coarse near 1.
fn log_of(x: f32) -> f32 {
    let bits = bitcast<u32>(x) - 0x3f3504f3u;
    let e = f32(bitcast<i32>(bits) >> 23u);
    let f = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0;
    let z = f * f;
    var q = 7.0376836292e-2;
    q = q * f - 1.1514610310e-1;
    q = q * f + 1.1676998740e-1;
    q = q * f - 1.2420140846e-1;
    q = q * f + 1.4249322787e-1;
    q = q * f - 1.6668057665e-1;
    q = q * f + 2.0000714765e-1;
    q = q * f - 2.4999993993e-1;
    q = q * f + 3.3333331174e-1;
    let y = f * z * q - e * 2.12194440e-4 - 0.5 * z;
    return (f + y) + e * 0.693359375;
}

/// Cosine and sine of an angle in [0, 2 pi] (polynomials: Cephes cosf and sinf), reduced by quarter turns.
fn turn(angle: f32) -> vec2<f32> {
    let quarters = floor(angle * 0.63661977236758134 + 0.5);
    let r = ((angle - quarters * 1.5703125) - quarters * 4.837512969970703125e-4) - quarters * 7.54978995489188e-8;
    let z = r * r;
    let s = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * r + r;
    let c = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1.0;
    let quadrant = u32(quarters) & 3u;
    let even = select(vec2<f32>(c, s), vec2<f32>(-s, c), (quadrant & 1u) == 1u);
    return select(even, -even, quadrant >= 2u);
}

/// Two normal numbers of two words.
fn pair_of(a: u32, b: u32) -> vec2<f32> {
    let open = (f32(a) + 1.0) * (1.0 / 4294967296.0);
    let radius = sqrt(max(-2.0 * log_of(open), 0.0));
    let angle = rounded(unit(b) * 6.2831853071795864);
    return p.mean + p.deviation * (radius * turn(angle));
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = (group.x + group.y * groups.x) * 256u + lane;
    if i >= p.counters {
        return;
    }
    let words = words_of(i);
    var values = vec4<f32>(pair_of(words.x, words.y), pair_of(words.z, words.w));
    for (var k = 0u; k < 4u; k += 1u) {
        let place = 4u * i + k;
        if place < p.count {
            out[p.out_at + place] = values[k];
        }
    }
}
