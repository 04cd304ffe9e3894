// An element written where nothing else lies in its word.

fn store_out(i: u32, value: Value) {
    out[i] = value;
}
