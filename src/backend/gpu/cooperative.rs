//! Cooperative matrices: the switch that turns them on, whether an adapter has those that shaders want, and the block to be measured.
use super::catalog::matrix::{Block, Fragments};
use crate::error::{Error, Result};
use wgpu::{Adapter, CooperativeScalarType, Features};

/// The environment variable that lets products use cooperative matrices where the adapter has them; off unless set. "scalar": as they
/// would, but by threads; the sizes of a block: those of hardware, which take that block.
pub(super) const SWITCH: &str = "AGTAPE_COOPERATIVE";

/// Who multiplies fragments, if the switch is on: the hardware, or, where it is told to be so for a test, threads.
pub(super) fn fragments(adapter: &Adapter, features: Features) -> Option<Fragments> {
    if !features.contains(Features::SHADER_F16) {
        return None;
    }
    if std::env::var(SWITCH).is_ok_and(|v| v == "scalar") {
        return Some(Fragments::Scalar);
    }
    let is_on = features.contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX);
    (is_on && has_cooperative_matrices(adapter)).then_some(Fragments::Cooperative)
}

/// The block that products by fragments are to take, if the switch names one.
pub(super) fn block() -> Result<Option<Block>> {
    match std::env::var(SWITCH).unwrap_or_default().as_str() {
        "" | "0" | "1" | "scalar" => Ok(None),
        given => match Block::parse(given) {
            Some(block) => Ok(Some(block)),
            None => Err(Error::value(
                "device",
                format!(
                    "AGTAPE_COOPERATIVE is {given:?}; expected 0, 1, scalar, or a block's rows, columns, depth, and a subgroup's rows and \
                     columns, as 128,128,32,64,32"
                ),
            )),
        },
    }
}

/// What is told to the library for features that wgpu calls experimental, where one is used.
pub(super) fn experiments(features: Features) -> wgpu::ExperimentalFeatures {
    if features.contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
        // SAFETY: shaders read and write fragments within workgroup memory that they declare, in control flow that is the same for all.
        unsafe { wgpu::ExperimentalFeatures::enabled() }
    } else {
        wgpu::ExperimentalFeatures::disabled()
    }
}

/// Whether an adapter multiplies fragments as shaders want it: 16 x 16 halves into sums in f32, by subgroups that always have 32 threads.
fn has_cooperative_matrices(adapter: &Adapter) -> bool {
    let info = adapter.get_info();
    let fits = |p: &wgpu::CooperativeMatrixProperties| {
        let types = (p.ab_type, p.cr_type) == (CooperativeScalarType::F16, CooperativeScalarType::F32);
        types && (p.m_size, p.n_size, p.k_size) == (16, 16, 16)
    };
    (info.subgroup_min_size, info.subgroup_max_size) == (32, 32) && adapter.cooperative_matrix_properties().iter().any(fits)
}
