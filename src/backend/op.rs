//! The closed list of ops as data: what a node says and a backend runs.
use super::kind::{BinaryKind, Caller, Precision, ReduceKind, UnaryKind};
use crate::device::Device;
pub use crate::rng::RandomKind;
use crate::shape::{Axes, Shape};

/// One axis of a slice: start, step (not 0), length.
pub type Range = (isize, isize, usize);

/// Views: strides and offsets where they can be, a copy where a kernel needs it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ViewOp {
    /// The same value under another identity.
    Alias,
    /// The shape of the node's output.
    Reshape,
    /// Axes in another order.
    Permute(Axes),
    /// Broadcast to the shape of the node's output.
    Expand,
    /// Every axis restricted to a range; flips have negative steps.
    Slice(Box<[Range]>),
}

/// Optimizer updates: several outputs each, computed in one pass.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UpdateKind {
    /// Inputs p, g; output p. Args lr, weight decay (added to the gradient).
    Sgd,
    /// Inputs p, g, buf; outputs p, buf. Args lr, weight decay, momentum, dampening, nesterov (0 or 1), first step (0 or 1).
    SgdMomentum,
    /// Inputs p, g, m, v; outputs p, m, v. Args lr, beta1, beta2, eps, weight decay, 1 - beta1^t, 1 - beta2^t, decoupled (0 or 1).
    /// Adam (Kingma and Ba 2015, algorithm 1); decoupled: AdamW (Loshchilov and Hutter 2019, algorithm 2).
    Adam,
}

/// Which of its optional parts a normalization has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NormForm {
    /// Divides by the root mean square; the mean stays.
    pub rms: bool,
    /// There is a weight.
    pub weight: bool,
    /// There is a bias.
    pub bias: bool,
}

/// Which of its optional parts a cross-entropy has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EntropyForm {
    /// There is a weight for each class.
    pub weight: bool,
    /// Rows whose label is arg 0 count for nothing.
    pub ignores: bool,
    /// Arg 1 is the share of the target that is spread over all classes.
    pub smooths: bool,
}

/// Where an op reads or writes at index tensors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Indexed {
    /// The number of index tensors, or the axis that the only one counts along.
    pub n: usize,
    /// Whose indices they are.
    pub by: Caller,
}

impl From<usize> for Indexed {
    fn from(n: usize) -> Indexed {
        Indexed { n, by: Caller::Own }
    }
}

/// What a node computes. Inputs are positional, attributes are fields, and numbers that change from step to step are the node's args.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// A value given from outside; no inputs.
    Leaf,
    /// One number broadcast to the output's shape: arg 0 (f64 bits for floats, i64 bits for the others).
    Const,
    /// start + i * step along the only axis: args 0 and 1 in the output's dtype convention.
    Arange,
    /// Elementwise of one input.
    Unary(UnaryKind),
    /// Elementwise of two inputs of one dtype (broadcast).
    Binary(BinaryKind),
    /// Inputs condition (bool), a, b: a where the condition holds, else b (broadcast).
    Where,
    /// To the output's dtype.
    Cast,
    /// Reduction over the axes in the bit mask; those axes are dropped from the output.
    Reduce(ReduceKind, u32),
    /// Position of the largest (`true`) or smallest along the axis, int64, first on ties, NaN wins; the axis is dropped.
    ArgExtreme(bool, usize),
    /// Running sum along an axis, from the end if `reverse`.
    Cumsum {
        /// The axis.
        axis: usize,
        /// From the end.
        reverse: bool,
    },
    /// Running product along an axis.
    Cumprod(usize),
    /// Softmax (or its logarithm) along the last axis. Arg, if there is one: what the input is multiplied by first (f64 bits).
    Softmax {
        /// The logarithm.
        log: bool,
        /// Row i along the axis before sees elements 0 to i only; what it does not see becomes 0.
        causal: bool,
    },
    /// Inputs x, and if there are any weight and bias, vectors as long as x's last axis. Outputs (x - mean) rstd weight + bias for every
    /// row along that axis, rstd, and the mean unless `rms`; statistics have x's compute type and its other axes. Arg eps (f64 bits).
    LayerNorm(NormForm),
    /// Inputs g, x, if there is one the weight, rstd, and the mean unless `rms`. Outputs the gradients of those of x, weight and bias that
    /// bits 0 to 2 of `wanted` name. Arg eps (f64 bits).
    LayerNormGrad {
        /// As in the forward op.
        rms: bool,
        /// There is a weight among the inputs.
        weight: bool,
        /// The outputs.
        wanted: u8,
    },
    /// Inputs logits with the classes along the last axis, integer labels, and if there are any class weights. Outputs for every row its
    /// loss, the largest logit, the sum of e^(logit - largest), and its label's weight if there are weights or ignored rows; all in the
    /// logits' compute type. Args the ignored label (i64 bits) and the smoothing (f64 bits).
    CrossEntropy(EntropyForm),
    /// Inputs g (as the loss), logits, labels, if there are any class weights, and the largest logits and the sums. Output the gradient of
    /// the logits. Args as in the forward op.
    CrossEntropyGrad(EntropyForm),
    /// Stable sort along the last axis, NaN larger than every number; outputs values and int64 positions.
    Sort {
        /// Largest first.
        descending: bool,
    },
    /// Matrix product of the last two axes, batch axes broadcast; both inputs have rank >= 2.
    MatMul(Precision),
    /// A view of the input.
    View(ViewOp),
    /// A row-major copy.
    Copy,
    /// Inputs one after the other along an axis.
    Concat(usize),
    /// Inputs x and k integer index tensors of one shape I: out[I.., rest..] = x[idx1[I], .., idxk[I], rest..]; negative indices count
    /// from the end, save where they are labels.
    Gather(Indexed),
    /// Inputs x, k index tensors of shape I, v of shape I + rest: x with v added at the indices (repeated ones add, in index order).
    ScatterAdd(Indexed),
    /// As ScatterAdd, but v replaces (the last of repeated ones wins).
    IndexPut(Indexed),
    /// Inputs x, idx (same rank, equal sizes except along the axis): NumPy's take_along_axis.
    TakeAlong(Indexed),
    /// Inputs x, idx, v (v as idx): x with v added at idx along the axis.
    ScatterAlong(Indexed),
    /// Inputs x, v: x with the slice replaced by v (v has the slice's shape).
    SliceAssign(Box<[Range]>),
    /// Random numbers of the output's shape.
    Random(RandomKind),
    /// An optimizer's update.
    Update(UpdateKind),
    /// The input on another device.
    Transfer(Device),
    /// A user's op: its outputs are its last inputs, which other ops computed; the node carries the gradient rule.
    Custom,
}

impl Op {
    /// The op's name, as reports and errors give it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Leaf => "leaf",
            Op::Const => "full",
            Op::Arange => "arange",
            Op::Unary(k) => k.name(),
            Op::Binary(k) => k.name(),
            Op::Where => "where",
            Op::Cast => "astype",
            Op::Reduce(k, _) => k.name(),
            Op::ArgExtreme(true, _) => "argmax",
            Op::ArgExtreme(false, _) => "argmin",
            Op::Cumsum { .. } => "cumsum",
            Op::Cumprod(_) => "cumprod",
            Op::Softmax { log: false, .. } => "softmax",
            Op::Softmax { log: true, .. } => "log_softmax",
            Op::LayerNorm(NormForm { rms: false, .. }) => "layer_norm",
            Op::LayerNorm(NormForm { rms: true, .. }) => "rms_norm",
            Op::LayerNormGrad { rms: false, .. } => "layer_norm_gradient",
            Op::LayerNormGrad { rms: true, .. } => "rms_norm_gradient",
            Op::CrossEntropy(_) => "cross_entropy",
            Op::CrossEntropyGrad(_) => "cross_entropy_gradient",
            Op::Sort { .. } => "sort",
            Op::MatMul(_) => "matmul",
            Op::View(ViewOp::Alias) => "alias",
            Op::View(ViewOp::Reshape) => "reshape",
            Op::View(ViewOp::Permute(_)) => "permute",
            Op::View(ViewOp::Expand) => "broadcast_to",
            Op::View(ViewOp::Slice(_)) => "slice",
            Op::Copy => "copy",
            Op::Concat(_) => "concat",
            Op::Gather(_) => "gather",
            Op::ScatterAdd(_) => "scatter_add",
            Op::IndexPut(_) => "index_put",
            Op::TakeAlong(_) => "take_along_axis",
            Op::ScatterAlong(_) => "scatter_along_axis",
            Op::SliceAssign(_) => "slice_assign",
            Op::Random(RandomKind::Uniform) => "uniform",
            Op::Random(RandomKind::Normal) => "normal",
            Op::Random(RandomKind::Randint) => "randint",
            Op::Update(UpdateKind::Sgd) => "sgd",
            Op::Update(UpdateKind::SgdMomentum) => "sgd_momentum",
            Op::Update(UpdateKind::Adam) => "adam",
            Op::Transfer(_) => "to_device",
            Op::Custom => "custom",
        }
    }

    /// The name that errors give it: that of the public function which index tensors were given to.
    pub fn called(&self) -> &'static str {
        match self {
            Op::Gather(at) | Op::ScatterAdd(at) | Op::IndexPut(at) | Op::TakeAlong(at) | Op::ScatterAlong(at) => {
                at.by.name_or(self.name())
            }
            _ => self.name(),
        }
    }

    /// Elementwise in the plan's sense: may be a member of a fused kernel.
    pub const fn is_elementwise(&self) -> bool {
        matches!(self, Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast)
    }
}

/// The shape that is left when the axes in `mask` are dropped.
pub fn dropped(shape: &[usize], mask: u32) -> Shape {
    shape.iter().enumerate().filter(|&(i, _)| mask >> i & 1 == 0).map(|(_, &d)| d).collect()
}
