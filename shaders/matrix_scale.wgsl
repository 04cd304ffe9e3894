// Rows of the left and columns of the right operand of a product of halves are scaled by powers of two, so that their largest magnitudes,
// which a reduction found before, lie just below 2^15.

// Of a magnitude: the exponent field of the power of two; 255 where it is no number.
fn field_of(magnitude: f32) -> u32 {
    let field = (bitcast<u32>(magnitude) >> 23u) & 255u;
    return select(min(268u - field, 253u), 255u, field == 255u);
}

fn power_of(field: u32) -> f32 {
    return bitcast<f32>(field << 23u);
}
