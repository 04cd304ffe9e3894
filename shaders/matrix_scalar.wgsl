// What 32 threads do in place of a fragment of 16 x 16 results: each has 8 of them, of one column.
alias Fragment = array<f32, 8>;

// A number of turns that compilers do not know: loops that they unroll take some of them minutes.
fn whole(turns: u32) -> u32 {
    return turns * min(p.m, 1u);
}

fn scale_fragment(c: ptr<function, Fragment>, by: f32) {
    for (var e = 0u; e < whole(8u); e++) {
        (*c)[e] *= by;
    }
}

fn add_fragment(c: ptr<function, Fragment>, d: ptr<function, Fragment>) {
    for (var e = 0u; e < whole(8u); e++) {
        (*c)[e] += (*d)[e];
    }
}

fn store_fragment(c: ptr<function, Fragment>, at: u32, pitch: u32, lane: u32) {
    for (var e = 0u; e < whole(8u); e++) {
        stage[at + (lane / 16u + 2u * e) * pitch + lane % 16u] = (*c)[e];
    }
}
