//! The shaders that find out whether an adapter does what kernels rely on.
use super::super::text::{Elem, Source};

/// 16-bit floats in all, each converted once.
pub const HALVES: usize = 1 << 16;

/// What invocations of one workgroup know of their subgroups: three words each, its size, their place in it, and a bit for each step below
/// `least` by which they reach the neighbour that kernels mean.
pub fn subgroups(threads: u32, least: u32) -> Source {
    Source::new("probe of subgroups", shader!("probe_subgroups"))
        .writes("found", Elem::Word)
        .constant("THREADS", threads)
        .constant("LEAST", least)
}

/// Every 16-bit float as f32, and as many f32 rounded to 16 bits.
pub fn halves() -> Source {
    Source::new("probe of 16-bit floats", shader!("probe_halves"))
        .reads("halves", Elem::Half)
        .reads("floats", Elem::F32)
        .writes("widened", Elem::F32)
        .writes("rounded", Elem::Half)
}

/// Every specialisation.
pub fn all() -> Vec<Source> {
    let sizes = [(256, 4), (256, 32), (512, 8), (1024, 64)];
    sizes.map(|(threads, least)| subgroups(threads, least)).into_iter().chain([halves()]).collect()
}
