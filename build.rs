//! Validates every hand-written shader in every specialisation: a broken one fails the build.
#[path = "src/backend/gpu/catalog/mod.rs"]
#[allow(dead_code)]
mod catalog;
#[path = "src/backend/gpu/text.rs"]
#[allow(dead_code)]
mod text;

use naga::front::wgsl::parse_str;
use naga::valid::{Capabilities, ValidationFlags, Validator};

fn main() {
    for path in ["shaders", "src/backend/gpu/catalog", "src/backend/gpu/text.rs", "build.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let mut broken = Vec::new();
    for source in catalog::all() {
        for is_shared in [false, true] {
            let text = source.text(is_shared);
            let found = match parse_str(&text) {
                Err(error) => Err(error.emit_to_string(&text)),
                Ok(module) => Validator::new(ValidationFlags::all(), Capabilities::all())
                    .validate(&module)
                    .map(|_| ())
                    .map_err(|error| error.emit_to_string(&text)),
            };
            if let Err(error) = found {
                broken.push(format!("{} (consts {:?}): {error}", source.name, source.consts));
            }
        }
    }
    if !broken.is_empty() {
        for line in broken.iter().flat_map(|b| b.lines()) {
            println!("cargo::error={line}");
        }
        std::process::exit(1);
    }
}
