"""Owns the memory figures: what budgets and segments cost in time, peaks beside torch's and the process's own, planning a large step.

`python benches/memory.py` prints every figure beside what is asked of it. Each part runs in a process of its own; the exit status is 1 if a
figure of bytes misses (times are compared, not gated). `--torch-python` names an interpreter that has torch.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benches" / "peers")]
MIB = 1 << 20
ROUNDS = 9
DEEP_BATCH = 4096


def resident(key="VmRSS"):
    """Bytes that this process has in memory, now or at most (`VmHWM`)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))


def forget_peak():
    """Let `VmHWM` begin at what is resident now."""
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")


def seconds(step):
    """The fastest of three steps after one that brings buffers and caches back."""
    step()
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return min(times)


def interleaved(ways):
    """{name: median over rounds of its time over the first way's}, every second round in reverse order."""
    names = list(ways)
    ratios = {name: [] for name in names[1:]}
    for number in range(ROUNDS):
        order = names if number % 2 == 0 else names[::-1]
        took = {name: seconds(ways[name]) for name in order}
        for name, found in ratios.items():
            found.append(took[name] / took[names[0]])
    return {name: statistics.median(found) for name, found in ratios.items()}


def chain_times():
    """Wall time of the chain under a budget over the plain one's, beside the ratio of work."""
    from budget.models import Chain, Step
    from pool_bytes import class_bytes

    # Values so large that launches, not planning and recording, take the time.
    length, elems = 1000, 1 << 16
    model = Chain(length, elems)
    plain = Step(model)
    budget = plain.fixed + int(2 * length**0.5 * class_bytes(4 * elems))
    work = Step(model, budget).plan.work_ratio
    ways = {"plain": lambda: train(model), "bounded": lambda: train(model, budget)}
    name = f"chain of {length:,} layers under 2*sqrt({length}) activations"
    yield row(f"{name}, time", interleaved(ways)["bounded"], 1.15 * work, f"{work:.3f} times the work")


def train(model, budget=None):
    """One forward and backward pass, with nothing looked at."""
    import agtape as ag

    for p in model.params:
        p.grad = None
    with ag.grad_tape(budget=budget):
        loss = model.loss()
    loss.backward()


def budget_times():
    """Wall time of budgeted runs over the plain run's, beside the ratio of work."""
    from budget.models import Mlp, Step, Transformer

    models = {
        "transformer, 12 blocks of width 64, batch 16": (Transformer(width=64, length=64, batch=16), (3, 5, 10)),
        "MLP, 48 layers of width 64, batch 4096": (Mlp(), (2, 3, 5)),
    }
    for name, (model, parts) in models.items():
        plain, ways, works = Step(model), {"plain": lambda model=model: train(model)}, {}
        for part in parts:
            budget = plain.fixed + plain.activations // part
            works[f"1/{part}"] = Step(model, budget).plan.work_ratio
            ways[f"1/{part}"] = lambda model=model, budget=budget: train(model, budget)
        for part, ratio in interleaved(ways).items():
            yield row(f"{name}: {part}, time", ratio, 1.15 * works[part], f"{works[part]:.3f} times the work")


def segment_times():
    """Segments of the root of the number of layers: time over the plain run's, and activations at the peak."""
    import agtape as ag
    from budget.models import Mlp, Step
    from pool_bytes import class_bytes

    class Segments(Mlp):
        def loss(self):
            h = self.x
            for at in range(0, len(self.params), 2 * self.size):
                h = ag.checkpoint(self.run, h, at)
            return (h * h).mean()

        def run(self, h, at):
            for w, b in zip(self.params[at : at + 2 * self.size : 2], self.params[at + 1 : at + 2 * self.size : 2]):
                h = ag.relu(h @ w + b)
            return h

    for size, width, batch in ((7, 64, 4096), (6, 128, 4096)):
        plain, model = Mlp(size * size, width, batch), Segments(size * size, width, batch)
        model.size = size
        name = f"MLP, {size * size} layers of width {width}, batch {batch}, segments of {size}"
        step, whole = Step(model), Step(plain)
        values = step.activations / class_bytes(4 * width * batch)
        plainly = f"{whole.activations / class_bytes(4 * width * batch):.1f} without segments"
        yield row(f"{name}: activations at the peak", values, 1.1 * (size + size + 2), plainly, is_bytes=True)
        ratio = interleaved({"plain": lambda m=plain: train(m), "segments": lambda m=model: train(m)})["segments"]
        yield row(f"{name}: time", ratio, 1.38, f"{step.plan.work / whole.plan.work:.3f} times the work")


def live_bytes(peer, workload):
    """Live bytes at the peak of one training step: parameters, optimizer state, batches, gradients and values."""
    import importlib

    import workloads

    w = workloads.BY_NAME[workload]
    if w.kind == "mlp":
        w = replace(w, cfg={**w.cfg, "batch": DEEP_BATCH})
    module = importlib.import_module(f"peer_{peer}")
    module.init("cpu", 2)
    batches = w.batches()
    run = module.build(w, w.params(), batches, "cpu", module.VARIANTS[peer])
    for number in range(3):
        run.sync(run.step(number))
    if peer == "agtape":
        module.ag.empty_cache()
        module.ag.reset_peak_memory()
        run.sync(run.step(0))
        return run.device_peak()
    # Its profiler sees what a step allocates, and is told of parameters and optimizer state; the batches come on top. Labels are int64.
    sizes = [a.nbytes if a.dtype.kind == "f" else 8 * a.size for pair in batches for a in pair]
    return run.device_peak() + sum(sizes)


def peaks_beside_torch(torch_python):
    """Live bytes at the peak, ours and torch's."""
    for workload in ("gpt_nano_ckpt", "mlp_deep_ckpt"):
        ours = in_process(["--live", "agtape", workload])["bytes"]
        try:
            theirs = in_process(["--live", "torch", workload], torch_python)["bytes"]
        except RuntimeError as error:
            print(f"{workload}: torch did not run ({error})")
            continue
        yield row(f"{workload}: live bytes at the peak, MiB", ours / MIB, theirs / MIB, "torch's own", is_bytes=True)


def process_growth(name, budget):
    """Planned peak of a model of more than 500 MB against what the process gained since before the model."""
    import agtape as ag
    from budget.models import Mlp

    class Twice(Mlp):
        """Two activations a layer, each as large as the layer's weight: more than the gradients, and in buffers that gradients can have."""

        def loss(self):
            h = self.x
            for w, b in zip(self.params[::2], self.params[1::2]):
                h = ag.tanh(ag.sigmoid(h @ w + b))
            return (h * h).mean()

    train(Mlp(2, 64, 512))
    ag.empty_cache()
    before = resident()
    # Parameters of 537 MB, gradients of as many, activations of twice as many: they die while gradients come to be. Or values of eight
    # times a weight's size, which no gradient's buffer can hold.
    model = {"equal": lambda: Twice(128, 1024, 1024), "large": lambda: Mlp(64, 512, 4096)}[name]()
    fixed = 2 * sum(p.nbytes for p in model.params) + model.x.nbytes
    # What NumPy needed to make the weights is not the step's.
    ctypes.CDLL(None).malloc_trim(0)
    forget_peak()
    train(model, budget or None)
    return {"planned": ag.last_plan().peak_bytes, "grown": resident("VmHWM") - before, "fixed": fixed}


def planned_against_process():
    """Planned peaks and the process's growth, plain and under a budget; each in its own process, since an allocator keeps what a step left."""
    ways = {
        "parameters of 537 MB, no budget": ("equal", lambda _: 0),
        "parameters of 537 MB, half of the activations": (
            "equal",
            lambda plain: (plain["planned"] + plain["fixed"]) // 2,
        ),
        "values of eight times a weight's size, no budget": ("large", lambda _: 0),
        "values of eight times a weight's size, a third of the activations": (
            "large",
            lambda plain: (plain["planned"] + 2 * plain["fixed"]) // 3,
        ),
    }
    found = None
    for way, (name, budget_of) in ways.items():
        found = in_process(["--process", name, str(budget_of(found))])
        apart = abs(found["grown"] / found["planned"] - 1)
        note = f"planned {found['planned'] / MIB:.0f} MiB, grown by {found['grown'] / MIB:.0f}"
        yield row(f"{way}: process apart from the plan", apart, 0.05, note, is_bytes=True)


def planning():
    """Seconds that planning adds to the first step under a budget."""
    import agtape as ag
    from budget.models import Mlp, Step, Transformer

    # As many nodes: forward, gradient and sums of gradients.
    models = {"MLP of 1,250 layers": Mlp(1250, 16, 64), "transformer of 120 blocks": Transformer(120, 16, 2, 16, 2)}
    for name, model in models.items():
        plain = Step(model)
        for part in (3, 10):
            budget = plain.fixed + plain.activations // part
            ag.clear_plan_cache()
            times, hits = [], []
            for _ in range(3):
                begin = time.perf_counter()
                step = Step(model, budget)
                times.append(time.perf_counter() - begin)
                hits.append(step.plan.cache_hit)
            launches = step.plan.kernels - step.plan.rebuilds
            note = f"{step.plan.nodes} nodes, {launches} launches, then cached: {hits[1:] == [True, True]}"
            yield row(f"{name}: 1/{part}, seconds of planning", times[0] - min(times[1:]), 2.0, note)


def row(name, measured, most, note="", is_bytes=False):
    """One figure beside what is asked."""
    return {"name": name, "measured": measured, "most": most, "note": note, "is_bytes": is_bytes}


def in_process(arguments, python=sys.executable):
    """Run this file in a process of its own; the last line it prints is JSON."""
    done = subprocess.run([python, __file__, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


PARTS = {
    "budgets": budget_times,
    "chain": chain_times,
    "segments": segment_times,
    "torch": peaks_beside_torch,
    "process": planned_against_process,
    "planning": planning,
}


def main():
    """Measure the parts asked for, each in a process of its own, and print them against what is asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure, separated by commas")
    parser.add_argument("--torch-python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--live", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--process", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.live:
        print(json.dumps({"bytes": live_bytes(*options.live)}), flush=True)
        os._exit(0)  # what libraries do at the end of a process is not looked at
    if options.process:
        name, budget = options.process
        return print(json.dumps(process_growth(name, int(budget))))
    if options.part:
        part = PARTS[options.part]
        return print(json.dumps(list(part(options.torch_python) if options.part == "torch" else part())))
    missed = False
    for part in options.only.split(","):
        for found in in_process(["--part", part, "--torch-python", options.torch_python]):
            holds = found["measured"] <= found["most"]
            missed |= found["is_bytes"] and not holds
            mark = "" if holds else "  MISSED"
            print(
                f"{found['name']}: {found['measured']:.3f}, asked {found['most']:.3f} ({found['note']}){mark}",
                flush=True,
            )
    return sys.exit(int(missed))


if __name__ == "__main__":
    main()
