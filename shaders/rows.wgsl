// What row kernels share: which row a thread works on, four elements at a time, sums over the threads of a row, exponentials.
// THREADS threads work on THREADS / LANES rows. A row's threads lie STRIDE apart: 1 where a row's elements are neighbours in memory, else
// THREADS / LANES, so that neighbours work on neighbouring rows. Each thread keeps its first KEPT fours of a row in registers: a line with
// a number sign stands KEPT times, for 0, 1, ... Orders of sums depend on sizes, on how rows lie and on the adapter.
const ROWS: u32 = THREADS / LANES;
// Columns from one four of a thread to its next.
const PITCH: u32 = 4u * LANES;
// TEAM threads of a row combine what they have first, then the teams.
const TEAMS: u32 = LANES / TEAM;

var<workgroup> part_sums: array<vec2<f32>, 2u * THREADS / TEAM>;
var<workgroup> part_tops: array<i32, THREADS / TEAM>;

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

// Two sums over a row's threads, to each of them. `turn` is 0 at a kernel's first sums and 1 at its second, which use other memory.
fn row_sums(t: u32, turn: u32, values: vec2<f32>) -> vec2<f32> {
    var sums = team_sums(t, turn, values);
    if TEAMS > 1u {
        let lane = lane_of(t);
        let first = turn * (THREADS / TEAM) + row_of(0u, t) * TEAMS;
        if lane % TEAM == 0u {
            part_sums[first + lane / TEAM] = sums;
        }
        workgroupBarrier();
        sums = part_sums[first];
        for (var k = 1u; k < TEAMS; k++) {
            sums += part_sums[first + k];
        }
    }
    return sums;
}

fn row_sum(t: u32, turn: u32, value: f32) -> f32 {
    return row_sums(t, turn, vec2<f32>(value, 0.0)).x;
}

// The largest key of a row's threads, to each of them; called once in a kernel.
fn row_top(t: u32, value: i32) -> i32 {
    var top = team_top(t, value);
    if TEAMS > 1u {
        let lane = lane_of(t);
        let first = row_of(0u, t) * TEAMS;
        if lane % TEAM == 0u {
            part_tops[first + lane / TEAM] = top;
        }
        workgroupBarrier();
        top = part_tops[first];
        for (var k = 1u; k < TEAMS; k++) {
            top = max(top, part_tops[first + k]);
        }
    }
    return top;
}

// The first position of a thread in its row.
fn begin_of(lane: u32) -> u32 {
    return select(lane, 4u * lane, WIDE == 1u);
}

// Positions of the four elements that a thread takes at a time: neighbours, a multiple of 4 the first, where they are moved at once.
fn places(c: u32) -> vec4<u32> {
    if WIDE == 1u {
        return vec4<u32>(c, c + 1u, c + 2u, c + 3u);
    }
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

// The largest of four keys.
fn top_of(k: vec4<i32>) -> i32 {
    return max(max(k.x, k.y), max(k.z, k.w));
}

// The sum of e^(x - top) of elements seen so far, and their largest key.
struct Part {
    top: i32,
    sum: f32,
}

fn added(part: Part, bits: vec4<u32>) -> Part {
    let top = max(part.top, top_of(keys_of(bits)));
    let highest = finite_of(top);
    let shrunk = exp_below(vec4<f32>(finite_of(part.top) - highest)).x;
    return Part(top, part.sum * shrunk + total4(exp_below(bitcast<vec4<f32>>(bits) - highest)));
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
