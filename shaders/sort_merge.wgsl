// One pass of a stable merge sort along rows: every element goes to its own rank plus its rank in the other run, found by bisection.
// Limited by latency of the cached reads: log(width) of them for each element.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let place = (group.x + group.y * groups.x) * 256u + lane;
    if place >= p.count {
        return;
    }
    let row = place / p.length * p.length;
    let at = place - row;
    let base = at / (2u * p.width) * (2u * p.width);
    let middle = min(base + p.width, p.length);
    let end = min(middle + p.width, p.length);
    let is_left = at < middle;
    let key = load_keys(p.keys_at + place);
    let other = select(base, middle, is_left);
    var low = other;
    var high = select(middle, end, is_left);
    while low < high {
        let probe = low + (high - low) / 2u;
        let found = load_keys(p.keys_at + row + probe);
        // Of equal elements those of the left run come first.
        var is_first = !is_less(key, found);
        if is_left {
            is_first = is_less(found, key);
        }
        if is_first {
            low = probe + 1u;
        } else {
            high = probe;
        }
    }
    let own = select(base + at - middle, at, is_left);
    let to = row + own + (low - other);
    sorted_keys[p.sorted_keys_at + to] = key;
    sorted_places[p.sorted_places_at + to] = load_places(p.places_at + place);
}
