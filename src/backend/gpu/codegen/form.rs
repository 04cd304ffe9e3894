//! The form of a reduction: which axes it keeps, and how its work is divided among workgroups and threads.
use super::axes::Axes;
use super::fused::{GROUP, LANES};
use crate::error::{Error, Result};

/// Turns of a thread's loop that a part keeps at least.
const PART_TURNS: usize = 8;
/// Workgroups that fill a large device several times over.
const WORKGROUPS: usize = 2048;
/// Threads that keep a large device busy.
const BUSY_THREADS: usize = 64 * 1024;
/// Elements of a thread below which more threads for an output are no gain, if there are outputs enough.
const THREAD_ELEMS: usize = 16;
/// Outputs side by side whose reads fill a line of memory.
const LINE: usize = 16;

/// A reduction as one over the middle axis of (outer, reduced, inner).
#[derive(Clone, Debug)]
pub struct Form {
    /// Outputs before the reduced axes.
    pub outer: usize,
    /// Elements of an output.
    pub reduced: usize,
    /// Outputs behind the last reduced axis.
    pub inner: usize,
    mask: u32,
    /// The first axis behind the last reduced one.
    inner_from: usize,
}

impl Form {
    /// The form of a reduction over the axes in `mask`.
    pub fn new(shape: &[usize], mask: u32) -> Result<Form> {
        let reduces = |a: &usize| mask >> a & 1 == 1;
        let inner_from = (0..shape.len()).rev().find(|a| reduces(a) && shape[*a] != 1).map_or(shape.len(), |a| a + 1);
        let size = |axes: &mut dyn Iterator<Item = usize>| axes.map(|a| shape[a]).product::<usize>();
        let outer = size(&mut (0..inner_from).filter(|a| !reduces(a)));
        let reduced = size(&mut (0..shape.len()).filter(|a| reduces(a)));
        let inner = size(&mut (inner_from..shape.len()).filter(|a| !reduces(a)));
        let most = u32::MAX as usize / 2;
        if outer.saturating_mul(inner).saturating_mul(reduced.max(1)) > u32::MAX as usize || reduced > most {
            let message =
                format!("a reduction of {shape:?} has more elements than 32-bit positions can tell apart: split the tensor");
            return Err(Error::value("gpu", message));
        }
        Ok(Form { outer, reduced, inner, mask, inner_from })
    }

    /// How many outputs there are.
    pub fn outputs(&self) -> usize {
        self.outer * self.inner
    }

    /// The same outputs from another number of elements.
    pub fn with_reduced(&self, reduced: usize) -> Form {
        Form { reduced, ..self.clone() }
    }

    /// The outer, reduced and inner axes as the inputs lie along them.
    pub fn axes(&self, shape: &[usize], strides: &[&[isize]]) -> [Axes; 3] {
        let reduces = |a: &usize| self.mask >> a & 1 == 1;
        [
            Axes::merged(shape, strides, (0..self.inner_from).filter(|a| !reduces(a))),
            Axes::merged(shape, strides, (0..shape.len()).filter(reduces)),
            Axes::merged(shape, strides, (self.inner_from..shape.len()).filter(|a| !reduces(a))),
        ]
    }

    /// Whether neighbouring threads should go along the reduced axes and not along outputs: where inputs lie without gaps.
    pub fn is_along(&self, along: &Axes, outer: &Axes, inner: &Axes) -> bool {
        let dense = |axes: &Axes| axes.steps.iter().any(|s| s.last().is_some_and(|s| s.abs() == 1));
        dense(along) || !dense(if self.inner > 1 { inner } else { outer })
    }
}

/// How the work of a reduction is divided. The order of additions follows from all but `is_along`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Split {
    /// Threads for an output (of a part): a power of 4.
    pub threads: usize,
    /// Parts that the elements of an output are divided into, each the work of its own workgroup.
    pub parts: usize,
    /// Elements of a part.
    pub length: usize,
    /// Whether neighbouring threads work on one output.
    pub is_along: bool,
}

impl Split {
    /// Enough parts to fill a large device, but none so short that combining them costs more, and of as many as are wanted no more than
    /// `limited` gives.
    pub fn of(form: &Form, limited: impl Fn(usize) -> usize) -> Split {
        let whole = Split::whole(form);
        let turns = form.reduced.div_ceil(whole.threads * LANES);
        let workgroups = form.outputs().div_ceil(whole.across()).max(1);
        let parts = limited((turns / PART_TURNS).min(WORKGROUPS / workgroups).max(1));
        let length = form.reduced.div_ceil(parts).next_multiple_of(whole.threads * LANES);
        Split { parts: form.reduced.div_ceil(length.max(1)).max(1), length: length.max(1), ..whole }
    }

    /// One part.
    pub fn whole(form: &Form) -> Split {
        let most = power_of_4(form.reduced.div_ceil(LANES)).min(GROUP);
        let least = power_of_4(form.reduced.div_ceil(THREAD_ELEMS)).min(GROUP);
        let wanted = if form.outputs() * least >= BUSY_THREADS { least } else { most };
        // Outputs side by side are read together where the reduced axis is not the innermost.
        let threads = if form.inner >= LINE { wanted.min(GROUP / LINE) } else { wanted };
        Split { threads, parts: 1, length: form.reduced.max(1), is_along: true }
    }

    /// Outputs of a workgroup.
    pub fn across(self) -> usize {
        GROUP / self.threads
    }
}

/// The smallest power of 4 that is not below n.
fn power_of_4(n: usize) -> usize {
    let mut out = 1;
    while out < n {
        out *= 4;
    }
    out
}

/// What tests need to see of a split without running it.
#[cfg(test)]
mod tests {
    use super::*;

    fn split(shape: &[usize], mask: u32) -> Split {
        Split::of(&Form::new(shape, mask).unwrap(), |parts| parts)
    }

    #[test]
    fn large_reductions_fill_the_device_and_small_ones_take_one_pass() {
        let whole = split(&[1 << 24], 1);
        assert!(whole.parts > 1000 && whole.parts * whole.length >= 1 << 24);
        assert_eq!(split(&[4096, 768], 2).parts, 1);
        assert!(split(&[8192, 384], 1).parts >= 16);
        assert_eq!(split(&[1], 1).threads, 1);
        for dims in [[3, 70_000], [70_000, 3], [1000, 1000]] {
            for mask in 1..4 {
                let form = Form::new(&dims, mask).unwrap();
                let s = Split::of(&form, |parts| parts);
                assert!(s.parts * s.length >= form.reduced && (s.parts - 1) * s.length < form.reduced, "{dims:?} {mask}");
            }
        }
    }

    #[test]
    fn test_g03_parts_are_as_many_as_there_is_room_for() {
        let form = Form::new(&[1 << 24], 1).unwrap();
        for most in [1, 7, 100] {
            let limited = Split::of(&form, |parts| parts.min(most));
            assert!(limited.parts <= most && limited.parts * limited.length >= 1 << 24, "{limited:?}");
        }
    }

    #[test]
    fn neighbouring_threads_follow_memory() {
        let form = Form::new(&[64, 512], 2).unwrap();
        let of = |strides: &[isize]| {
            let [outer, along, inner] = form.axes(&[64, 512], &[strides]);
            form.is_along(&along, &outer, &inner)
        };
        assert!(of(&[512, 1]));
        assert!(!of(&[1, 64]));
    }
}
