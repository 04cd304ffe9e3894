// What the threads of a team combine, by way of workgroup memory: each reads what all of them left there, behind one barrier.
var<workgroup> team_values: array<vec2<f32>, 2u * THREADS>;
var<workgroup> team_keys: array<i32, THREADS>;

fn team_sums(t: u32, turn: u32, values: vec2<f32>) -> vec2<f32> {
    if TEAM == 1u {
        return values;
    }
    let own = turn * THREADS + t;
    team_values[own] = values;
    workgroupBarrier();
    let first = own - lane_of(t) % TEAM * STRIDE;
    var sums = team_values[first];
    for (var k = 1u; k < TEAM; k++) {
        sums += team_values[first + k * STRIDE];
    }
    return sums;
}

fn team_top(t: u32, value: i32) -> i32 {
    if TEAM == 1u {
        return value;
    }
    team_keys[t] = value;
    workgroupBarrier();
    let first = t - lane_of(t) % TEAM * STRIDE;
    var top = team_keys[first];
    for (var k = 1u; k < TEAM; k++) {
        top = max(top, team_keys[first + k * STRIDE]);
    }
    return top;
}
