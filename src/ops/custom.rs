//! A user's op: a node over its inputs and its forward's outputs that carries a gradient rule written in terms of other ops.
use super::rule::{Ctx, Grads, Rule, make_many};
use crate::backend::op::Op;
use crate::error::{Error, Result};
use crate::graph::{Node, Saved, Spec, Tensor};
use crate::shape::broadcast;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Weak};

/// What a user's op does in backward.
pub trait CustomRule: Send + Sync {
    /// The op's name, for messages.
    fn name(&self) -> &str;

    /// The gradients of the differentiable inputs for given gradients of the outputs, made with recorded ops.
    fn vjp(&self, grad_outs: &[Option<Tensor>]) -> Result<Grads>;
}

struct Entry {
    rule: Arc<dyn CustomRule>,
    node: Weak<Node>,
}

/// Rules by the number in `Op::Custom`; one is dropped when its node says so (`forget`), or else found dead by a sweep.
#[derive(Default)]
struct Registry {
    entries: FxHashMap<u64, Entry>,
    /// The number of entries that calls for the next sweep.
    limit: usize,
}

static NEXT: AtomicU64 = AtomicU64::new(1);
static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

/// Adds a rule; what is dead goes whenever the number of entries has doubled.
fn register(id: u64, rule: Arc<dyn CustomRule>, node: &Arc<Node>) {
    let mut dead: Vec<Entry> = Vec::new();
    let mut registry = REGISTRY.lock();
    if registry.entries.len() >= registry.limit.max(64) {
        let gone = |e: &Entry| e.node.strong_count() == 0;
        let ids: Vec<u64> = registry.entries.iter().filter(|(_, e)| gone(e)).map(|(&id, _)| id).collect();
        dead.extend(ids.iter().filter_map(|id| registry.entries.remove(id)));
        registry.limit = 2 * registry.entries.len();
    }
    registry.entries.insert(id, Entry { rule, node: Arc::downgrade(node) });
    // A rule may hold tensors and Python objects: it is dropped outside the lock.
    drop(registry);
    drop(dead);
}

/// Drops the rule of a node that is gone or will not be differentiated any more.
pub fn forget(id: u64) {
    let entry = REGISTRY.lock().entries.remove(&id);
    drop(entry);
}

/// The outputs of a user's op under a node that carries its gradient rule; the outputs themselves where no tape needs it. `inputs` are
/// those the rule gives gradients for; `outputs` were computed by other ops, without recording.
pub fn custom(rule: Arc<dyn CustomRule>, inputs: &[Tensor], outputs: &[Tensor]) -> Result<Vec<Tensor>> {
    if outputs.is_empty() || inputs.len() + outputs.len() > 32 {
        let message = format!(
            "{}: {} inputs and {} outputs; expected at least one output, and at most 32 together",
            rule.name(),
            inputs.len(),
            outputs.len()
        );
        return Err(Error::value("custom", message));
    }
    let id = NEXT.fetch_add(1, Relaxed);
    let all: SmallVec<[Tensor; 2]> = inputs.iter().chain(outputs).cloned().collect();
    let specs: SmallVec<[Spec; 1]> = outputs.iter().map(|t| t.spec().clone()).collect();
    let outs = make_many(Op::Custom(id), SmallVec::new(), all, specs);
    match outs.first().filter(|t| !t.node.marks.is_empty()) {
        None => Ok(outputs.to_vec()),
        Some(t) => {
            register(id, rule, &t.node);
            Ok(outs)
        }
    }
}

/// The rule of users' ops: it asks the registry. What they keep for it is theirs.
pub struct Custom;

impl Rule for Custom {
    fn saves(&self, _op: &Op, _needs: u32) -> Option<Saved> {
        Some(Saved::default())
    }

    fn vjp(&self, ctx: &Ctx, grad_outs: &[Option<Tensor>]) -> Result<Grads> {
        let Op::Custom(id) = ctx.op() else { return Err(Error::Internal("custom rule")) };
        let rule = REGISTRY.lock().entries.get(id).map(|e| e.rule.clone());
        let rule = rule.ok_or(Error::Internal("a custom op whose rule is gone"))?;
        let mut grads = rule.vjp(grad_outs)?;
        let expected = ctx.inputs.len() - grad_outs.len();
        let wrong = |message: String| Err(Error::value("custom", format!("the gradient rule of {}: {message}", rule.name())));
        if grads.len() != expected {
            return wrong(format!("gave {} gradients for {expected} inputs", grads.len()));
        }
        for (i, g) in grads.iter().enumerate() {
            let Some(g) = g else { continue };
            let spec = ctx.spec(i);
            if !broadcast("custom", g.shape(), &spec.shape).is_ok_and(|s| s[..] == *g.shape()) {
                return wrong(format!("gave shape {:?} for input {i} of shape {:?}", g.shape(), spec.shape));
            }
            if !g.dtype().is_float() {
                return wrong(format!("gave {} for input {i} of type {}", g.dtype(), spec.dtype));
            }
        }
        // The forward's outputs were made without recording: they need none.
        grads.resize(ctx.inputs.len(), None);
        Ok(grads)
    }
}
