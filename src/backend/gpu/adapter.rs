//! Which adapters there are, in the order in which they are numbered: real ones first, the fastest kind before the others.
use std::sync::LazyLock;
use wgpu::{Adapter, Backends, DeviceType, Instance, InstanceDescriptor, InstanceFlags};

/// What is known of an adapter without opening it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdapterInfo {
    /// As the driver gives it.
    pub name: String,
    /// Vulkan, Metal or Dx12.
    pub backend: String,
    /// The driver and its version.
    pub driver: String,
    /// discrete, integrated, virtual, software or other.
    pub kind: &'static str,
    /// A processor that plays a GPU.
    pub is_software: bool,
}

static ADAPTERS: LazyLock<Vec<Adapter>> = LazyLock::new(|| {
    let mut descriptor = InstanceDescriptor::new_without_display_handle();
    descriptor.backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    descriptor.flags = InstanceFlags::empty();
    let backends = descriptor.backends;
    let mut found = pollster::block_on(Instance::new(descriptor).enumerate_adapters(backends));
    found.retain(|a| a.features().contains(wgpu::Features::IMMEDIATES));
    found.sort_by_key(|a| rank(a.get_info().device_type));
    // A test switch: one adapter under several numbers, as if there were several.
    let copies = std::env::var("AGTAPE_GPU_COPIES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    found.iter().flat_map(|a| std::iter::repeat_n(a.clone(), copies)).collect()
});

fn rank(kind: DeviceType) -> u8 {
    match kind {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    }
}

/// The adapters; looked for at the first call.
pub(super) fn adapters() -> &'static [Adapter] {
    &ADAPTERS
}

/// How many adapters there are.
pub fn adapter_count() -> usize {
    ADAPTERS.len()
}

/// What is known of each adapter.
pub fn adapter_infos() -> Vec<AdapterInfo> {
    ADAPTERS.iter().map(describe).collect()
}

pub(super) fn describe(adapter: &Adapter) -> AdapterInfo {
    let info = adapter.get_info();
    AdapterInfo {
        name: info.name,
        backend: format!("{:?}", info.backend),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        kind: match info.device_type {
            DeviceType::DiscreteGpu => "discrete",
            DeviceType::IntegratedGpu => "integrated",
            DeviceType::VirtualGpu => "virtual",
            DeviceType::Cpu => "software",
            DeviceType::Other => "other",
        },
        is_software: info.device_type == DeviceType::Cpu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_adapters_have_the_first_numbers_and_the_fastest_kind_before_the_others() {
        use DeviceType::*;
        assert!([DiscreteGpu, IntegratedGpu, VirtualGpu, Other, Cpu].map(rank).is_sorted_by(|a, b| a < b));
        let kinds: Vec<u8> = adapters().iter().map(|a| rank(a.get_info().device_type)).collect();
        assert!(kinds.is_sorted());
        assert!(adapter_infos().iter().all(|a| a.is_software == (a.kind == "software")));
    }
}
