// Results of products of scaled halves are scaled back.
var<workgroup> special: atomic<u32>;

fn a_field(item: u32, row: u32) -> u32 {
    return field_of(load_a_max(p.a_max_at + item * p.a_each * p.m + min(row, p.m - 1u)));
}

fn b_field(item: u32, column: u32) -> u32 {
    return field_of(load_b_max(p.b_max_at + item * p.b_each * p.n + min(column, p.n - 1u)));
}

// In two steps of one direction: what is between is no smaller than the smallest and no larger than the largest of v and the result.
fn scaled_back(v: f32, row: u32, column: u32) -> f32 {
    let exponent = 254i - i32(row) - i32(column);
    let half = exponent >> 1u;
    return v * power_of(u32(half + 127i)) * power_of(u32(exponent - half + 127i));
}

// Four results beside each other, which lie in workgroup memory.
fn finish(item: u32, to: u32, row: u32, column: u32, at: u32) {
    if row < p.m && column < p.n {
        let left = a_field(item, row);
        var v = vec4<f32>(0.0);
        for (var i = 0u; i < 4u; i++) {
            v[i] = scaled_back(stage[at + i], left, b_field(item, column + i));
        }
        put(to, row, column, v);
    }
}

// Four results beside each other, as the operands themselves give them: beside an infinity or NaN there is no exact rest.
fn plain(start: Item, row: u32, column: u32, begin: u32, end: u32) -> vec4<f32> {
    let left = start.a + min(row, p.m - 1u) * p.a_row;
    let columns = min(vec4<u32>(column, column + 1u, column + 2u, column + 3u), vec4<u32>(p.n - 1u)) * p.b_col;
    var sums = vec4<f32>(0.0);
    for (var k = begin; k < end; k++) {
        let at = vec4<u32>(start.b + k * p.b_row) + columns;
        let right = vec4<f32>(load_b(at.x), load_b(at.y), load_b(at.z), load_b(at.w));
        sums = fma(vec4<f32>(load_a(left + k * p.a_col)), right, sums);
    }
    return sums;
}
