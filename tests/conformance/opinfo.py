"""Owns torch's sample database as judge: every row's samples, forward and backward with a fixed random cotangent."""

import agtape as ag
import torch
from bridge import Unlike, compare, describe, flat_outputs, split_sample, to_agtape
from rows import DIFFERENCE, FAILURE, NOT_OFFERED, PASS, Count
from rows_elementwise import ROWS as ELEMENTWISE
from rows_indexing import ROWS as INDEXING
from rows_nn import ROWS as NN
from rows_reductions import ROWS as REDUCTIONS
from rows_shapes import ROWS as SHAPES
from torch.testing._internal.common_methods_invocations import op_db

ROWS = (*ELEMENTWISE, *REDUCTIONS, *SHAPES, *INDEXING, *NN)
SEED = 20_231
FLOATS = (torch.float32, torch.float64)


def operators():
    """torch's operator records by name, with the variant after a dot."""
    return {op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}


def dtypes_of(op):
    """float32 and float64; for an operator that takes no floats int64 and bool."""
    known = op.supported_dtypes("cpu")
    return [d for d in FLOATS if d in known] or [d for d in (torch.int64, torch.bool) if d in known]


def samples_of(op, dtype, limit):
    """At most `limit` samples, evenly from all that torch has."""
    torch.manual_seed(SEED)
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and dtype in FLOATS))
    if len(samples) <= limit:
        return samples
    return [samples[i * len(samples) // limit] for i in range(limit)]


class Case:
    """One sample of one row: torch's results, and what agtape makes of the same arguments."""

    def __init__(self, row, op, sample):
        self.row, self.op, self.sample = row, op, sample
        self.leaves, self.call = split_sample(sample)

    def torch_results(self):
        """torch's outputs, the cotangents of those with a gradient (else None) and the gradients."""
        leaves = [leaf.clone().requires_grad_(True) for leaf in self.leaves]
        # Some operators change their input in place, which a leaf forbids.
        outs = flat_outputs(self.call(self.op, [leaf.clone() for leaf in leaves]))
        generator = torch.Generator().manual_seed(SEED)
        cots = [
            torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o.dtype)
            if isinstance(o, torch.Tensor) and o.requires_grad
            else None
            for o in outs
        ]
        pairs = [(o, c) for o, c in zip(outs, cots) if c is not None]
        if not pairs or not leaves:
            return outs, None, []
        grads = torch.autograd.grad([o for o, _ in pairs], leaves, [c for _, c in pairs], allow_unused=True)
        grads = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, grads)]
        return outs, cots, grads

    def compares(self):
        """Whether all is compared or the shape alone."""
        how = self.row.compares
        return how(self.sample.input, *self.sample.args, **self.sample.kwargs) if callable(how) else how

    def our_outputs(self, *tensors):
        """agtape's outputs as a list."""
        return flat_outputs(self.call(self.row.call, tensors, to_agtape))

    def judge(self):
        """Raise `Unlike` if forward or backward differ; its `part` says which."""
        expected, cots, grads = self.torch_results()
        slack, compares = self.row.slack, self.compares()
        ag.manual_seed(SEED)
        if cots is None:
            compare("result", self.our_outputs(*map(to_agtape, self.leaves)), expected, slack, compares)
            return
        outs, pull = ag.vjp(self.our_outputs, *map(to_agtape, self.leaves))
        compare("result", outs, expected, slack, compares)
        if compares == "shape":
            return
        try:
            ours = pull([ag.zeros_like(o) if c is None else to_agtape(c) for o, c in zip(outs, cots)])
            compare("gradient", list(ours), grads, slack)
        except Exception as error:
            error.part = "backward"
            raise


def run_sample(row, op, sample):
    """What one sample ends in: an outcome and its text."""
    arguments = (sample.input, *sample.args)
    for reason, when in row.not_offered:
        if when(*arguments, **sample.kwargs):
            return NOT_OFFERED, reason
    try:
        Case(row, op, sample).judge()
    except Exception as error:
        part = getattr(error, "part", "call")
        for difference in row.differs:
            if difference.where == part and difference.when(*arguments, **sample.kwargs):
                return DIFFERENCE, difference.reason
        kind = "" if isinstance(error, Unlike) else f"{type(error).__name__}: "
        return FAILURE, f"{row.op} as {row.offered}({describe(sample)}): {kind}{error}"
    return PASS, ""


def run_row(row, op, limit):
    """The count of one row over its dtypes; a listed difference that none of all samples shows is a failure too."""
    count, is_whole = Count(), True
    for dtype in dtypes_of(op):
        samples = samples_of(op, dtype, limit)
        is_whole &= len(samples) < limit
        for sample in samples:
            count.add(*run_sample(row, op, sample))
    for difference in row.differs:
        if is_whole and difference.reason not in count.differences:
            count.add(
                FAILURE, f"{row.op} as {row.offered}: no sample shows the difference {difference.reason!r}; remove it"
            )
    return count


def run(limit, is_chosen):
    """Counts by (agtape's name, torch's name), over the rows whose names are chosen."""
    known = operators()
    results = {}
    for row in ROWS:
        if not is_chosen(row.op, row.offered):
            continue
        if row.op not in known:
            results[row.offered, row.op] = Count(failures=[f"{row.op}: torch has no such samples"])
            continue
        results[row.offered, row.op] = run_row(row, known[row.op], limit)
    return results
