//! Every hand-written shader with all its specialisations. Shared with `build.rs`, which validates each of them.
use super::text::Source;

/// The text of a file under `shaders`.
macro_rules! shader {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/", $name, ".wgsl"))
    };
}

pub mod generate;
pub mod indexing;
pub mod movement;
pub mod random;
pub mod scan;
pub mod scatter;
pub mod sort;
pub mod update;

/// All of them.
pub fn all() -> Vec<Source> {
    [generate::all(), indexing::all(), movement::all(), random::all(), scan::all(), scatter::all(), sort::all(), update::all()]
        .concat()
}
