// One number in every word of a tensor, or two in turn for 8-byte elements.
// Limited by the memory's write bandwidth.

fn each(word: u32) {
    out[p.out_at + word] = select(p.low, p.high, (word & 1u) == 1u);
}
