//! Owns device memory: pools of storages behind checked handles, the cache of free buffers they share, and their statistics.

mod cache;
mod census;
mod error;
mod handle;
mod leaving;
#[cfg(test)]
mod model_test;
mod owners;
mod parts;
mod size_class;
mod slots;
mod stats;
mod storages;

pub use cache::BufferCache;
pub use error::PoolError;
pub use handle::{Handle, PoolId, PoolKind};
pub use owners::{Allocator, Pools, Returned};
pub use parts::WholeId;
pub use size_class::{class_bytes, class_index, largest_class};
pub use stats::{ScopeId, Stats, own_bytes};
