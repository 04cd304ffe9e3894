"""Owns torch's gradcheck and gradgradcheck as judges of agtape's gradient rules, in float64."""

import agtape as ag
import torch
from bridge import describe, to_agtape
from opinfo import ROWS, Case, operators, samples_of
from rows import FAILURE, PASS, Count

# Samples an operator, and values a sample may have.
SAMPLES, VALUES = 3, 1000
# Fast mode widens `atol` by the number of values; with torch's defaults a gradient wrong by a hundredth would pass on some samples.
ATOL, RTOL = 1e-8, 1e-4


def is_float(value):
    """Whether an output has a gradient."""
    return isinstance(value, ag.Tensor) and str(value.dtype) in ("float32", "float64")


def pulled_back(fn, count):
    """The function that maps inputs and cotangents of `fn` to gradients of the inputs; itself differentiable."""

    def pull(*tensors):
        inputs, cots = tensors[:count], tensors[count:]
        return list(ag.vjp(lambda *xs: [o for o in fn(*xs) if is_float(o)], *inputs)[1](list(cots)))

    return pull


def as_torch(fn):
    """A function of agtape tensors as one of torch tensors whose gradient, of any order, is agtape's."""

    class Ours(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.save_for_backward(*tensors)
            outs = [o for o in fn(*[to_agtape(t) for t in tensors]) if is_float(o)]
            return tuple(torch.from_numpy(o.numpy().copy()) for o in outs)

        @staticmethod
        def backward(ctx, *cots):
            pull = pulled_back(fn, len(ctx.saved_tensors))
            return as_torch(pull)(*ctx.saved_tensors, *cots)

    return Ours.apply


def fits(leaves):
    """Whether a sample is small and differentiable enough for central differences."""
    return bool(leaves) and 0 < sum(leaf.numel() for leaf in leaves) <= VALUES


def check(row, op, sample):
    """The outcomes of first and second order for one sample."""
    case = Case(row, op, sample)
    if not fits(case.leaves) or case.compares() == "shape":
        return []
    if not has_smooth_gradient(case):
        return []
    inputs = [leaf.clone().requires_grad_(True) for leaf in case.leaves]
    outcomes = []
    for order, judge in (("gradcheck", torch.autograd.gradcheck), ("gradgradcheck", torch.autograd.gradgradcheck)):
        try:
            judge(as_torch(case.our_outputs), inputs, fast_mode=True, atol=ATOL, rtol=RTOL)
            outcomes.append((order, PASS, ""))
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            where = f"{order} of {row.op} as {row.offered}({describe(sample)})"
            outcomes.append((order, FAILURE, f"{where}: {type(error).__name__}: {text}"))
    return outcomes


def has_smooth_gradient(case):
    """Whether outputs have a gradient, are float64, and are free of NaN with their gradients, by torch."""
    outs, _, grads = case.torch_results()
    outs = [o for o in outs if isinstance(o, torch.Tensor) and o.requires_grad]
    if any(o.dtype != torch.float64 for o in outs):
        return False
    return bool(outs) and all(bool(t.isfinite().all()) for t in (*outs, *grads))


def run(is_chosen):
    """Counts by (agtape's name, order) of the differentiable rows."""
    known = operators()
    results = {}
    for row in ROWS:
        op = known.get(row.op)
        if op is None or not is_chosen(row.op, row.offered) or not op.supports_autograd or row.compares == "shape":
            continue
        if torch.float64 not in op.supported_dtypes("cpu"):
            continue
        done = 0
        for sample in samples_of(op, torch.float64, 10_000):
            if any(when(sample.input, *sample.args, **sample.kwargs) for _, when in row.not_offered):
                continue
            if any(d.when(sample.input, *sample.args, **sample.kwargs) for d in row.differs):
                continue
            outcomes = check(row, op, sample)
            for order, outcome, text in outcomes:
                results.setdefault((row.offered, order), Count()).add(outcome, text)
            done += bool(outcomes)
            if done == SAMPLES:
                break
    return results
