// Labels of rows: the class, or NONE for the ignored label and for one that is refused.
const NONE: u32 = 0xffffffffu;

fn class_of(row: u32) -> u32 {
    let label = label_at(row);
    if IGNORES == 1u && all(label == vec2<u32>(p.ignored_low, p.ignored_high)) {
        return NONE;
    }
    if label.y == 0u && label.x < p.n {
        return label.x;
    }
    atomicMax(&flag[0], p.ticket);
    return NONE;
}
