// Which position writes to a target: the last one in index order, whatever order the threads run in.
// Limited by atomics on repeated targets.
const MISSING: u32 = 0xffffffffu;

fn each(place: u32) {
    let target_row = load_targets(p.targets_at + place);
    if target_row != MISSING {
        atomicMax(&last[p.last_at + target_row], place + 1u);
    }
}
