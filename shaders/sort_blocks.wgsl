// The first stage of a stable sort along rows: a workgroup sorts a block of one row, or several whole short rows, by a bitonic network.
// Limited by workgroup memory: log^2(span) steps, each with a barrier.
const BLOCK: u32 = 1024u;
const GROUP: u32 = 256u;

var<workgroup> block_keys: array<Key, BLOCK>;
// The row within the block in the upper half, the position within the block in the lower one: no two are equal.
var<workgroup> tags: array<u32, BLOCK>;

fn is_before(a: u32, b: u32) -> bool {
    let tag_a = tags[a];
    let tag_b = tags[b];
    if (tag_a >> 16u) != (tag_b >> 16u) {
        return tag_a < tag_b;
    }
    let key_a = block_keys[a];
    let key_b = block_keys[b];
    if is_less(key_a, key_b) {
        return true;
    }
    return !is_less(key_b, key_a) && tag_a < tag_b;
}

fn exchange(a: u32, b: u32) {
    let key = block_keys[a];
    let tag = tags[a];
    block_keys[a] = block_keys[b];
    tags[a] = tags[b];
    block_keys[b] = key;
    tags[b] = tag;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = group.x + group.y * groups.x;
    let row = (block / p.blocks) * p.packed;
    let start = (block % p.blocks) * BLOCK;
    var count = 0u;
    if row < p.rows {
        count = min(min(p.packed, p.rows - row) * (p.length - start), BLOCK);
    }
    let base = row * p.length + start;
    for (var slot = lane; slot < p.span; slot += GROUP) {
        tags[slot] = 0xffffffffu;
        if slot < count {
            block_keys[slot] = key_of(base + slot);
            tags[slot] = ((slot / p.length) << 16u) | slot;
        }
    }
    for (var size = 2u; size <= p.span; size <<= 1u) {
        for (var step = size >> 1u; step > 0u; step >>= 1u) {
            workgroupBarrier();
            for (var pair = lane; pair < p.span / 2u; pair += GROUP) {
                let behind = pair & (step - 1u);
                let a = ((pair - behind) << 1u) | behind;
                let b = a + step;
                let is_rising = (a & size) == 0u;
                if is_before(b, a) == is_rising {
                    exchange(a, b);
                }
            }
        }
    }
    workgroupBarrier();
    for (var slot = lane; slot < count; slot += GROUP) {
        let tag = tags[slot];
        keys[p.keys_at + base + slot] = block_keys[slot];
        places[p.places_at + base + slot] = start + (tag & 0xffffu) - (tag >> 16u) * p.length;
    }
}
