// The gradient of element i of a parameter, which lies row-major; the gradient's rows may lie anywhere, often along its columns.
fn gradient(i: u32) -> f32 {
    let row = i / p.g_columns;
    let column = i - row * p.g_columns;
    return load_g(p.g_at + row * p.g_row_step + column * p.g_step);
}
