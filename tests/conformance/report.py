"""Owns the page `docs/conformance.md`: totals, expected differences with their reasons, and one line an op."""

import importlib.metadata

import agtape as ag
from names import NAMESPACES, NOT_OPS, offered
from rows import Count, total

LIMIT = 0.02
SAMPLES, FIRST, SECOND = "torch samples", "gradcheck", "gradgradcheck"
JUDGES = (SAMPLES, FIRST, SECOND, "torch", "jax.numpy", "array API")
WHAT = {
    SAMPLES: "torch's operator samples (OpInfo): values, and gradients for a fixed random cotangent, in float32 and float64",
    FIRST: "`torch.autograd.gradcheck`: gradients against central differences, in float64",
    SECOND: "`torch.autograd.gradgradcheck`: second derivatives against central differences, in float64",
    "torch": "torch, called under the same name",
    "jax.numpy": "jax.numpy, called under the same name: values, and gradients in float64",
    "array API": "array-api-strict, called under the same name",
}


class Op:
    """One function of agtape: its names, the namespaces that have one of them, and its counts by judge."""

    def __init__(self, names, spaces):
        self.names, self.spaces, self.counts = names, spaces, {}

    def add(self, judge, count):
        """Add what a judge counted."""
        self.counts.setdefault(judge, Count()).merge(count)


def collect(results, is_complete):
    """Sort counts by (name, judge) into ops; an op with a namespace's name but without a case is a failure."""
    ops = [Op(names, spaces) for names, spaces in offered()]
    by_name = {name: op for op in ops for name in op.names}
    for (name, judge), count in results.items():
        if name not in by_name:
            by_name[name] = Op([name], [])
            ops.append(by_name[name])
        by_name[name].add(judge, count)
    if is_complete:
        for op in ops:
            if not total(op.counts.values()).cases:
                op.add(
                    SAMPLES,
                    Count(failures=[f"{', '.join(op.names)}: has no case, though {', '.join(op.spaces)} has it"]),
                )
    else:
        ops = [op for op in ops if op.counts]
    return sorted(ops, key=lambda op: (op.names[0].startswith(("Tensor.", "nn.")), op.names[0].lower()))


def judged(ops):
    """Counts by judge over all ops."""
    return {judge: total(op.counts[judge] for op in ops if judge in op.counts) for judge in JUDGES}


def verdict(ops):
    """Failures, and the share of expected differences."""
    everything = total(count for op in ops for count in op.counts.values())
    share = sum(everything.differences.values()) / max(everything.cases, 1)
    return everything, share


def versions():
    """The judges' versions."""
    names = ("torch", "jax", "array-api-strict")
    return ", ".join(f"{name} {importlib.metadata.version(name).split('+')[0]}" for name in names)


def totals_table(ops):
    """One line a judge."""
    lines = ["| judge | cases | pass | expected difference | unexpected |", "|---|--:|--:|--:|--:|"]
    counts = judged(ops)
    for judge in JUDGES:
        c = counts[judge]
        lines.append(f"| {WHAT[judge]} | {c.cases} | {c.passed} | {sum(c.differences.values())} | {len(c.failures)} |")
    everything, share = verdict(ops)
    differences = sum(everything.differences.values())
    lines.append(
        f"| **all** | **{everything.cases}** | **{everything.passed}** | **{differences}** ({share:.1%}) "
        f"| **{len(everything.failures)}** |"
    )
    return lines


def reasons_table(ops, which):
    """One line a reason: how many cases, and of which ops."""
    found = {}
    for op in ops:
        for reason, n in getattr(total(op.counts.values()), which).items():
            cases, names = found.setdefault(reason, [0, []])
            found[reason] = [cases + n, [*names, op.names[0]]]
    lines = ["| reason | cases | ops |", "|---|--:|---|"]
    for reason, (cases, names) in sorted(found.items(), key=lambda item: -item[1][0]):
        lines.append(f"| {reason} | {cases} | {', '.join(f'`{n}`' for n in names)} |")
    return lines


def cell(op, judges):
    """Passes of all cases under some judges, or nothing."""
    count = total(op.counts[j] for j in judges if j in op.counts)
    return f"{count.passed} / {count.cases}" if count.cases else ""


def ops_table(ops):
    """One line an op: passes of cases by judge, then how many cases differ as expected."""
    lines = [
        "| op | other names | in | torch | gradcheck | jax.numpy | array API | differ |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for op in ops:
        first, *others = op.names
        cells = [cell(op, j) for j in ((SAMPLES, "torch"), (FIRST, SECOND), ("jax.numpy",), ("array API",))]
        differ = sum(total(op.counts.values()).differences.values())
        aliases = ", ".join(f"`{n}`" for n in others)
        where = ", ".join(op.spaces)
        lines.append(f"| `{first}` | {aliases} | {where} | {' | '.join(cells)} | {differ or ''} |")
    return lines


def page(ops):
    """The whole page as text."""
    everything, share = verdict(ops)
    named = sum(bool(op.spaces) for op in ops)
    skipped = "; ".join(f"{what}: {', '.join(f'`{n}`' for n in names)}" for what, names in NOT_OPS.items())
    lines = [
        "# Conformance",
        "",
        f"agtape {ag.__version__} judged by {versions()}, on the CPU. `make conformance` writes this page; do not edit it.",
        "",
        f"{named} functions and methods of agtape have a name that {', '.join(NAMESPACES)} has too; each is judged at least once. "
        "A case is one call with one set of arguments in one dtype. A case that differs for a stated reason is an expected "
        f"difference; they may be {LIMIT:.0%} of the cases at most and are {share:.1%}. Anything else that differs is unexpected, "
        "and `make conformance` fails. A stated difference that no case shows any more fails too.",
        "",
        *totals_table(ops),
        "",
        "## Expected differences",
        "",
        *reasons_table(ops, "differences"),
        "",
        "## Not offered",
        "",
        "Samples of torch's that use an argument or a form which agtape's function does not have. They are not counted as cases.",
        "",
        *reasons_table(ops, "not_offered"),
        "",
        "## Ops",
        "",
        "Passes / cases. Where NumPy and PyTorch mean different things by one name, NumPy's meaning holds, and torch's samples "
        "are translated: `split` by sections or positions, `pad` by pairs, `max` and `sort` give values alone, `var` and `std` "
        "with `correction=0`, `repeat` element by element, `equal` element by element. `gradcheck` counts both orders.",
        "",
        *ops_table(ops),
        "",
        f"Names that are no ops: {skipped}.",
        "",
    ]
    if everything.failures:
        lines += ["## Unexpected", "", *(f"- {text}" for text in everything.failures), ""]
    return "\n".join(lines)


def unexpected(ops):
    """All messages of failures, and one if there are too many expected differences."""
    everything, share = verdict(ops)
    messages = list(everything.failures)
    if share > LIMIT:
        messages.append(f"{share:.2%} of the cases are expected differences; at most {LIMIT:.0%} may be")
    return messages
