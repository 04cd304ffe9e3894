//! What the tests of these families run kernels on: numbers that look random, in several layouts.
use super::super::super::check::{Host, compare};
use crate::backend::Kernel;
use crate::backend::op::Op;
use crate::dtype::DType;
use crate::shape::{elems, strides};

/// Lengths of rows: single ones, primes, powers of two, one more, and longer than a workgroup's reach.
pub const LENGTHS: [usize; 8] = [1, 2, 7, 64, 257, 1000, 5000, 100_000];

/// A stream of numbers that look random.
pub struct Draw(pub u64);

impl Draw {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    /// Numbers from -scale to scale.
    pub fn values(&mut self, n: usize, scale: f64) -> Vec<f64> {
        (0..n).map(|_| (self.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0) * scale).collect()
    }

    /// A row-major tensor.
    pub fn host(&mut self, dtype: DType, shape: &[usize], scale: f64) -> Host {
        let values = self.values(elems(shape), scale);
        Host::new(dtype, shape, &values)
    }

    /// The same with its axes stored in reverse order behind a gap.
    pub fn reversed(&mut self, dtype: DType, shape: &[usize], scale: f64) -> Host {
        let stored: Vec<usize> = shape.iter().rev().copied().collect();
        let steps: Vec<isize> = strides(&stored).iter().rev().copied().collect();
        let values = self.values(elems(shape) + 3, scale);
        Host::new(dtype, &[values.len()], &values).seen(shape, &steps, 3)
    }

    /// The same with unused elements behind each row.
    pub fn padded(&mut self, dtype: DType, shape: &[usize], scale: f64) -> Host {
        let mut stored = shape.to_vec();
        if let Some(last) = stored.last_mut() {
            *last += 5;
        }
        let steps = strides(&stored).to_vec();
        let values = self.values(elems(&stored) + 2, scale);
        Host::new(dtype, &[values.len()], &values).seen(shape, &steps, 2)
    }
}

/// Compares an op on both backends.
pub fn run(op: Op, ins: &[Host], outs: &[(DType, Vec<usize>)], args: &[u64], tolerance: (f64, f64)) {
    compare(&Kernel::Op(op), &outs[0].1, ins, outs, args, tolerance);
}
