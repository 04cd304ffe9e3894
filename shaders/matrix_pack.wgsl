// An operand of a product by fragments as halves: for each tile of EXTENT lines (rows of the left operand, columns of the right one) and
// each block of DEPTH terms of the sums a chunk without gaps, 0 beyond the operand. Memory limits it: neighbouring threads read neighbours
// and write neighbours, and workgroup memory turns around what lies otherwise. A workgroup packs LINES x TERMS elements, eight a thread.
const PITCH: u32 = TERMS + 1u;
const PART: u32 = EXTENT * DEPTH / 4u;

var<workgroup> elements: array<f32, LINES * PITCH>;
var<workgroup> scales: array<f32, LINES>;

// The line and the term of the i-th element of the workgroup's part in the order of memory.
fn place(i: u32) -> vec2<u32> {
    return select(vec2<u32>(i % LINES, i / LINES), vec2<u32>(i / TERMS, i % TERMS), ALONG_K == 1u);
}

fn element(start: u32, at: vec2<u32>) -> f32 {
    let is_in = at.x < p.lines && at.y < p.terms;
    let v = load_x(start + select(0u, at.x * p.x_line + at.y * p.x_term, is_in));
    return select(0.0, v, is_in);
}

fn keep(i: u32, v: f32) {
    let at = place(i);
    elements[at.x * PITCH + at.y] = v;
}

// Four elements beside each other in the chunk.
fn pack(item: u32, first: vec2<u32>, i: u32) {
    let is_left = IS_LEFT == 1u;
    let across = vec2<u32>(i % (LINES / 4u) * 4u, i / (LINES / 4u));
    let own = select(across, vec2<u32>(i / (TERMS / 4u), i % (TERMS / 4u) * 4u), is_left);
    let line = first.x + own.x;
    let term = first.y + own.y;
    if line >= p.tiles * EXTENT || term >= p.blocks * DEPTH {
        return;
    }
    let origin = own.x * PITCH + own.y;
    let next = select(PITCH, 1u, is_left);
    let v = vec4<f32>(elements[origin], elements[origin + next], elements[origin + 2u * next], elements[origin + 3u * next]);
    var scale = vec4<f32>(scales[own.x]);
    if !is_left {
        scale = vec4<f32>(scale.x, scales[own.x + 1u], scales[own.x + 2u], scales[own.x + 3u]);
    }
    let chunk = (item * p.tiles + line / EXTENT) * p.blocks + term / DEPTH;
    let within = select(term % DEPTH * EXTENT + line % EXTENT, line % EXTENT * DEPTH + term % DEPTH, is_left);
    put_halves(p.to_at + chunk * (PARTS * PART) + within / 4u, v * scale);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nw: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let number = wid.x + wid.y * nw.x;
    let down = (p.tiles * EXTENT + LINES - 1u) / LINES;
    let over = (p.blocks * DEPTH + TERMS - 1u) / TERMS;
    if number >= down * over {
        return;
    }
    // Neighbours in memory are the work of neighbours.
    let part = select(vec2<u32>(number % down, number / down), vec2<u32>(number / over, number % over), ALONG_K == 1u);
    let first = part * vec2<u32>(LINES, TERMS);
    let i = p.from_item + wid.z;
    let i2 = i % p.size2;
    let i1 = i / p.size2 % p.size1;
    let i0 = i / p.size2 / p.size1;
    let start = p.x_at + p.x_plus + i0 * p.x0 + i1 * p.x1 + i2 * p.x2;
    let item = p.base + i;
    // Eight loads of a thread are on their way at a time.
    let a = vec4<f32>(
        element(start, first + place(t)),
        element(start, first + place(t + 256u)),
        element(start, first + place(t + 512u)),
        element(start, first + place(t + 768u)),
    );
    let b = vec4<f32>(
        element(start, first + place(t + 1024u)),
        element(start, first + place(t + 1280u)),
        element(start, first + place(t + 1536u)),
        element(start, first + place(t + 1792u)),
    );
    if t < LINES {
        scales[t] = scale_of(item, first.x + t);
    }
    keep(t, a.x);
    keep(t + 256u, a.y);
    keep(t + 512u, a.z);
    keep(t + 768u, a.w);
    keep(t + 1024u, b.x);
    keep(t + 1280u, b.y);
    keep(t + 1536u, b.z);
    keep(t + 1792u, b.w);
    workgroupBarrier();
    pack(item, first, t);
    pack(item, first, t + 256u);
}
