// Products of integers, 16 x 16 elements a workgroup, wrapping: made to be right; arithmetic and workgroup memory limit it.
var<workgroup> left: array<array<Whole, 16>, 16>;
var<workgroup> right: array<array<Whole, 16>, 16>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let tile = wid.x + wid.y * nw.x;
    let item = item_of(wid.z);
    let y = t / 16u;
    let x = t % 16u;
    let row = tile / p.tiles_n * 16u + y;
    let column = tile % p.tiles_n * 16u + x;
    var sum = Whole(0);
    for (var k = 0u; k < p.k; k += 16u) {
        let a_ok = row < p.m && k + x < p.k;
        let b_ok = column < p.n && k + y < p.k;
        left[y][x] = select(Whole(0), load_a(item.a + select(0u, row * p.a_row + (k + x) * p.a_col, a_ok)), a_ok);
        right[y][x] = select(Whole(0), load_b(item.b + select(0u, (k + y) * p.b_row + column * p.b_col, b_ok)), b_ok);
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) {
            sum += left[y][i] * right[i][x];
        }
        workgroupBarrier();
    }
    if row < p.m && column < p.n {
        c[item.c + row * p.n + column] = sum;
    }
}
