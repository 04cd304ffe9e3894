//! Every hand-written shader with all its specialisations. Shared with `build.rs`, which validates each of them.
use super::text::Source;

/// All of them.
pub fn all() -> Vec<Source> {
    Vec::new()
}
