// By which power of two a line of an operand of a product by fragments is scaled.
fn scale_of(item: u32, line: u32) -> f32 {
    return power_of(field_of(load_magnitudes(p.magnitudes_at + item * p.lines + min(line, p.lines - 1u))));
}
