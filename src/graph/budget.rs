//! Budgets of tapes: how many bytes may be active, what of the active bytes counts against them, and how a value gives its bytes up.
use super::node::{Node, Out, Stage, Value};
use super::record::{TapeCore, scope};
use super::storage::{pooled_devices, pools};
use crate::backend::op::Op;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::pool::{class_bytes, own_bytes};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

/// Budgets that exist, so that evaluations without any need not look for one.
static BUDGETS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Tapes whose backward pass runs on this thread.
    static OBEYED: RefCell<Vec<Arc<TapeCore>>> = const { RefCell::new(Vec::new()) };
}

/// What plans have run: work, the part of it that computed something for the first time, and the launches that did not.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Spent {
    /// Units of work.
    pub work: u64,
    /// Work of launches that compute what was not computed before.
    pub first_work: u64,
    /// Launches that compute again what was dropped.
    pub rebuilds: usize,
}

/// A bound on the active bytes of each device: on the CPU what was held when its tape was opened, and what the tape's thread has come to
/// hold since; on an adapter everything.
#[derive(Debug)]
pub struct Budget {
    /// The bound.
    pub bytes: usize,
    /// Active bytes of the CPU at the opening, less what the thread had come to hold by then.
    offset: isize,
    thread: ThreadId,
    is_refused: AtomicBool,
    /// Since the tape began to record what it has recorded.
    spent: Mutex<Spent>,
}

impl Budget {
    /// A bound that starts now, for this thread. Cached buffers that pass it are returned.
    pub fn new(bytes: usize) -> Budget {
        BUDGETS.fetch_add(1, Relaxed);
        for device in pooled_devices() {
            let mut pools = pools(device).lock();
            let room = bytes.saturating_sub(pools.stats().active + pools.stuck());
            pools.within(Some(room), |_| ());
        }
        let active = pools(Device::CPU).lock().stats().active;
        Budget {
            bytes,
            offset: active as isize - own_bytes(),
            thread: std::thread::current().id(),
            is_refused: AtomicBool::new(false),
            spent: Mutex::default(),
        }
    }

    /// That a plan was refused for it: until the next backward pass, what the tape recorded is computed only when it is asked for by name.
    pub fn refuse(&self) {
        self.is_refused.store(true, Relaxed);
    }

    /// Adds what a plan has run for the tape, and gives the sum.
    pub fn spend(&self, more: Spent) -> Spent {
        let mut spent = self.spent.lock();
        spent.work += more.work;
        spent.first_work += more.first_work;
        spent.rebuilds += more.rebuilds;
        *spent
    }

    /// What the tape recorded has ended: its sum begins anew.
    pub fn end_step(&self) {
        *self.spent.lock() = Spent::default();
    }

    /// Whether a plan was refused for it lately.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Relaxed)
    }

    /// Bytes of a device that count against it now, with what lies beside the parts of buffers and cannot go back. On another thread than the tape's everything does, since nobody can tell whose it is.
    pub fn held(&self, device: Device) -> usize {
        let (active, stuck) = {
            let pools = pools(device).lock();
            (pools.stats().active, pools.stuck())
        };
        if !device.is_cpu() || std::thread::current().id() != self.thread {
            return active + stuck;
        }
        // What other threads had made by the opening may have ended since.
        stuck + active.min((self.offset + own_bytes()).max(0) as usize)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        BUDGETS.fetch_sub(1, Relaxed);
    }
}

/// Whether any tape has a budget.
pub fn is_any_limited() -> bool {
    BUDGETS.load(Relaxed) > 0
}

/// Tapes with a budget that this thread records on, or whose backward pass it runs.
pub fn limiting_tapes() -> SmallVec<[Arc<TapeCore>; 2]> {
    if !is_any_limited() {
        return SmallVec::new();
    }
    let mut tapes: SmallVec<[Arc<TapeCore>; 2]> = OBEYED.with(|o| o.borrow().iter().cloned().collect());
    tapes.extend(scope(|s| s.tapes.clone()));
    tapes.retain(|t| t.budget.is_some());
    tapes
}

/// Lets go of so many bytes on a device, if it can, that a tape keeps for its gradient rules.
pub type MakeRoom = fn(&Arc<TapeCore>, Device, usize);

static MAKE_ROOM: OnceLock<MakeRoom> = OnceLock::new();

/// Sets what makes room; the binding gives it once.
pub fn set_make_room(make_room: MakeRoom) {
    let _ = MAKE_ROOM.set(make_room);
}

/// The room that the budgets of the tapes that record here leave for what is made outright on a device, if any has a budget.
///
/// # Errors
/// The refusal of a tensor that does not fit, with the smallest budget under which there would be room now.
pub fn admit(op: &'static str, device: Device, bytes: usize) -> Result<Option<usize>> {
    let mut room: Option<usize> = None;
    for tape in limiting_tapes() {
        let Some(budget) = &tape.budget else { continue };
        let mut held = budget.held(device);
        let missing = held.saturating_add(class_bytes(bytes)).saturating_sub(budget.bytes);
        if let Some(make_room) = MAKE_ROOM.get().filter(|_| missing > 0) {
            make_room(&tape, device, missing);
            held = budget.held(device);
        }
        let smallest = held.saturating_add(class_bytes(bytes));
        if smallest > budget.bytes {
            let message = format!(
                "a tensor of {} bytes was asked for; the budget of tape {} is {} bytes, of which {held} are held already; expected a \
                 budget of at least {smallest} bytes, or the tensor to be made before the tape is opened",
                class_bytes(bytes),
                tape.id,
                budget.bytes
            );
            return Err(Error::Budget { op, message, smallest });
        }
        let left = budget.bytes - held;
        room = Some(room.map_or(left, |room| room.min(left)));
    }
    Ok(room)
}

/// While it lives, this thread's evaluations obey the tape's budget.
pub struct Obeying(());

/// Obeys a tape's budget, if it has one, until what is given back is dropped.
pub fn obey(tape: &Arc<TapeCore>) -> Option<Obeying> {
    tape.budget.as_ref()?.is_refused.store(false, Relaxed);
    go_on_obeying(tape)
}

/// As `obey`, in the midst of what the tape's budget bounds already.
pub fn go_on_obeying(tape: &Arc<TapeCore>) -> Option<Obeying> {
    tape.budget.as_ref()?;
    OBEYED.with(|o| o.borrow_mut().push(tape.clone()));
    Some(Obeying(()))
}

impl Drop for Obeying {
    fn drop(&mut self) {
        let _ended = OBEYED.with(|o| o.borrow_mut().pop());
    }
}

/// Values that a node gave up. Dropping them lets them go; until then they can be put back.
pub struct GivenUp {
    node: Arc<Node>,
    values: SmallVec<[Option<Value>; 1]>,
}

impl Node {
    /// Whether some plan has computed it, whether or not its values are still there.
    pub fn was_computed(&self) -> bool {
        self.was_let_go.load(Relaxed) || self.state.lock().stage == Stage::Computed
    }

    /// Whether it has values that gradient rules need and nobody else does.
    pub fn is_only_saved(&self) -> bool {
        let is_free = |out: &Out| out.python.load(Relaxed) == 0 && out.pending.load(Relaxed) == 0;
        self.outs.iter().all(is_free) && self.outs.iter().any(|out| out.saved.load(Relaxed) > 0) && {
            let state = self.state.lock();
            state.stage == Stage::Computed && state.values.iter().any(Option::is_some)
        }
    }

    /// Makes a computed node that still has its inputs pending again, and gives its values; `None` if it is no such node.
    pub fn reopen(self: &Arc<Node>) -> Option<GivenUp> {
        let (values, inputs) = {
            let mut state = self.state.lock();
            if state.stage != Stage::Computed || state.inputs.is_empty() || matches!(self.op, Op::Transfer(_)) {
                return None;
            }
            state.stage = Stage::Pending;
            self.was_let_go.store(true, Relaxed);
            let values = state.values.iter_mut().map(Option::take).collect();
            (values, state.inputs.clone())
        };
        inputs.iter().for_each(|t| {
            t.out().pending.fetch_add(1, Relaxed);
        });
        Some(GivenUp { node: self.clone(), values })
    }
}

impl GivenUp {
    /// The values.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.values.iter().flatten()
    }

    /// The node is computed again, as if it had never been reopened. The caller has kept evaluations out since.
    pub fn put_back(self) {
        let inputs = {
            let mut state = self.node.state.lock();
            state.stage = Stage::Computed;
            self.node.was_let_go.store(false, Relaxed);
            for (place, value) in state.values.iter_mut().zip(self.values) {
                *place = value;
            }
            state.inputs.clone()
        };
        inputs.iter().for_each(|t| {
            t.out().pending.fetch_sub(1, Relaxed);
        });
    }
}
