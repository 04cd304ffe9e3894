//! Criterion over kernels, one group a family, and over what a step costs beside its kernels. Every iteration records its ops anew and
//! evaluates them, so each time includes a plan that the cache finds.
//!
//! `cargo bench` runs all in about a minute and a half; `cargo bench -- matmul` one group; `-- --measurement-time 5` measures longer.

use agtape::backend::kind::{BinaryKind, Caller, ReduceKind, UnaryKind};
use agtape::dtype::{DType, Scalar};
use agtape::error::Result;
use agtape::graph::{Tensor, Variable, record_version};
use agtape::ops::binary::{add, binary, mul, sub};
use agtape::ops::create::full;
use agtape::ops::cross_entropy::{Entropy, Reduction, cross_entropy};
use agtape::ops::cumulative::cumsum;
use agtape::ops::index::{gather, scatter_add, take_along_axis};
use agtape::ops::matmul::matmul;
use agtape::ops::movement::concat;
use agtape::ops::norm::{Norm, norm};
use agtape::ops::random::{bernoulli, normal, randint, uniform};
use agtape::ops::reduce::{arg_extreme, reduce};
use agtape::ops::softmax::{log_softmax, softmax};
use agtape::ops::sort::{sort, topk};
use agtape::ops::unary::unary;
use agtape::ops::update::{AdamHyper, SgdHyper, adam, sgd};
use agtape::ops::view::{copy, flip, permute, transpose};
use agtape::plan::{evaluate, last_plan};
use agtape::tape::{self, Backward};
use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use std::sync::Arc;
use std::time::Duration;

type Group<'a> = BenchmarkGroup<'a, WallTime>;

const F32: DType = DType::F32;

/// A computed tensor of numbers in [-1, 1).
fn input(shape: &[usize]) -> Result<Tensor> {
    held(uniform(shape, -1.0, 1.0, F32)?)
}

/// Computed positions below a bound.
fn positions(shape: &[usize], bound: usize) -> Result<Tensor> {
    held(randint(shape, 0, bound as i64, DType::I64)?)
}

/// Computes a tensor and keeps its value for as long as it lives.
fn held(t: Tensor) -> Result<Tensor> {
    t.hold();
    evaluate(std::slice::from_ref(&t))?;
    Ok(t)
}

/// Measures recording and evaluating what `f` makes; once before, so that an error ends the run and the plan is in the cache.
fn measure(group: &mut Group<'_>, name: &str, mut f: impl FnMut() -> Result<Vec<Tensor>>) -> Result<()> {
    let mut run = || -> Result<Vec<Tensor>> {
        let outs = f()?;
        evaluate(&outs)?;
        Ok(outs)
    };
    run()?;
    group.bench_function(name, |b| b.iter(&mut run));
    Ok(())
}

fn elementwise(group: &mut Group<'_>) -> Result<()> {
    for elems in [1 << 10, 1 << 16, 1 << 22] {
        let (x, y) = (input(&[elems])?, input(&[elems])?);
        group.throughput(Throughput::Elements(elems as u64));
        measure(group, &format!("add/{elems}"), || Ok(vec![add(&x, &y)?]))?;
        measure(group, &format!("tanh(x * y + x) * y/{elems}"), || {
            let inner = unary(UnaryKind::Tanh, &add(&mul(&x, &y)?, &x)?)?;
            Ok(vec![mul(&inner, &y)?])
        })?;
    }
    let (x, row) = (input(&[1024, 1024])?, input(&[1024])?);
    group.throughput(Throughput::Elements(1 << 20));
    measure(group, "gelu(x + row)/1024x1024", || Ok(vec![unary(UnaryKind::Gelu, &add(&x, &row)?)?]))?;
    for kind in [UnaryKind::Exp, UnaryKind::Log, UnaryKind::Sin, UnaryKind::Erf] {
        measure(group, &format!("{}/1024x1024", kind.name()), || Ok(vec![unary(kind, &x)?]))?;
    }
    measure(group, "pow/1024x1024", || Ok(vec![binary(BinaryKind::Pow, &x, &row)?]))
}

fn reductions(group: &mut Group<'_>) -> Result<()> {
    let x = input(&[1024, 1024])?;
    group.throughput(Throughput::Elements(1 << 20));
    for kind in [ReduceKind::Sum, ReduceKind::Max] {
        for (name, axes) in [("all", None), ("rows", Some(&[1][..])), ("columns", Some(&[0][..]))] {
            measure(group, &format!("{}/{name}", kind.name()), || Ok(vec![reduce(kind, &x, axes, false)?]))?;
        }
    }
    measure(group, "sum of squares/rows", || {
        Ok(vec![reduce(ReduceKind::Sum, &unary(UnaryKind::Square, &x)?, Some(&[1]), false)?])
    })?;
    measure(group, "argmax/rows", || Ok(vec![arg_extreme(&x, true, Some(1), false)?]))?;
    measure(group, "cumsum/rows", || Ok(vec![cumsum(&x, Some(1), false)?]))
}

fn products(group: &mut Group<'_>) -> Result<()> {
    for n in [32, 128, 512, 1024] {
        let (a, b) = (input(&[n, n])?, input(&[n, n])?);
        group.throughput(Throughput::Elements(2 * (n * n * n) as u64));
        measure(group, &format!("nn/{n}"), || Ok(vec![matmul(&a, &b)?]))?;
        if n == 512 {
            measure(group, "nt/512", || Ok(vec![matmul(&a, &transpose("bench", &b, 0, 1)?)?]))?;
            measure(group, "tn/512", || Ok(vec![matmul(&transpose("bench", &a, 0, 1)?, &b)?]))?;
        }
    }
    let (a, b) = (input(&[64, 64, 64])?, input(&[64, 64, 64])?);
    group.throughput(Throughput::Elements(2 << 24));
    measure(group, "batch of 64/64", || Ok(vec![matmul(&a, &b)?]))?;
    let (a, v) = (input(&[1024, 1024])?, input(&[1024])?);
    group.throughput(Throughput::Elements(2 << 20));
    measure(group, "matrix vector/1024", || Ok(vec![matmul(&a, &v)?]))?;
    let (x, w, bias) = (input(&[256, 512])?, input(&[512, 512])?, input(&[512])?);
    group.throughput(Throughput::Elements(2 << 26));
    measure(group, "relu(x @ w + bias)/256x512x512", || Ok(vec![unary(UnaryKind::Relu, &add(&matmul(&x, &w)?, &bias)?)?]))
}

fn row_kernels(group: &mut Group<'_>) -> Result<()> {
    for (rows, columns) in [(4096, 16), (1024, 1024)] {
        let x = input(&[rows, columns])?;
        group.throughput(Throughput::Elements((rows * columns) as u64));
        measure(group, &format!("softmax/{rows}x{columns}"), || Ok(vec![softmax(&x, -1)?]))?;
        measure(group, &format!("log_softmax/{rows}x{columns}"), || Ok(vec![log_softmax(&x, -1)?]))?;
        let how = Norm { axes: 1, rms: false, eps: 1e-5 };
        let (w, b) = (input(&[columns])?, input(&[columns])?);
        measure(group, &format!("layer_norm/{rows}x{columns}"), || Ok(vec![norm(how, &x, Some(&w), Some(&b))?]))?;
        let how = Entropy { axis: -1, ignored: None, smoothing: 0.0, reduction: Reduction::Mean };
        let labels = positions(&[rows], columns)?;
        measure(group, &format!("cross_entropy/{rows}x{columns}"), || Ok(vec![cross_entropy(how, &x, &labels, None)?]))?;
    }
    let x = input(&[1024, 1024])?;
    measure(group, "softmax/columns of 1024x1024", || Ok(vec![softmax(&x, 0)?]))
}

fn copies(group: &mut Group<'_>) -> Result<()> {
    let x = input(&[1024, 1024])?;
    group.throughput(Throughput::Bytes(8 << 20));
    measure(group, "row-major/1024x1024", || Ok(vec![copy(&x)]))?;
    measure(group, "transposed/1024x1024", || Ok(vec![copy(&transpose("bench", &x, 0, 1)?)]))?;
    measure(group, "flipped/1024x1024", || Ok(vec![copy(&flip(&x, Some(&[1]))?)]))?;
    measure(group, "concat/2 of 1024x1024", || Ok(vec![concat(&[x.clone(), x.clone()], 1)?]))?;
    let heads = input(&[8, 128, 16, 64])?;
    measure(group, "heads/8x128x16x64", || Ok(vec![copy(&permute(&heads, Some(&[0, 2, 1, 3]))?)]))
}

fn indexing(group: &mut Group<'_>) -> Result<()> {
    let (table, at, rows) = (input(&[10_000, 64])?, positions(&[4096], 10_000)?, input(&[4096, 64])?);
    group.throughput(Throughput::Elements(4096 * 64));
    measure(group, "gather/4096 of 10000x64", || Ok(vec![gather(&table, std::slice::from_ref(&at))?]))?;
    measure(group, "scatter_add/4096 of 10000x64", || Ok(vec![scatter_add(&table, std::slice::from_ref(&at), &rows)?]))?;
    let (x, picked) = (input(&[4096, 64])?, positions(&[4096, 1], 64)?);
    group.throughput(Throughput::Elements(4096));
    measure(group, "take_along_axis/1 of 64, 4096 rows", || Ok(vec![take_along_axis(Caller::Own, &x, &picked, 1)?]))
}

fn sorting(group: &mut Group<'_>) -> Result<()> {
    for shape in [&[100_000][..], &[1000, 100]] {
        let x = input(shape)?;
        group.throughput(Throughput::Elements(100_000));
        measure(group, &format!("sort/{shape:?}"), || Ok(vec![sort(&x, Some(-1), false)?.0]))?;
    }
    let x = input(&[1000, 100])?;
    measure(group, "topk/5 of [1000, 100]", || Ok(vec![topk(&x, 5, -1, true, true)?.0]))
}

fn random(group: &mut Group<'_>) -> Result<()> {
    let shape = &[1 << 20];
    group.throughput(Throughput::Elements(1 << 20));
    measure(group, "uniform", || Ok(vec![uniform(shape, 0.0, 1.0, F32)?]))?;
    measure(group, "normal", || Ok(vec![normal(shape, 0.0, 1.0, F32)?]))?;
    measure(group, "randint", || Ok(vec![randint(shape, 0, 1000, DType::I64)?]))?;
    measure(group, "bernoulli", || Ok(vec![bernoulli(shape, 0.5)?]))
}

fn sgd_hyper() -> SgdHyper {
    SgdHyper { lr: 1e-3, weight_decay: 0.0, momentum: 0.9, dampening: 0.0, is_nesterov: false, is_first: false }
}

/// An update takes the place of what it read, as in training: the state moves from one iteration to the next.
fn updates(group: &mut Group<'_>) -> Result<()> {
    let shape = &[1 << 20];
    let gradient = input(shape)?;
    group.throughput(Throughput::Elements(1 << 20));
    let mut state = vec![input(shape)?, held(full("bench", shape, Scalar::Int(0), F32)?)?];
    measure(group, "sgd with momentum", move || {
        let new = sgd(&state[0], &gradient, Some(&state[1]), &sgd_hyper())?;
        advance(&mut state, new)
    })?;
    let gradient = input(shape)?;
    let zeros = || held(full("bench", shape, Scalar::Int(0), F32)?);
    let mut state = vec![input(shape)?, zeros()?, zeros()?];
    let mut step = 0;
    measure(group, "adam", move || {
        step += 1;
        let (beta1, beta2) = (0.9, 0.999);
        let hyper = AdamHyper { lr: 1e-3, beta1, beta2, eps: 1e-8, weight_decay: 0.0, step, is_decoupled: true };
        let new = adam(&state[0], &gradient, &state[1], &state[2], &hyper)?;
        advance(&mut state, new)
    })
}

/// Puts a new state in the old one's place.
fn advance(state: &mut Vec<Tensor>, new: Vec<Tensor>) -> Result<Vec<Tensor>> {
    new.iter().for_each(Tensor::hold);
    state.iter().for_each(Tensor::unhold);
    state.clone_from(&new);
    Ok(new)
}

/// A network with one hidden layer, small enough that what surrounds its kernels shows.
struct Network {
    weights: Vec<(Arc<Variable>, Tensor)>,
    x: Tensor,
    y: Tensor,
}

impl Network {
    fn new() -> Result<Network> {
        let shapes: [&[usize]; 4] = [&[16, 32], &[32], &[32, 4], &[4]];
        let weights = shapes.iter().map(|shape| {
            let variable = Arc::new(Variable::new(true));
            let leaf = held(record_version(&input(shape)?, Some(variable.clone())))?;
            Ok((variable, leaf))
        });
        Ok(Network { weights: weights.collect::<Result<_>>()?, x: input(&[8, 16])?, y: input(&[8, 4])? })
    }

    /// The mean squared error, pending.
    fn loss(&self) -> Result<Tensor> {
        let layer = |x: &Tensor, i: usize| add(&matmul(x, &self.weights[i].1)?, &self.weights[i + 1].1);
        let hidden = unary(UnaryKind::Relu, &layer(&self.x, 0)?)?;
        let error = sub(&layer(&hidden, 2)?, &self.y)?;
        reduce(ReduceKind::Mean, &unary(UnaryKind::Square, &error)?, None, false)
    }

    /// Forward, backward and the update: two plans.
    fn step(&mut self) -> Result<()> {
        let tape = tape::open(None)?;
        let loss = {
            let _recording = tape::enter(&tape);
            self.loss()?
        };
        tape::backward(&loss, Backward { gradient: None, inputs: None, retain_graph: false, create_graph: false })?;
        let mut new = Vec::with_capacity(self.weights.len());
        for (variable, leaf) in &self.weights {
            if let Some(gradient) = variable.grad() {
                let updated = sgd(leaf, &gradient, None, &sgd_hyper())?;
                new.push(record_version(&updated[0], Some(variable.clone())));
            }
            variable.set_grad(None);
        }
        new.iter().for_each(Tensor::hold);
        for ((_, leaf), updated) in self.weights.iter_mut().zip(&new) {
            leaf.unhold();
            *leaf = updated.clone();
        }
        evaluate(&new)
    }
}

/// Adds a family's benches to its group.
type Family = fn(&mut Group<'_>) -> Result<()>;

fn steps(group: &mut Group<'_>) -> Result<()> {
    let network = Network::new()?;
    let (a, b) = (input(&[8])?, input(&[8])?);
    let mut record = || add(&a, &b);
    record()?;
    group.bench_function("record one op, computed by nobody", |bench| bench.iter(&mut record));
    let mut forward = || network.loss();
    forward()?;
    group.bench_function("record a forward pass", |bench| bench.iter(&mut forward));
    measure(group, "record and evaluate a forward pass", || Ok(vec![network.loss()?]))?;
    let mut network = Network::new()?;
    for _ in 0..3 {
        network.step()?;
    }
    println!("steps: the plan of the last update was {}in the cache", if last_plan().cache_hit { "" } else { "not " });
    group.bench_function("a training step", |bench| bench.iter(|| network.step()));
    Ok(())
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .configure_from_args();
    let families: [(&str, Family); 10] = [
        ("elementwise", elementwise),
        ("reductions", reductions),
        ("matmul", products),
        ("softmax", row_kernels),
        ("copies", copies),
        ("indexing", indexing),
        ("sorting", sorting),
        ("random", random),
        ("updates", updates),
        ("steps", steps),
    ];
    for (name, family) in families {
        let mut group = criterion.benchmark_group(name);
        family(&mut group)?;
        group.finish();
    }
    criterion.final_summary();
    Ok(())
}
