// An element written into the word that it shares with others, whatever other threads make of those meanwhile.
// Limited by atomics: chosen where few elements are written, or where scratch with a word for each has no room.

fn store_out(i: u32, value: Value) {
    let per_word = 32u / BITS;
    let shift = BITS * (i % per_word);
    let mask = ((1u << BITS) - 1u) << shift;
    atomicAnd(&out[i / per_word], ~mask);
    atomicOr(&out[i / per_word], (u32(value) << shift) & mask);
}
