// Rows of a tensor at given offsets; a missing row reads as zeros.
// Limited by memory: neighbouring threads read neighbours of a row.
const MISSING: u32 = 0xffffffffu;

fn each(place: u32) {
    let row = place / p.width;
    let column = place - row * p.width;
    let offset = load_offsets(p.offsets_at + row);
    var value: Value;
    if offset != MISSING {
        value = load_x(p.x_at + offset + column * p.step);
    }
    store_out(p.out_at + place, value);
}
