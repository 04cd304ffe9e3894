//! `CrossEntropy` and its gradient: each row of logits against its label, which is checked here.
use super::elementwise::isa::{Isa, versions};
use super::real::{Float, by_real};
use super::rows::{LANES, Lane, OutRows, Row, Rows, check_room, filled, largest, split, sum, sums, walk};
use super::view::View;
use crate::backend::op::EntropyForm;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// The labels of the rows.
struct Labels<'a> {
    view: &'a View<'a>,
    classes: usize,
    ignored: Option<i64>,
}

impl Labels<'_> {
    fn raw(&self, offset: isize) -> i64 {
        // SAFETY: the walk stays inside the view.
        unsafe {
            match self.view.dtype {
                DType::U8 => i64::from(*self.view.as_ptr::<u8>().offset(offset)),
                DType::I32 => i64::from(*self.view.as_ptr::<i32>().offset(offset)),
                _ => *self.view.as_ptr::<i64>().offset(offset),
            }
        }
    }

    /// The class at an offset, unless it is the ignored label or none at all.
    fn class(&self, offset: isize) -> Option<usize> {
        let raw = self.raw(offset);
        usize::try_from(raw).ok().filter(|&c| c < self.classes && self.ignored != Some(raw))
    }

    /// Fails if any label is neither a class nor ignored, naming the first in row-major order.
    fn check(&self) -> Result<()> {
        let mut wrong = None;
        walk(self.view.shape, [self.view.strides], 0..self.view.elems(), |_, [at]| {
            let raw = self.raw(at);
            if wrong.is_none() && self.ignored != Some(raw) && raw as u64 >= self.classes as u64 {
                wrong = Some(raw);
            }
        });
        let Some(label) = wrong else { return Ok(()) };
        let or = self.ignored.map(|i| format!(" or the ignored value {i}")).unwrap_or_default();
        let last = self.classes as i64 - 1;
        Err(Error::index("cross_entropy", format!("target holds {label}; expected integers from 0 to {last}{or}")))
    }
}

/// What the forward kernel and its gradient share.
struct Launch<'a> {
    logits: &'a View<'a>,
    labels: Labels<'a>,
    weight: Option<&'a View<'a>>,
    /// The share of the target that is spread over all classes.
    smoothing: f64,
    lead: &'a [usize],
}

impl<'a> Launch<'a> {
    fn new(form: EntropyForm, logits: &'a View<'a>, labels: &'a View<'a>, rest: &'a [View<'a>], args: &[u64]) -> Result<Self> {
        let ([ignored, smoothing], Some((&classes, lead))) = (args, logits.shape.split_last()) else {
            return Err(Error::Internal("cross_entropy: operands"));
        };
        let weight = if form.weight { rest.first() } else { None };
        let fits = |w: &View| w.shape == [classes] && w.dtype == logits.dtype;
        if labels.shape != lead || !labels.dtype.is_int() || !weight.is_none_or(fits) || weight.is_some() != form.weight {
            return Err(Error::Internal("cross_entropy: operands do not fit"));
        }
        let labels = Labels { view: labels, classes, ignored: form.ignores.then_some(*ignored as i64) };
        let smoothing = if form.smooths { f64::from_bits(*smoothing) } else { 0.0 };
        Ok(Launch { logits, labels, weight, smoothing, lead })
    }

    fn count(&self) -> usize {
        self.lead.iter().product()
    }

    /// The class weights, which are a row.
    fn weights<T: Row>(&self) -> Option<Vec<T::Wide>> {
        // SAFETY: the view is one row.
        self.weight.map(|w| unsafe { Rows::<T>::new(w).at(0).to_vec() })
    }

    /// What every class gets of a smoothed target with weight 1.
    fn spread(&self) -> f64 {
        self.smoothing / self.labels.classes.max(1) as f64
    }
}

fn weight_of<W: Lane>(weights: Option<&[W]>, class: usize) -> f64 {
    weights.map_or(1.0, |w| w[class].into())
}

/// The sum of the weights, of any number of classes.
fn total_weight<W: Lane>(weights: Option<&[W]>, classes: usize) -> f64 {
    weights.map_or(classes as f64, |w| sum(w, W::default(), Into::into))
}

/// `CrossEntropy`: outputs loss, the largest logit and the sum of the exponentials, and if asked for the label's weight.
pub fn run(form: EntropyForm, ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
    let [logits, labels, rest @ ..] = ins else { return Err(Error::Internal("cross_entropy: operands")) };
    let launch = Launch::new(form, logits, labels, rest, args)?;
    let fits = |v: &View| v.shape == launch.lead && v.dtype == logits.dtype.compute() && v.is_contiguous();
    if outs.len() != 3 + usize::from(form.weight || form.ignores) || !outs.iter().all(fits) {
        return Err(Error::Internal("cross_entropy: outputs"));
    }
    launch.labels.check()?;
    by_real!(logits.dtype, "cross_entropy: dtype", losses(&launch, outs))
}

/// `CrossEntropyGrad`: the gradient of the logits.
pub fn run_gradient(form: EntropyForm, ins: &[View], outs: &[View], args: &[u64]) -> Result<()> {
    let ([g, logits, labels, rest @ ..], [out]) = (ins, outs) else {
        return Err(Error::Internal("cross_entropy_gradient: operands"));
    };
    let launch = Launch::new(form, logits, labels, rest, args)?;
    let [top, total] = &rest[usize::from(form.weight)..] else {
        return Err(Error::Internal("cross_entropy_gradient: operands"));
    };
    let fits = |v: &View| v.shape == launch.lead && v.dtype == logits.dtype.compute();
    if ![g, top, total].into_iter().all(fits) || out.shape != logits.shape || out.dtype != logits.dtype || !out.is_contiguous() {
        return Err(Error::Internal("cross_entropy_gradient: operands do not fit"));
    }
    launch.labels.check()?;
    by_real!(logits.dtype, "cross_entropy_gradient: dtype", gradients(&launch, [g, top, total], out))
}

/// A type whose rows have kernels.
trait Kernel: Lane {
    /// The largest of a row, and the sum of e^(x - largest).
    fn stats(isa: Isa, row: &[Self], stats: &mut (Self, f64));

    /// The weighted sum of largest - x.
    fn below(isa: Isa, row: &[Self], weights: Option<&[Self]>, top: Self, below: &mut f64);

    /// factor e^(x - top).
    fn exponentials(isa: Isa, row: &[Self], top: Self, factor: Self, to: &mut [Self]);
}

macro_rules! kernels {
    ($($t:ty, $stats:ident, $below:ident, $exponentials:ident;)*) => {$(
        versions!(
            wide
            /// The largest of a row, and the sum of the exponentials.
            $stats(row: &[$t], stats: &mut ($t, f64)) = stats_body::<$t>
        );
        versions!(
            /// The weighted sum of largest - x.
            $below(row: &[$t], weights: Option<&[$t]>, top: $t, below: &mut f64) = below_body::<$t>
        );
        versions!(
            wide
            /// factor e^(x - top).
            $exponentials(row: &[$t], top: $t, factor: $t, to: &mut [$t]) = exponentials_body::<$t>
        );
        impl Kernel for $t {
            fn stats(isa: Isa, row: &[$t], stats: &mut ($t, f64)) {
                // SAFETY: `Isa::get` found the instructions.
                unsafe { $stats(isa, row, stats) }
            }
            fn below(isa: Isa, row: &[$t], weights: Option<&[$t]>, top: $t, below: &mut f64) {
                // SAFETY: `Isa::get` found the instructions.
                unsafe { $below(isa, row, weights, top, below) }
            }
            fn exponentials(isa: Isa, row: &[$t], top: $t, factor: $t, to: &mut [$t]) {
                // SAFETY: `Isa::get` found the instructions.
                unsafe { $exponentials(isa, row, top, factor, to) }
            }
        }
    )*};
}
kernels! {
    f32, stats_f32, below_f32, exponentials_f32;
    f64, stats_f64, below_f64, exponentials_f64;
}

/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn stats_body<W: Lane>(row: &[W], stats: &mut (W, f64)) {
    let top = largest(row);
    // A NaN that `largest` passed over reaches the sum.
    *stats = (top, sum(row, W::of(f64::NEG_INFINITY), |x| (x - top).exp().into()));
}

/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn below_body<W: Lane>(row: &[W], weights: Option<&[W]>, top: W, below: &mut f64) {
    // In f64: the difference of two numbers of a narrow type may be beyond it.
    let highest: f64 = top.into();
    let distance = |x: W| -> f64 { highest - Into::<f64>::into(x) };
    *below = match weights {
        None => sum(row, top, distance),
        Some(w) => sums([row, w, row], |x, w, _| [distance(x) * w.into(), 0.0])[0],
    };
}

/// # Safety
/// None needed: unsafe only to fit `versions`.
#[inline(always)]
unsafe fn exponentials_body<W: Lane>(row: &[W], top: W, factor: W, to: &mut [W]) {
    let ((full, rest), (to, to_rest)) = (row.as_chunks::<LANES>(), to.as_chunks_mut::<LANES>());
    for (x, to) in full.iter().zip(to) {
        for l in 0..LANES {
            to[l] = (x[l] - top).exp() * factor;
        }
    }
    if !rest.is_empty() {
        let mut last = filled(rest, top);
        for l in 0..LANES {
            last[l] = (last[l] - top).exp() * factor;
        }
        to_rest.copy_from_slice(&last[..to_rest.len()]);
    }
}

fn losses<T: Row<Wide: Kernel>>(l: &Launch, outs: &[View]) -> Result<()> {
    check_room::<T>("cross_entropy", l.logits)?;
    let (isa, classes) = (Isa::get(), l.labels.classes);
    let weights = l.weights::<T>();
    let weights = weights.as_deref();
    let all = total_weight(weights, classes);
    split(l.count(), classes, |range| {
        let mut logits = Rows::<T>::new(l.logits);
        walk(l.lead, [l.logits.strides, l.labels.view.strides], range, |row, [x, label]| {
            let class = l.labels.class(label);
            // SAFETY: the walk stays inside the logits.
            let x = unsafe { logits.at(x) };
            let (mut stats, mut below, mut loss, mut share) = ((T::Wide::default(), 0.0), 0.0, 0.0, 0.0);
            Kernel::stats(isa, x, &mut stats);
            let (top, total) = stats;
            if let Some(class) = class {
                share = weight_of(weights, class);
                let log: f64 = total.ln();
                let picked = Into::<f64>::into(top) - Into::<f64>::into(x[class]);
                loss = share * (1.0 - l.smoothing) * (picked + log);
                if l.smoothing != 0.0 {
                    Kernel::below(isa, x, weights, top, &mut below);
                    loss += l.spread() * (below + all * log);
                }
            }
            let values = [T::Wide::of(loss), top, T::Wide::of(total), T::Wide::of(share)];
            for (view, value) in outs.iter().zip(values) {
                // SAFETY: the row's element, which is this task's own.
                unsafe { *view.as_ptr::<T::Wide>().add(row) = value };
            }
        });
    });
    Ok(())
}

/// g (A e^(x - top) / total - t), where t is the target (1 - s) w at the label plus s w / classes everywhere, and A its sum.
fn gradients<T: Row<Wide: Kernel>>(l: &Launch, stats: [&View; 3], out: &View) -> Result<()> {
    let (isa, classes) = (Isa::get(), l.labels.classes);
    let weights = l.weights::<T>();
    let weights = weights.as_deref();
    let smooth = l.spread() * total_weight(weights, classes);
    let [g, top, total] = stats;
    split(l.count(), classes, |range| {
        let (mut logits, mut to) = (Rows::<T>::new(l.logits), OutRows::<T>::new(out, classes));
        let strides = [l.logits.strides, l.labels.view.strides, g.strides, top.strides, total.strides];
        walk(l.lead, strides, range, |row, [x, label, at_g, at_top, at_total]| {
            let class = l.labels.class(label);
            // SAFETY: the walk stays inside the inputs; the row of the output is this task's own.
            unsafe {
                let statistic = |view: &View, at: isize| *view.as_ptr::<T::Wide>().offset(at);
                let (x, top) = (logits.at(x), statistic(top, at_top));
                let (g, total): (f64, f64) = (statistic(g, at_g).into(), statistic(total, at_total).into());
                to.put(row, |d| {
                    let Some(class) = class else { return d.fill(T::Wide::default()) };
                    let own = weight_of(weights, class) * (1.0 - l.smoothing);
                    Kernel::exponentials(isa, x, top, T::Wide::of(g * (own + smooth) / total), d);
                    d[class] = d[class] - T::Wide::of(g * own);
                    if l.smoothing != 0.0 {
                        let each = T::Wide::of(g * l.spread());
                        match weights {
                            None => d.iter_mut().for_each(|d| *d = *d - each),
                            Some(w) => d.iter_mut().zip(w).for_each(|(d, &w)| *d = *d - each * w),
                        }
                    }
                });
            }
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::walk::sample::{Draw, Sample, same};
    use super::*;

    struct Case {
        form: EntropyForm,
        x: Sample,
        labels: Sample,
        weight: Sample,
        smoothing: f64,
        ignored: i64,
    }

    impl Case {
        fn draw(seed: u64, dtype: DType, shape: &[usize], parts: u8) -> Case {
            let mut draw = Draw(seed);
            let form = EntropyForm { weight: parts & 1 != 0, ignores: parts & 2 != 0, smooths: parts & 4 != 0 };
            let (classes, lead) = (shape[shape.len() - 1], &shape[..shape.len() - 1]);
            let label = [DType::U8, DType::I32, DType::I64][draw.below(3)];
            let (ignored, range) = if label == DType::U8 { (200, classes) } else { (-100, classes) };
            let labels = Sample::strided(&mut draw, label, lead, |d| {
                if form.ignores && d.below(4) == 0 { ignored as f64 } else { d.below(range) as f64 }
            });
            let x = Sample::strided(&mut draw, dtype, shape, |d| d.below(400) as f64 / 64.0 - 2.0);
            let weight = Sample::strided(&mut draw, dtype, &[classes], |d| d.below(64) as f64 / 64.0 + 0.5);
            Case { form, x, labels, weight, smoothing: 0.25, ignored }
        }

        fn ins<'a>(&'a self, rest: &'a [Sample]) -> Vec<View<'a>> {
            let weight = self.form.weight.then(|| self.weight.view());
            [self.x.view(), self.labels.view()].into_iter().chain(weight).chain(rest.iter().map(Sample::view)).collect()
        }

        fn args(&self) -> [u64; 2] {
            [self.ignored as u64, self.smoothing.to_bits()]
        }

        fn losses(&self) -> Result<Vec<Sample>> {
            let n = 3 + usize::from(self.form.weight || self.form.ignores);
            let outs: Vec<Sample> = (0..n).map(|_| Sample::zeros(self.x.dtype.compute(), &self.labels.shape)).collect();
            run(self.form, &self.ins(&[]), &outs.iter().map(Sample::view).collect::<Vec<_>>(), &self.args())?;
            Ok(outs)
        }

        fn gradient(&self, g: &Sample, stats: &[Sample]) -> Vec<f64> {
            let out = Sample::zeros(self.x.dtype, &self.x.shape);
            let ins: Vec<View> = std::iter::once(g.view()).chain(self.ins(stats)).collect();
            run_gradient(self.form, &ins, &[out.view()], &self.args()).unwrap();
            out.values()
        }

        /// Each row's loss and share, and the gradient with incoming ones, by their definitions.
        fn expected(&self) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
            let classes = self.weight.shape[0];
            let w = if self.form.weight { self.weight.values() } else { vec![1.0; classes] };
            let s = if self.form.smooths { self.smoothing } else { 0.0 };
            let (mut losses, mut shares, mut grads) = (Vec::new(), Vec::new(), Vec::new());
            for (x, y) in self.x.values().chunks(classes.max(1)).zip(self.labels.values()) {
                let is_ignored = self.form.ignores && y == self.ignored as f64;
                let total: f64 = x.iter().map(|x| x.exp()).sum();
                let target: Vec<f64> = (0..classes)
                    .map(|c| w[c] * (s / classes as f64 + if c as f64 == y { 1.0 - s } else { 0.0 }))
                    .map(|t| if is_ignored { 0.0 } else { t })
                    .collect();
                let mass: f64 = target.iter().sum();
                losses.push(x.iter().zip(&target).map(|(x, t)| t * (total.ln() - x)).sum());
                shares.push(if is_ignored { 0.0 } else { w[y as usize] });
                grads.extend(x.iter().zip(&target).map(|(x, t)| mass * x.exp() / total - t));
            }
            (losses, shares, grads)
        }
    }

    fn near(a: &[f64], b: &[f64], tolerance: f64) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * (1.0 + b.abs()))
    }

    proptest::proptest! {
        #[test]
        fn as_in_double_precision(seed: u64, rank in 1usize..4, parts in 0u8..8, dtype in 0usize..4) {
            let (dtype, tolerance) = [(DType::F64, 1e-12), (DType::F32, 2e-6), (DType::F16, 1e-3), (DType::BF16, 8e-3)][dtype];
            let mut shape = Draw(seed).shape(rank);
            shape[rank - 1] = [1, 2, 7, 16, 17, 83][Draw(seed).below(6)];
            let case = Case::draw(seed, dtype, &shape, parts);
            let (outs, expected) = (case.losses().unwrap(), case.expected());
            let fine = if dtype == DType::F64 { 1e-12 } else { 2e-6 };
            proptest::prop_assert!(near(&outs[0].values(), &expected.0, fine));
            if let Some(share) = outs.get(3) {
                proptest::prop_assert!(near(&share.values(), &expected.1, 1e-12));
            }
            let ones = Sample::of(dtype.compute(), &case.labels.shape, &vec![1.0; case.labels.values().len()]);
            proptest::prop_assert!(near(&case.gradient(&ones, &outs[1..3]), &expected.2, tolerance));
        }
    }

    #[test]
    fn large_logits_lose_nothing_and_threads_change_no_bit() {
        let mut case = Case::draw(3, DType::F32, &[700, 130], 6);
        let x: Vec<f64> = case.x.values().iter().map(|x| x + 4096.0).collect();
        let small = case.expected();
        case.x = Sample::of(DType::F32, &[700, 130], &x);
        let many = case.losses().unwrap();
        assert!(near(&many[0].values(), &small.0, 2e-6));
        let ones = Sample::of(DType::F32, &[700], &[1.0; 700]);
        let grads = case.gradient(&ones, &many[1..3]);
        assert!(near(&grads, &small.2, 2e-6));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let (one, alone) = pool.install(|| (case.losses().unwrap(), case.gradient(&ones, &many[1..3])));
        assert!(one.iter().zip(&many).all(|(a, b)| same(&a.values(), &b.values())));
        assert!(same(&grads, &alone));
    }

    #[test]
    fn wrong_labels_are_named() {
        for (bad, ignores) in [(3.0, true), (-1.0, true), (-100.0, false)] {
            let mut case = Case::draw(1, DType::F32, &[2, 3], if ignores { 2 } else { 0 });
            (case.labels, case.ignored) = (Sample::of(DType::I32, &[2], &[0.0, bad]), -100);
            let or = if ignores { " or the ignored value -100" } else { "" };
            let expected = format!("cross_entropy: target holds {bad}; expected integers from 0 to 2{or}");
            assert_eq!(case.losses().map(|_| ()).map_err(|e| e.to_string()), Err(expected));
        }
    }
}
