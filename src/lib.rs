//! agtape: training by automatic differentiation where the tape stores recipes and values are a cache.
//!
//! | module | what it owns |
//! |---|---|
//! | `error`, `device`, `dtype`, `shape`, `layout` | the words every other module uses |
//! | `pool` | device memory: generation-tagged handles, size classes, statistics |
//! | `backend` | the seam to devices: kernels as data; `backend::cpu` and `backend::gpu` run them |
//! | `graph` | nodes as recipes with cached values, and who still needs them |
//! | `plan` | from pending nodes to ordered launches with every buffer assigned; the plan cache |
//! | `tape` | recording, the backward walk, the memory report |
//! | `checkpoint` | segments: what they keep, and the replay of what they dropped |
//! | `ops` | each op's shape rule, saved set and gradient, by family |
//! | `rng` | counter-based random numbers |
//! | `py` | the Python binding |
pub mod backend;
pub mod checkpoint;
pub mod device;
pub mod dtype;
pub mod error;
pub mod graph;
pub mod layout;
pub mod ops;
pub mod plan;
pub mod pool;
#[cfg(feature = "python")]
mod py;
pub mod rng;
pub mod shape;
pub mod tape;
