// Running sums or products, a workgroup for each line and chunk of it: the totals of chunks, or every element from a carried start.
// Limited by memory: a thread takes a few neighbours, then the threads' totals are scanned in workgroup memory.
const GROUP: u32 = 256u;
const ITEMS: u32 = 4u;

var<workgroup> sums: array<Sum, GROUP>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = group.x + group.y * groups.x;
    let line = block % p.inner;
    let rest = block / p.inner;
    let chunk = rest % p.chunks;
    let outer = rest / p.chunks;
    let is_inside = outer < p.outer;
    let base = outer * p.length * p.inner + line;
    let first = chunk * p.chunk + lane * ITEMS;
    var items: array<Sum, ITEMS>;
    var own = nothing();
    for (var k = 0u; k < ITEMS; k += 1u) {
        let j = first + k;
        if is_inside && j < p.length {
            let place = base + select(j, p.length - 1u - j, p.is_reverse == 1u) * p.inner;
            own = join(own, open(load_x(p.x_at + place)));
        }
        items[k] = own;
    }
    sums[lane] = own;
    for (var step = 1u; step < GROUP; step <<= 1u) {
        workgroupBarrier();
        var sum = sums[lane];
        if lane >= step {
            sum = join(sums[lane - step], sum);
        }
        workgroupBarrier();
        sums[lane] = sum;
    }
    workgroupBarrier();
    if !is_inside {
        return;
    }
    if TOTALS == 1u {
        if lane == 0u {
            out[p.out_at + block] = close(sums[GROUP - 1u]);
        }
        return;
    }
    var before = nothing();
    if p.is_carried == 1u && chunk > 0u {
        before = unpack(load_carries(p.carries_at + block - p.inner));
    }
    if lane > 0u {
        before = join(before, sums[lane - 1u]);
    }
    for (var k = 0u; k < ITEMS; k += 1u) {
        let j = first + k;
        if j < p.length {
            let place = base + select(j, p.length - 1u - j, p.is_reverse == 1u) * p.inner;
            out[p.out_at + place] = close(join(before, items[k]));
        }
    }
}
