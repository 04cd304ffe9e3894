//! Hand-written shaders in the languages of the other platforms, and what their files must look like.
use super::super::text::{Elem, Source};
use super::all;
use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

/// The extension by which subgroups multiply fragments.
const COOPERATIVE: &str = "wgpu_cooperative_matrix";

fn validated(source: &Source, is_shared: bool) -> (naga::Module, ModuleInfo) {
    let text = source.text(is_shared);
    let module = naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{}", e.emit_to_string(&text)));
    // 64-bit integers and 16-bit floats are what an adapter may lack; shaders that use them bind some.
    let has_long = source.bindings.iter().any(|b| b.elem == Elem::I64);
    // Subgroups too are asked for before.
    let exchange = if text.contains("subgroupShuffle") { Capabilities::SUBGROUP } else { Capabilities::empty() };
    let long = if has_long { Capabilities::SHADER_INT64 } else { Capabilities::empty() };
    // And halves, and fragments of them.
    let has = |extension: &str| source.enables.contains(&extension);
    let has_half = has("f16") || source.bindings.iter().any(|b| b.elem.stored() == "f16");
    let half = if has_half { Capabilities::SHADER_FLOAT16 } else { Capabilities::empty() };
    let fragments = if has(COOPERATIVE) { Capabilities::COOPERATIVE_MATRIX } else { Capabilities::empty() };
    let info = Validator::new(
        ValidationFlags::all(),
        Capabilities::IMMEDIATES | Capabilities::SHADER_FLOAT16_IN_FLOAT32 | long | exchange | half | fragments,
    )
    .validate(&module)
    .unwrap_or_else(|e| panic!("{}: {}", source.name, e.emit_to_string(&text)));
    (module, info)
}

fn to_metal(source: &Source, module: &naga::Module, info: &ModuleInfo) -> String {
    let entry = msl::EntryPointResources { immediates_buffer: Some(30), sizes_buffer: Some(29), ..Default::default() };
    let options = msl::Options {
        lang_version: (2, 4),
        per_entry_point_map: [("main".to_owned(), entry)].into(),
        fake_missing_bindings: true,
        ..Default::default()
    };
    let (text, reflection) = msl::write_string(module, info, &options, &msl::PipelineOptions::default()).unwrap();
    assert!(reflection.entry_point_names.iter().all(Result::is_ok), "{}: {:?}", source.name, reflection.entry_point_names);
    text
}

fn to_direct3d(source: &Source, module: &naga::Module, info: &ModuleInfo) -> String {
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_2,
        fake_missing_bindings: true,
        immediates_target: Some(hlsl::BindTarget { space: 1, ..Default::default() }),
        ..Default::default()
    };
    let mut text = String::new();
    let reflection = hlsl::Writer::new(&mut text, &options, &hlsl::PipelineOptions::default()).write(module, info, None).unwrap();
    assert!(reflection.entry_point_names.iter().all(Result::is_ok), "{}: {:?}", source.name, reflection.entry_point_names);
    text
}

#[test]
fn test_g04_every_shader_translates_to_every_shading_language() {
    let sources = all();
    assert!(sources.len() > 100);
    for source in &sources {
        for is_shared in [false, true] {
            let (module, info) = validated(source, is_shared);
            assert!(!spv::write_vec(&module, &info, &spv::Options::default(), None).unwrap().is_empty());
            assert!(to_metal(source, &module, &info).contains("kernel void"), "{}", source.name);
            // Direct3D has no fragments that the translator knows: adapters there say that they have none.
            let is_portable = !source.enables.contains(&COOPERATIVE);
            assert!(!is_portable || to_direct3d(source, &module, &info).contains("numthreads"), "{}", source.name);
        }
    }
}

#[test]
fn test_g03_workgroups_and_immediates_are_within_what_every_adapter_has() {
    for source in all() {
        let (module, _) = validated(&source, false);
        let threads: u32 = module.entry_points[0].workgroup_size.iter().product();
        // Rows are shared by more threads, and probes look at more, where the adapter has workgroups of so many.
        let size = if source.name.starts_with("probe") { "THREADS" } else { "LANES" };
        let widest = source.consts.iter().find(|(name, _)| *name == size).map_or(0, |&(_, lanes)| lanes);
        // Blocks by fragments are chosen by what adapters with fragments have.
        let most = if source.enables.contains(&COOPERATIVE) { 512 } else { 256 };
        assert!(threads <= widest.max(most), "{}: {threads} threads", source.name);
        // 128 bytes of immediates, and products by fragments are chosen by what there is.
        let most = if source.name == "matmul by fragments" { 64 } else { 32 };
        assert!(source.words.len() <= most, "{}: {} numbers", source.name, source.words.len());
        assert!(source.bindings.len() <= 8, "{}: {} bindings", source.name, source.bindings.len());
    }
}
