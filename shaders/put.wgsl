// Rows written at their targets, each by the position that claimed it.
// Limited by memory: neighbouring threads write neighbours of a row.
const MISSING: u32 = 0xffffffffu;

fn each(flat: u32) {
    let place = flat / p.width;
    let column = flat - place * p.width;
    let target_row = load_targets(p.targets_at + place);
    if target_row == MISSING {
        return;
    }
    if load_last(p.last_at + target_row) == place + 1u {
        store_out(p.out_at + target_row * p.width + column, load_v(p.v_at + flat));
    }
}
