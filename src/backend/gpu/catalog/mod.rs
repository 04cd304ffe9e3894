//! Every hand-written shader with all its specialisations. Shared with `build.rs`, which validates each of them.
use super::text::Source;

/// The text of a file under `shaders`.
macro_rules! shader {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/", $name, ".wgsl"))
    };
}

pub mod arg_extreme;
pub mod cross_entropy;
pub mod generate;
pub mod indexing;
pub mod matmul;
pub mod matrix;
pub mod movement;
pub mod norm;
pub mod probe;
pub mod random;
pub mod rows;
pub mod scan;
pub mod scatter;
pub mod softmax;
pub mod sort;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
pub mod tile;
pub mod update;

/// A shader whose body says what is done at each place below the number `count`: `items` of them a thread.
fn each(name: &'static str, body: &str, items: u32) -> Source {
    Source::new(name, &[body, shader!("each")].concat()).constant("ITEMS", items)
}

/// All of them.
pub fn all() -> Vec<Source> {
    let moves = [generate::all(), indexing::all(), movement::all(), random::all(), scan::all(), scatter::all(), sort::all()];
    let computes =
        [arg_extreme::all(), cross_entropy::all(), matmul::all(), matrix::all(), norm::all(), softmax::all(), update::all()];
    let probes = probe::all();
    [moves.concat(), computes.concat(), probes].concat()
}
