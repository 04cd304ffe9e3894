//! The graph: nodes as recipes with cached values, and who still needs them.
mod budget;
mod buffer;
mod custom;
mod drop;
mod log;
mod node;
mod pending;
mod placing;
mod probe;
mod record;
mod saved;
mod segment;
mod storage;
mod variable;

pub use budget::{Budget, GivenUp, Obeying, Spent, go_on_obeying, is_any_limited, limiting_tapes, obey, set_make_room};
pub use buffer::{Buffer, Label, MAPPED_BYTES, mapped_bytes, set_memory_limit};
pub use custom::{CustomRule, Fingerprint};
pub use log::Log;
pub use node::{Node, Out, Spec, Stage, State, Tensor, Value, next_id};
pub use pending::{Forecast, is_forecasting, is_pending_full, is_walk_full, outside_walk, pending_roots, walking};
pub use placing::{Placing, is_any_transfer_pending, placed, settle};
pub use probe::{Probe, is_granted, is_wanted_in};
pub(crate) use record::may_fail;
pub use record::{
    GradState, Mark, Scope, TapeCore, log_leaf, record, record_clone, record_source, record_version, scope, set_place_hook,
};
pub use saved::Saved;
pub use segment::{Figures, HeldValue, Segment, work};
pub use storage::{
    DevicePools, PoolsGuard, Storage, borrowed_storage, describe, new_storage, persistent_storage, pooled_devices, pools,
    with_holders,
};
pub use variable::{Variable, are_gradients_resident, set_default_gradients_resident, set_gradients_resident};
