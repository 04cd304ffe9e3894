// Runs of one target that cross chunks: a thread for each chunk and column adds the heads of the chunks behind to its tail, in order.
// Limited by latency where one target gets most of the rows.
const MISSING: u32 = 0xffffffffu;

fn each(thread: u32) {
    let chunk = thread / p.width;
    let column = thread - chunk * p.width;
    let first = chunk * p.length;
    if first >= p.places || p.places - first <= p.length {
        return;
    }
    var next = first + p.length;
    let key = load_keys(p.keys_at + next - 1u);
    if key == MISSING || load_keys(p.keys_at + next) != key {
        return;
    }
    // The run belongs to the chunk in which it begins.
    if chunk > 0u {
        if load_keys(p.keys_at + first - 1u) == key {
            return;
        }
    }
    var sum = load_tails(p.tails_at + thread);
    var head = thread + p.width;
    while next < p.places {
        if load_keys(p.keys_at + next) != key {
            break;
        }
        sum = join(sum, load_heads(p.heads_at + head));
        head += p.width;
        next += p.length;
    }
    out[p.out_at + key * p.width + column] = sum;
}
