//! Pipelines: compiled once a shader text, kept in memory, and on disk where the adapter supports it; and cached bind groups.
use super::device::is_on;
use super::refusal::guarded;
use super::text::Source;
use super::trouble::{Fault, strikes};
use crate::error::Result;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use wgpu::{
    BindGroup, BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType, BufferBindingType,
    ComputePipelineDescriptor, Features, PipelineCache, PipelineLayoutDescriptor, ShaderModuleDescriptor, ShaderRuntimeChecks,
    ShaderSource, ShaderStages,
};

/// Bind groups kept in each of two generations.
const MAX_GROUPS: usize = 8192;
/// New pipelines after which the cache on disk is written again.
const SAVE_AFTER: usize = 16;

/// A compiled shader.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub raw: wgpu::ComputePipeline,
    pub layout: BindGroupLayout,
    /// The shader's.
    name: &'static str,
    /// A number among the pipelines of the process, for the keys of bind groups.
    pub id: u32,
}

/// A bind group's key: the pipeline, and for each binding buffer, start and size.
pub(super) type GroupKey = SmallVec<[u64; 25]>;

#[derive(Debug, Default)]
struct Groups {
    young: FxHashMap<GroupKey, BindGroup>,
    old: FxHashMap<GroupKey, BindGroup>,
}

/// The pipelines and bind groups of one device.
#[derive(Debug)]
pub(super) struct Pipelines {
    made: Mutex<FxHashMap<String, Arc<Pipeline>>>,
    groups: Mutex<Groups>,
    cache: Option<PipelineCache>,
    file: Option<PathBuf>,
    unsaved: AtomicUsize,
    /// Shaders check every index and division.
    pub is_checked: bool,
}

static NEXT_PIPELINE: AtomicU32 = AtomicU32::new(1);

/// Where pipelines are kept on disk: `AGTAPE_CACHE_DIR`, else the user's cache folder.
fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("AGTAPE_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME").map(|d| d.join("agtape")))
        .or_else(|| set("LOCALAPPDATA").map(|d| d.join("agtape")))
        .or_else(|| set("HOME").map(|d| d.join(".cache").join("agtape")))
}

impl Pipelines {
    pub fn new(device: &wgpu::Device, name: &str, info: &wgpu::AdapterInfo, features: Features) -> Pipelines {
        let mut pipelines = Pipelines {
            made: Mutex::default(),
            groups: Mutex::default(),
            cache: None,
            file: None,
            unsaved: AtomicUsize::new(0),
            is_checked: cfg!(test) || is_on("AGTAPE_CHECKED"),
        };
        let key = wgpu::util::pipeline_cache_key(info);
        if let (true, Some(key)) = (features.contains(Features::PIPELINE_CACHE), key) {
            pipelines.file = folder().map(|d| d.join(key));
            let data = pipelines.file.as_ref().and_then(|f| std::fs::read(f).ok());
            let descriptor = wgpu::PipelineCacheDescriptor { label: None, data: data.as_deref(), fallback: true };
            // SAFETY: the data came from `get_data` of this library, in a folder of this user; the driver checks that it fits.
            let make = || unsafe { device.create_pipeline_cache(&descriptor) };
            // Without one pipelines are compiled anew in every process.
            pipelines.cache = guarded(device, name, "a cache of pipelines", make).ok();
        }
        pipelines
    }

    /// The pipeline of a shader, compiled at the first call. `is_shared` as in `Source::text`.
    pub fn get(&self, (device, name): (&wgpu::Device, &str), source: &Source, is_shared: bool) -> Result<Arc<Pipeline>> {
        let text = source.text(is_shared);
        if let Some(pipeline) = self.made.lock().get(&text) {
            return Ok(pipeline.clone());
        }
        let what = format!("the kernel {} could not be compiled", source.name);
        let pipeline = Arc::new(guarded(device, name, &what, || self.compile(device, source, &text, is_shared))?);
        self.made.lock().insert(text, pipeline.clone());
        if self.unsaved.fetch_add(1, Relaxed) + 1 >= SAVE_AFTER {
            self.save();
        }
        Ok(pipeline)
    }

    fn compile(&self, device: &wgpu::Device, source: &Source, text: &str, is_shared: bool) -> Pipeline {
        let text = if strikes(Fault::Compile) { "no shader" } else { text };
        let descriptor = ShaderModuleDescriptor { label: Some(source.name), source: ShaderSource::Wgsl(text.into()) };
        let module = if self.is_checked {
            device.create_shader_module(descriptor)
        } else {
            // SAFETY: kernels check their own bounds; tests run them with checks on.
            unsafe { device.create_shader_module_trusted(descriptor, ShaderRuntimeChecks::unchecked()) }
        };
        let entries: Vec<_> = source
            .bindings
            .iter()
            .enumerate()
            .map(|(i, b)| BindGroupLayoutEntry {
                binding: i as u32,
                visibility: ShaderStages::COMPUTE,
                ty: BindingType::Buffer {
                    ty: BufferBindingType::Storage { read_only: !(b.writes || is_shared) },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let layout = device.create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &entries });
        let whole = device.create_pipeline_layout(&PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: source.words.len() as u32 * 4,
        });
        let raw = device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: Some(source.name),
            layout: Some(&whole),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[],
                zero_initialize_workgroup_memory: self.is_checked,
            },
            cache: self.cache.as_ref(),
        });
        Pipeline { raw, layout, name: source.name, id: NEXT_PIPELINE.fetch_add(1, Relaxed) }
    }

    /// The bind group with this key, made by `make` if it is not kept.
    pub fn group(&self, key: &GroupKey, make: impl FnOnce() -> Result<BindGroup>) -> Result<BindGroup> {
        let mut groups = self.groups.lock();
        if let Some(group) = groups.young.get(key) {
            return Ok(group.clone());
        }
        let group = match groups.old.remove(key) {
            Some(group) => group,
            None => make()?,
        };
        if groups.young.len() >= MAX_GROUPS {
            groups.old = std::mem::take(&mut groups.young);
        }
        groups.young.insert(key.clone(), group.clone());
        Ok(group)
    }

    /// How many pipelines have been compiled.
    pub fn count(&self) -> usize {
        self.made.lock().len()
    }

    /// The shaders that they are of, each once.
    pub fn names(&self) -> BTreeSet<&'static str> {
        self.made.lock().values().map(|pipeline| pipeline.name).collect()
    }

    /// Writes the cache to disk, by way of a temporary name; where that fails nothing is lost but time.
    pub fn save(&self) {
        if self.unsaved.swap(0, Relaxed) == 0 {
            return;
        }
        let (Some(cache), Some(file)) = (&self.cache, &self.file) else { return };
        let (Some(data), Some(folder)) = (cache.get_data(), file.parent()) else { return };
        let part = file.with_extension(format!("{}.part", std::process::id()));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&part, data));
        if written.and_then(|()| std::fs::rename(&part, file)).is_err() {
            let _ = std::fs::remove_file(&part);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::adapter::adapters;
    use super::super::catalog;
    use super::super::check::device;
    use super::*;

    /// Pipelines of the tests' device beside its own, which nothing keeps on disk.
    fn pipelines(device: &wgpu::Device) -> Pipelines {
        Pipelines::new(device, "gpu", &adapters()[0].get_info(), Features::empty())
    }

    #[test]
    fn test_g04_bind_groups_of_long_ago_go_and_those_in_use_stay() {
        let gpu = device();
        let pipelines = pipelines(&gpu.device);
        let layout = gpu.device.create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &[] });
        let made = AtomicUsize::new(0);
        let ask = |key: u64| {
            let make = || {
                made.fetch_add(1, Relaxed);
                Ok(gpu.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &[] }))
            };
            pipelines.group(&SmallVec::from_slice(&[key]), make).unwrap();
            made.load(Relaxed)
        };
        let often = 0;
        ask(often);
        for key in 1..=3 * MAX_GROUPS as u64 {
            ask(key);
            // Asked for now and then, it is made once.
            if key % 1000 == 0 {
                assert_eq!(ask(often), 1 + key as usize);
            }
        }
        assert_eq!(ask(1), 2 + 3 * MAX_GROUPS);
        let groups = pipelines.groups.lock();
        assert!(groups.young.len() <= MAX_GROUPS && groups.old.len() <= MAX_GROUPS);
    }

    #[test]
    fn test_a_shader_is_compiled_once_for_buffers_that_it_shares_and_once_for_others() {
        let gpu = device();
        let pipelines = pipelines(&gpu.device);
        let sources = catalog::all();
        let reads = |s: &&Source| s.bindings.iter().any(|b| !b.writes) && s.enables.is_empty();
        let source = sources.iter().find(reads).unwrap();
        let get = |is_shared| pipelines.get((&gpu.device, &gpu.name), source, is_shared).unwrap();
        let (apart, shared) = (get(false), get(true));
        assert!(Arc::ptr_eq(&apart, &get(false)) && Arc::ptr_eq(&shared, &get(true)));
        assert_ne!(apart.id, shared.id);
        assert_eq!((pipelines.count(), pipelines.names()), (2, BTreeSet::from([source.name])));
        assert!(pipelines.file.is_none() && pipelines.cache.is_none());
    }
}
