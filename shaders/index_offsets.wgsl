// Offsets that index tensors name: each pass adds what one of them contributes; a bad index is reported and marked.
// Negative ones count from the end where p.wrap is p.size, and are bad where it is 0. Limited by memory: an index and an offset for each position.
const MISSING: u32 = 0xffffffffu;

fn each(place: u32) {
    // Positions of an index along an axis stand for other axes as well: those before it and those behind it.
    let before = place / p.block;
    let behind = place % p.inner;
    var offset = before * p.block_step + behind;
    if p.is_first == 0u {
        offset = offsets[p.offsets_at + place];
    }
    let raw = index_idx(p.idx_at + place);
    let index = u32(select(raw, raw + i32(p.wrap), raw < 0));
    if index >= p.size {
        atomicMax(&flag[0], p.ticket);
        offset = MISSING;
    } else if offset != MISSING {
        offset += index * p.step;
    }
    offsets[p.offsets_at + place] = offset;
}
