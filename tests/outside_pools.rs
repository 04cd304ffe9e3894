//! What the process allocates outside the pools while it trains, seen by a counting allocator: at most 32 MiB, the recipes apart.
use agtape::backend::kind::{ReduceKind, UnaryKind};
use agtape::device::Device;
use agtape::dtype::DType;
use agtape::error::{Error, Result};
use agtape::graph::{Scope, Tensor, Variable, mapped_bytes, pools, record_version};
use agtape::ops::binary::mul;
use agtape::ops::matmul::matmul;
use agtape::ops::random::uniform;
use agtape::ops::reduce::reduce;
use agtape::ops::unary::unary;
use agtape::ops::update::{AdamHyper, adam};
use agtape::plan::evaluate;
use agtape::tape::{self, Backward};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const MIB: usize = 1 << 20;
/// How the pools align their buffers; products align the room they pack into alike, and keep it.
const POOL_ALIGN: usize = 64;

/// Bytes that are aligned like the pools' buffers, and of everything else with its highest value.
static ALIGNED: AtomicUsize = AtomicUsize::new(0);
static OTHERS: AtomicUsize = AtomicUsize::new(0);
static OTHERS_PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every request goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() == POOL_ALIGN {
            ALIGNED.fetch_add(layout.size(), Relaxed);
        } else {
            let now = OTHERS.fetch_add(layout.size(), Relaxed) + layout.size();
            OTHERS_PEAK.fetch_max(now, Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let count = if layout.align() == POOL_ALIGN { &ALIGNED } else { &OTHERS };
        count.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A parameter of the user's: held, with a gradient and Adam's two moments.
struct Param {
    variable: Arc<Variable>,
    versions: [Tensor; 3],
}

fn held(t: Tensor) -> Result<Tensor> {
    t.hold();
    evaluate(std::slice::from_ref(&t))?;
    Ok(t)
}

impl Param {
    fn new(n: usize) -> Result<Param> {
        let variable = Arc::new(Variable::new(true));
        let leaf = held(record_version(&uniform(&[n, n], -0.05, 0.05, DType::F32)?, Some(variable.clone())))?;
        let moment = || held(uniform(&[n, n], 0.0, 1e-6, DType::F32)?);
        Ok(Param { variable, versions: [leaf, moment()?, moment()?] })
    }

    fn update(&mut self, step: u64) -> Result<()> {
        let Some(g) = self.variable.grad() else { return Ok(()) };
        let _paused = Scope::enter(|s| s.paused = true);
        let h = AdamHyper { lr: 1e-4, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, step, is_decoupled: false };
        let [p, m, v] = &self.versions;
        let new = adam(p, &g, m, v, &h)?;
        drop(g);
        for (i, (old, new)) in self.versions.iter_mut().zip(new).enumerate() {
            let new = record_version(&new, (i == 0).then(|| self.variable.clone()));
            new.hold();
            std::mem::replace(old, new).unhold();
        }
        evaluate(&self.versions)
    }
}

fn train(params: &mut [Param], x: &Tensor, step: u64) -> Result<usize> {
    let tape = tape::open(None)?;
    let recording = tape::enter(&tape);
    let mut h = x.clone();
    for p in params.iter() {
        h = unary(UnaryKind::Tanh, &matmul(&h, &p.versions[0])?)?;
    }
    let loss = reduce(ReduceKind::Mean, &mul(&h, &h)?, None, false)?;
    drop((recording, h));
    loss.hold();
    let graph = tape::report(&tape, Vec::new()).graph;
    let how = Backward { gradient: None, inputs: None, retain_graph: false, create_graph: false };
    tape::backward(&loss, how)?;
    loss.unhold();
    for p in params.iter_mut() {
        p.update(step)?;
        p.variable.set_grad(None);
    }
    Ok(graph)
}

#[test]
fn test_m07_at_most_32_mib_lie_outside_the_pools() -> Result<()> {
    let before = OTHERS.load(Relaxed);
    let mut params = (0..12).map(|_| Param::new(512)).collect::<Result<Vec<_>>>()?;
    let x = held(uniform(&[2048, 512], -1.0, 1.0, DType::F32)?)?;
    let mut graph = 0;
    let mut room = 0;
    for step in 1..4 {
        graph = train(&mut params, &x, step)?;
        // What the pools count is there; what is aligned alike and not theirs is room that threads keep from product to product.
        room = (ALIGNED.load(Relaxed) + mapped_bytes())
            .checked_sub(pools(Device::CPU).lock().stats().reserved)
            .ok_or(Error::Internal("reserved is too high"))?;
    }
    let stats = pools(Device::CPU).lock().stats();
    assert!(stats.peak > 64 * MIB, "the model is too small to tell: {} bytes", stats.peak);
    let outside = OTHERS_PEAK.load(Relaxed) - before + room;
    assert!(outside <= 32 * MIB + graph, "{outside} bytes outside the pools, {graph} of them recipes");
    assert!(outside > graph, "the counting allocator sees nothing");
    let returned = pools(Device::CPU).lock().trim();
    assert!(returned > 0);
    assert_eq!(ALIGNED.load(Relaxed) + mapped_bytes(), stats.reserved - returned + room);
    Ok(())
}
