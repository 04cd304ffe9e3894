//! The graph: nodes as recipes with cached values, and who still needs them.
mod custom;
mod drop;
mod node;
mod pending;
mod record;
mod segment;
mod storage;
mod variable;

pub use custom::CustomRule;
pub use node::{Node, Out, Saved, Spec, Stage, State, Tensor, Value, next_id};
pub use pending::{is_pending_full, is_walk_full, pending_roots, walking};
pub use record::{GradState, Mark, Scope, TapeCore, record, record_clone, record_source, record_version, scope, set_place_hook};
pub use segment::{Figures, Segment};
pub use storage::{CpuPools, HostBuffer, Storage, borrowed_storage, cpu, persistent_storage};
pub use variable::{Variable, are_gradients_resident, set_default_gradients_resident, set_gradients_resident};
