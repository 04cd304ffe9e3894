// A strided copy into a window of a row-major tensor: what concatenation and slice assignment write.
// Limited by memory. Neighbouring threads write neighbours along the window's last axis; table holds size, step in x and step in out of
// every axis, the last axis first.

fn each(place: u32) {
    var rest = place;
    var source = p.x_at;
    var to = p.out_at + p.first;
    for (var axis = 0u; axis < p.rank; axis += 1u) {
        let size = load_table(3u * axis);
        let x_step = load_table(3u * axis + 1u);
        let out_step = load_table(3u * axis + 2u);
        let next = rest / size;
        let at = rest - next * size;
        source += at * x_step;
        to += at * out_step;
        rest = next;
    }
    store_out(to, load_x(source));
}
