//! Plans: from the pending nodes that an evaluation needs to an ordered list of launches with every buffer assigned.
mod arena;
mod budget;
mod cache;
mod choose;
mod cost;
mod epilogue;
mod evaluate;
mod flow;
mod forecast;
mod fuse;
mod give_up;
mod key;
mod lend;
mod listing;
mod lives;
mod lower;
mod make;
mod memory;
mod observe;
mod place;
mod prepare;
mod profile;
mod program;
mod rebuild;
mod refine;
mod run;
mod run_gpu;
mod saved;
mod share;
mod timing;
mod transfer;
mod tree;
mod vary;
mod work;

pub use cache::{CacheStats, cache_stats, clear_cache};
pub use choose::make_room;
pub use cost::LaunchCounts;
pub use evaluate::{
    LastPlan, after_fork, before_fork, before_fork_pools, check_budget, evaluate, evaluate_pending, last_launches, last_plan,
    lock_engine, try_evaluate_pending,
};
pub use forecast::{PlanForecast, forecast};
pub use listing::{LaunchRow, OperandRow};
pub use lives::Life;
pub use observe::{LaunchEvent, Observer, observe};
pub use timing::{Evaluation, LaunchTime, NamedReplay, Profile, Span, Stage, name_replay};
pub use transfer::{read_bytes, write_bytes};

use crate::backend::kind::Precision;
use crate::backend::{Kernel, Prepared};
use crate::dtype::DType;
use crate::layout::Layout;
use crate::shape::Shape;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;

/// Where a value of a plan lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loc {
    /// A value that existed before.
    Leaf(u32),
    /// A value that the plan computes.
    Temp(u32),
    /// A number among the plan's args.
    Scalar(u32),
}

/// A tensor that a launch reads or writes. For leaves the layout's offset comes on top of the leaf's own.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub loc: Loc,
    pub layout: Layout,
    pub dtype: DType,
}

/// One kernel launch.
#[derive(Debug)]
pub(crate) struct Launch {
    pub kernel: Kernel,
    /// The iteration shape.
    pub shape: Shape,
    pub ins: Vec<Operand>,
    /// Outputs; the last `scratch` of them are memory that the kernel alone needs.
    pub outs: Vec<Operand>,
    /// How many.
    pub scratch: usize,
    /// Positions among the plan's args.
    pub args: Vec<u32>,
    /// The node it stands for, for messages.
    pub node: u32,
}

impl Launch {
    /// What it computes.
    pub fn results(&self) -> &[Operand] {
        &self.outs[..self.outs.len() - self.scratch]
    }
}

/// Where a temporary's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A buffer of the plan.
    Buffer(u32),
    /// So many bytes into the memory that temporaries share.
    Arena(usize),
    /// So many bytes into a buffer of the plan whose own value is written later.
    Lent { buffer: u32, offset: usize },
    /// So many bytes into a buffer of the plan, the common one after all others, in which values that outlive it lie beside each other: a part
    /// of so many bytes.
    Part { buffer: u32, offset: usize, bytes: usize },
    /// The storage of a leaf that nobody else needs: written in place.
    Leaf(u32),
}

/// Bytes of temporaries that begin with a launch, and that end after it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub born: usize,
    pub dead: usize,
}

/// A value that outlives the plan.
#[derive(Debug)]
pub(crate) struct Kept {
    pub node: u32,
    pub out: u32,
    pub loc: Loc,
    pub layout: Arc<Layout>,
}

/// A plan: what one evaluation runs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub key: Vec<u64>,
    pub launches: Vec<Launch>,
    pub prepared: Vec<Arc<Prepared>>,
    pub places: Vec<Place>,
    /// Bytes of each buffer's size class.
    pub buffers: Vec<usize>,
    /// Bytes in which temporaries lie at offsets; 0 if there are none.
    pub arena: usize,
    /// Bytes of each of the buffers that these are made of, but for the last one.
    pub page: usize,
    /// Bytes that come and go, launch by launch.
    pub steps: Vec<Step>,
    /// The highest sum of living temporaries.
    pub peak: usize,
    pub kept: Vec<Kept>,
    /// Whether it overwrites leaves: then it is not interrupted.
    pub is_update: bool,
    /// Units of work: operations of products, and 4 for each element moved.
    pub work: u64,
    /// Work of every launch once.
    pub plain_work: u64,
    /// How many launches compute again what was dropped, and which.
    pub rebuilds: usize,
    pub repeats: Vec<u32>,
}

impl Plan {
    /// Bytes of the buffers that temporaries share.
    pub fn pages(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.arena.div_ceil(self.page)).map(|at| self.page.min(self.arena - at * self.page))
    }

    /// Bytes of all its buffers.
    pub fn buffer_bytes(&self) -> usize {
        self.buffers.iter().sum::<usize>() + self.arena
    }
}

/// Options that change plans; `ag.options`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanOptions {
    /// Fuse elementwise chains.
    pub fuse: bool,
    /// Keep and reuse plans.
    pub cache: bool,
    /// Check every result for NaN and infinity (one op a launch).
    pub anomaly: bool,
    /// Results are the same bits every time; what may not be is never computed twice.
    pub deterministic: bool,
    /// How exact products of f32 are on an adapter; each keeps what is in force when it is recorded.
    pub precision: Precision,
}

/// What every thread starts from.
static DEFAULTS: Mutex<PlanOptions> =
    Mutex::new(PlanOptions { fuse: true, cache: true, anomaly: false, deterministic: true, precision: Precision::Highest });

thread_local! {
    /// Copied from the defaults when a thread first asks.
    static OPTIONS: Cell<PlanOptions> = Cell::new(*DEFAULTS.lock());
}

/// The options in force on this thread.
pub fn options() -> PlanOptions {
    OPTIONS.with(Cell::get)
}

/// Replaces the options of this thread and returns the former ones.
pub fn set_options(new: PlanOptions) -> PlanOptions {
    OPTIONS.with(|o| o.replace(new))
}

/// Replaces the options that threads start from, and those of this one.
pub fn set_default_options(new: PlanOptions) {
    *DEFAULTS.lock() = new;
    set_options(new);
}
