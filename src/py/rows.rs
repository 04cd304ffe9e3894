//! Normalizations, cross-entropy and the softmax of causal attention, as functions that `nn.functional` calls once it has checked what it was given.
// Each argument is one of its own, so that Python pays for no container.
#![allow(clippy::too_many_arguments)]
use super::arguments::{Checked, Int, Real, array};
use super::flags::{Flag, Word};
use super::tensor::PyTensor;
use crate::graph::Tensor;
use crate::ops::cross_entropy::{Entropy, Reduction, cross_entropy as entropy};
use crate::ops::norm::{Norm, norm};
use crate::ops::softmax;
use pyo3::prelude::*;

fn given(op: &str, t: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Tensor>> {
    t.map(|t| array(op, t)).transpose()
}

/// x made to have mean 0 and variance 1 over its last axes, scaled by weight and shifted by bias, which have their shape.
///
/// axes: how many. eps: added to the variance. Raises ValueError if shapes do not fit.
///
/// >>> from agtape import _core
/// >>> import agtape as ag
/// >>> _core.layer_norm(ag.tensor([[1.0, 3.0]]), 1, eps=0.0).tolist()
/// [[-1.0, 1.0]]
#[pyfunction]
#[pyo3(signature = (x, axes, weight = None, bias = None, eps = Real::Is(1e-5)), text_signature = "(x, axes, weight=None, bias=None, eps=1e-5)")]
pub fn layer_norm(
    x: &Bound<'_, PyAny>,
    axes: usize,
    weight: Option<&Bound<'_, PyAny>>,
    bias: Option<&Bound<'_, PyAny>>,
    eps: Real<'_>,
) -> PyResult<PyTensor> {
    let op = "layer_norm";
    let (weight, bias, eps) = (given(op, weight)?, given(op, bias)?, eps.of(op, "eps")?);
    Ok(norm(Norm { axes, rms: false, eps }, &array(op, x)?, weight.as_ref(), bias.as_ref())?.into())
}

/// x divided by the root of its mean square over the last axes, scaled by weight, which has their shape.
///
/// axes: how many. eps: added to the mean square. Raises ValueError if shapes do not fit.
///
/// >>> from agtape import _core
/// >>> import agtape as ag
/// >>> _core.rms_norm(ag.tensor([[3.0, -3.0]]), 1, eps=0.0).tolist()
/// [[1.0, -1.0]]
#[pyfunction]
#[pyo3(signature = (x, axes, weight = None, eps = Real::Is(1e-5)), text_signature = "(x, axes, weight=None, eps=1e-5)")]
pub fn rms_norm(x: &Bound<'_, PyAny>, axes: usize, weight: Option<&Bound<'_, PyAny>>, eps: Real<'_>) -> PyResult<PyTensor> {
    let op = "rms_norm";
    let (weight, eps) = (given(op, weight)?, eps.of(op, "eps")?);
    Ok(norm(Norm { axes, rms: true, eps }, &array(op, x)?, weight.as_ref(), None)?.into())
}

/// Cross-entropy of logits with integer labels, which have the logits' shape without the class axis. Class weights are constants.
///
/// axis: of the classes. ignore_index: the label whose entries count for nothing, or None. Raises ValueError or TypeError for what does
/// not fit, and IndexError for a label out of range when the result is computed.
///
/// >>> from agtape import _core
/// >>> import agtape as ag
/// >>> round(_core.cross_entropy(ag.zeros((2, 4)), ag.tensor([0, 3])).item(), 4)
/// 1.3863
#[pyfunction]
#[pyo3(signature = (x, labels, weight = None, axis = Int::Is(-1), ignore_index = None, label_smoothing = Real::Is(0.0), reduction = Word::Is("mean")), text_signature = "(x, labels, weight=None, axis=-1, ignore_index=None, label_smoothing=0.0, reduction=\"mean\")")]
pub fn cross_entropy(
    x: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    weight: Option<&Bound<'_, PyAny>>,
    axis: Int<'_>,
    ignore_index: Option<Int<'_>>,
    label_smoothing: Real<'_>,
    reduction: Word<'_>,
) -> PyResult<PyTensor> {
    let op = "cross_entropy";
    let reductions = [("mean", Reduction::Mean), ("sum", Reduction::Sum), ("none", Reduction::None)];
    let reduction = reduction.among(op, "reduction", &reductions)?;
    let (axis, ignored) = (axis.of(op, "axis")?, ignore_index.of(op, "ignore_index")?);
    let how = Entropy { axis, ignored, smoothing: label_smoothing.of(op, "label_smoothing")?, reduction };
    Ok(entropy(how, &array(op, x)?, &array(op, labels)?, given(op, weight)?.as_ref())?.into())
}

/// Softmax of a multiple of x along the last axis. If causal, row i of each matrix sees columns 0 to i only; the others become 0.
///
/// scale: the factor. Raises ValueError if x has no axis, or less than two for causal=True.
///
/// >>> from agtape import _core
/// >>> import agtape as ag
/// >>> _core.attention_softmax(ag.zeros((2, 2)), causal=True).tolist()
/// [[1.0, 0.0], [0.5, 0.5]]
#[pyfunction]
#[pyo3(signature = (x, scale = Real::Is(1.0), causal = Flag::Is(false)), text_signature = "(x, scale=1.0, causal=False)")]
pub fn attention_softmax(x: &Bound<'_, PyAny>, scale: Real<'_>, causal: Flag<'_>) -> PyResult<PyTensor> {
    // The functions that call it are known by this name.
    let op = "scaled_dot_product_attention";
    let (scale, causal) = (scale.of(op, "scale")?, causal.of(op, "is_causal")?);
    Ok(softmax::attention_softmax(&array("attention_softmax", x)?, scale, causal)?.into())
}

/// Adds this file's functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    functions!(m; layer_norm, rms_norm, cross_entropy, attention_softmax);
    Ok(())
}
