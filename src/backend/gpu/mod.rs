//! The GPU backend: kernels as WGSL text and dispatches as data, run through wgpu.
mod adapter;
mod bits;
// `all` is for `build.rs` and the tests.
#[allow(dead_code)]
mod catalog;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod check;
mod codegen;
mod cooperative;
mod derive;
mod device;
mod epilogue;
mod execute;
mod family;
mod launch;
mod pipeline;
mod probe;
mod ready;
mod refusal;
mod stopwatch;
mod submit;
mod text;
mod ticket;
mod transfer;
mod trouble;
mod work;

pub use adapter::{AdapterInfo, adapter_count, adapter_infos};
pub use device::{Buffer, Gpu, close, gpu, is_open, opened, save_all};
pub use execute::{Operands, Place, Recording};
pub use launch::{Caps, Prepared, Slot, View, prepare};
pub use ready::Ready;
pub use stopwatch::settle_laps;
pub use trouble::{Fault, inject, spoil};
pub use work::WorkCounts;
