// What the threads of a team combine, by exchange within their subgroup: no barrier, and each gets the same bits. Invocations that are
// neighbours in a workgroup are so in a subgroup, which holds whole teams.
fn team_sums(t: u32, turn: u32, values: vec2<f32>) -> vec2<f32> {
    var sums = values;
    for (var step = TEAM / 2u; step > 0u; step /= 2u) {
        sums += subgroupShuffleXor(sums, step);
    }
    return sums;
}

fn team_top(t: u32, value: i32) -> i32 {
    var top = value;
    for (var step = TEAM / 2u; step > 0u; step /= 2u) {
        top = max(top, subgroupShuffleXor(top, step));
    }
    return top;
}
