// What row kernels share: which row a thread works on, four elements at a time, sums over the threads of a row, exponentials.
// 256 threads work on 256 / LANES rows. A row's threads lie STRIDE apart: 1 where a row's elements are neighbours in memory, else
// 256 / LANES, so that neighbours work on neighbouring rows. LANES is a power of 4. Orders of sums depend on sizes alone.
const THREADS: u32 = 256u;
const ROWS: u32 = THREADS / LANES;

var<workgroup> floats: array<f32, 256>;
var<workgroup> keys: array<i32, 256>;

fn lane_of(t: u32) -> u32 {
    return t / STRIDE % LANES;
}

// The row of a thread in workgroup `group`; may reach past the last one.
fn row_of(group: u32, t: u32) -> u32 {
    if STRIDE == 1u {
        return group * ROWS + t / LANES;
    }
    return group * ROWS + t % ROWS;
}

// The sum over a row's threads, to each of them.
fn row_sum(t: u32, value: f32) -> f32 {
    let lane = lane_of(t);
    floats[t] = value;
    for (var step = LANES / 4u; step > 0u; step /= 4u) {
        workgroupBarrier();
        if lane < step {
            let at = t + step * STRIDE;
            floats[t] = (floats[t] + floats[at]) + (floats[at + step * STRIDE] + floats[at + 2u * step * STRIDE]);
        }
    }
    workgroupBarrier();
    let total = floats[t - lane * STRIDE];
    workgroupBarrier();
    return total;
}

// The largest key of a row's threads, to each of them.
fn row_top(t: u32, value: i32) -> i32 {
    let lane = lane_of(t);
    keys[t] = value;
    for (var step = LANES / 4u; step > 0u; step /= 4u) {
        workgroupBarrier();
        if lane < step {
            let at = t + step * STRIDE;
            keys[t] = max(max(keys[t], keys[at]), max(keys[at + step * STRIDE], keys[at + 2u * step * STRIDE]));
        }
    }
    workgroupBarrier();
    let top = keys[t - lane * STRIDE];
    workgroupBarrier();
    return top;
}

// Positions of the four elements that a thread takes at a time.
fn places(c: u32) -> vec4<u32> {
    return vec4<u32>(c, c + LANES, c + 2u * LANES, c + 3u * LANES);
}

fn total4(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

// Integers in the order of floats given as bits: NaN is above all, both zeros are equal.
fn keys_of(bits: vec4<u32>) -> vec4<i32> {
    let size = vec4<i32>(bits & vec4<u32>(0x7fffffffu));
    let key = select(size, -size, bits >= vec4<u32>(0x80000000u));
    return select(key, vec4<i32>(0x7fffffff), size > vec4<i32>(0x7f800000));
}

const INFINITE_KEY: i32 = 0x7f800000;
const LEAST_KEY: i32 = -0x7f7fffff;

// The float of a key, -infinity made the least finite one.
fn finite_of(key: i32) -> f32 {
    let k = max(key, LEAST_KEY);
    return bitcast<f32>(select(u32(k), u32(-k) | 0x80000000u, k < 0i));
}

// e^d for d <= 0, 0 below -87. In parts, because the built-in function may lose digits as |d| grows.
fn exp_below(d: vec4<f32>) -> vec4<f32> {
    let x = max(d, vec4<f32>(-87.0));
    let n = round(x * 1.44269504);
    let r = fma(n, vec4<f32>(-1.4286068e-6), fma(n, vec4<f32>(-0.693145751953125), x));
    let scale = bitcast<vec4<f32>>((vec4<i32>(n) + vec4<i32>(127)) << vec4<u32>(23u));
    return select(exp(r) * scale, vec4<f32>(0.0), d < vec4<f32>(-87.0));
}

// The natural logarithm of a number from 2^-126 on, also close to 1: log(1 + f) by a series in f / (2 + f) (fdlibm's).
fn log_of(x: f32) -> f32 {
    let bits = bitcast<u32>(x) + 0x3f800000u - 0x3f3504f3u;
    let k = f32(i32(bits >> 23u) - 127);
    let f = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let series = z * (0.66666662693 + w * 0.28498786688) + w * (0.40000972152 + w * 0.24279078841);
    let half_square = 0.5 * f * f;
    return k * 0.693138123 - ((half_square - (s * (half_square + series) + k * 9.0580006145e-6)) - f);
}
