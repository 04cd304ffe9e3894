// Elements added at their targets, a thread for each line along the indexed axis, in index order.
// Limited by latency along a line; chosen where lines are many or short.
const MISSING: u32 = 0xffffffffu;

fn each(line: u32) {
    let outer = line / p.inner;
    let first = outer * p.length * p.inner + (line - outer * p.inner);
    for (var j = 0u; j < p.length; j += 1u) {
        let place = first + j * p.inner;
        let at = load_targets(p.targets_at + place);
        if at != MISSING {
            out[p.out_at + at] = join(out[p.out_at + at], load_v(p.v_at + place));
        }
    }
}
