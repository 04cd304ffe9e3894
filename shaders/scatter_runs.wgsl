// Sums of rows that go to one target, over chunks of the positions sorted by target: a thread for each chunk and column.
// A run that begins in the chunk starts with what the target holds; it is written where it ends here and left in tails where it goes on.
// What a chunk adds to a run begun before it is left in heads. Limited by memory, or by latency where runs are long.
const MISSING: u32 = 0xffffffffu;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let thread = (group.x + group.y * groups.x) * 256u + lane;
    let chunk = thread / p.width;
    let column = thread - chunk * p.width;
    let first = chunk * p.length;
    if first >= p.count {
        return;
    }
    let end = min(first + p.length, p.count);
    var key = load_keys(p.keys_at + first);
    var is_head = false;
    if chunk > 0u {
        is_head = load_keys(p.keys_at + first - 1u) == key;
    }
    var sum: Value;
    if !is_head && key != MISSING {
        sum = out[p.out_at + key * p.width + column];
    }
    for (var i = first; i < end; i += 1u) {
        // Missing targets come last.
        if key == MISSING {
            return;
        }
        let place = load_places(p.places_at + i);
        sum = join(sum, load_v(p.v_at + place * p.width + column));
        var next = MISSING;
        if i + 1u < p.count {
            next = load_keys(p.keys_at + i + 1u);
        }
        if next != key || i + 1u == end {
            if is_head {
                heads[p.heads_at + thread] = sum;
            } else if next != key {
                out[p.out_at + key * p.width + column] = sum;
            } else {
                tails[p.tails_at + thread] = sum;
            }
        }
        if next != key && next != MISSING && i + 1u < end {
            sum = out[p.out_at + next * p.width + column];
            is_head = false;
        }
        key = next;
    }
}
