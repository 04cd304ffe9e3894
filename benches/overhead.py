"""Owns the figures of what agtape costs beside its kernels: recording an op, planning a node, importing the package, the wheel's size.

`python benches/overhead.py` prints each median beside what is asked of it; `--json FILE` writes them as well. Compared, not gated.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import agtape as ag

ROOT = Path(__file__).resolve().parent.parent
MB = 1e6
# Fewer than what evaluates by itself, with the constants that some ops bring along: a batch is let go unread.
OPS = 2000
OP_US, NODE_US, IMPORT_S, WHEEL_MB = 0.6, 20.0, 0.1, 8.0


def record_us(make, rounds):
    """The median time of a call that records, with its tensor object and without the loop and the call, in microseconds."""
    w, x = ag.param([[1.0, 2.0], [3.0, 4.0]]), ag.ones((2, 2))
    times = []
    for _ in range(rounds + 1):
        with ag.grad_tape():
            spent = []
            for called in (make, lambda h, x: h):
                h = w * x
                begin = time.perf_counter()
                for _ in range(OPS):
                    h = called(h, x)
                spent.append(time.perf_counter() - begin)
            times.append((spent[0] - spent[1]) * 1e6 / OPS)
        # Dropped unread: nothing of it is computed.
        del h
    return statistics.median(times[1:])


RECORDED = {
    "h + x": lambda h, x: h + x,
    "h * 0.5": lambda h, x: h * 0.5,
    "h @ x": lambda h, x: h @ x,
    "ag.relu(h)": lambda h, x: ag.relu(h),
    "h.sum(axis=1, keepdims=True)": lambda h, x: h.sum(axis=1, keepdims=True),
    "h.reshape(4).reshape(2, 2)": lambda h, x: h.reshape(4).reshape(2, 2),
}
# Nodes that one call of these records: the number 0.5 is one, and so is the axis that is put back.
NODES = {"h * 0.5": 2, "h.sum(axis=1, keepdims=True)": 2, "h.reshape(4).reshape(2, 2)": 2}


def recording(rounds):
    """Time of recorded ops from Python, one row an op."""
    for name, make in RECORDED.items():
        nodes = NODES.get(name, 1)
        of = f", each of {nodes} nodes" if nodes > 1 else ""
        yield row(f"recorded op {name}{of}", record_us(make, rounds) / nodes, OP_US, "us")


def chain():
    """Products and activations one after the other: small values, so that planning is what a miss adds."""
    w, x = ag.param([[0.01] * 16] * 16), ag.ones((16, 16))

    def step():
        w.grad = None
        with ag.grad_tape():
            h = x
            for _ in range(256):
                h = ag.relu(h @ w)
            loss = h.sum()
        loss.backward()

    return step


def transformer():
    """Blocks of attention and two-layer networks."""
    layers = [
        (ag.nn.MultiHeadAttention(16, 2, batch_first=True), ag.nn.LayerNorm(16), ag.nn.Linear(16, 16))
        for _ in range(12)
    ]
    params = [p for block in layers for module in block for p in module.parameters()]
    x = ag.rand(2, 8, 16)

    def step():
        for p in params:
            p.grad = None
        with ag.grad_tape():
            h = x
            for attention, norm, linear in layers:
                y = norm(h)
                h = h + attention(y, y, y, need_weights=False)[0]
                h = h + ag.nn.functional.gelu(linear(norm(h)))
            loss = h.square().mean()
        loss.backward()

    return step


def timed(step):
    """Seconds that a step takes."""
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def miss_us(step, rounds):
    """What a plan-cache miss adds to a step, in microseconds a node, and the number of nodes."""
    step()
    found = []
    for _ in range(rounds):
        ag.clear_plan_cache()
        before = ag.plan_cache_stats().misses
        miss = timed(step)
        assert ag.plan_cache_stats().misses > before
        nodes = ag.last_plan().nodes
        hit = statistics.median(timed(step) for _ in range(3))
        found.append((miss - hit) * 1e6 / nodes)
    return statistics.median(found), nodes


def planning(rounds):
    """Time of a miss of the plan cache."""
    for name, make in {"256 products and activations": chain, "12 transformer blocks": transformer}.items():
        us, nodes = miss_us(make(), rounds)
        yield row(f"plan-cache miss, {name} ({nodes} nodes)", us, NODE_US, "us a node")


IMPORT = "import time, numpy; begin = time.perf_counter(); import agtape; print(time.perf_counter() - begin)"


def importing(rounds):
    """Seconds that importing the package takes once NumPy is there, each in a new process."""
    times = [float(subprocess.check_output([sys.executable, "-c", IMPORT], text=True)) for _ in range(rounds)]
    yield row("import agtape beyond NumPy", statistics.median(times), IMPORT_S, "s")


def wheel_size(rounds):
    """Size of the newest wheel that `make` built."""
    wheels = sorted((ROOT / ".venv/wheels").glob("agtape-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        return print("no wheel in .venv/wheels: `make setup` builds one", file=sys.stderr)
    yield row(f"wheel {wheels[-1].name}", wheels[-1].stat().st_size / MB, WHEEL_MB, "MB")


def row(name, measured, most, unit):
    """One figure beside what is asked."""
    return {"name": name, "measured": measured, "most": most, "unit": unit}


PARTS = {"record": recording, "plan": planning, "import": importing, "wheel": wheel_size}


def main():
    """Measure the parts asked for and print them against what is asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure, separated by commas")
    parser.add_argument("--rounds", type=int, default=9, help="repetitions that a median is taken of")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    rows = []
    for part in options.only.split(","):
        for found in PARTS[part](options.rounds):
            rows.append(found)
            mark = "" if found["measured"] <= found["most"] else "  MISSED"
            figures = f"{found['measured']:10.3f} {found['unit']:<10} asked {found['most']:g}"
            print(f"{found['name']:<58}{figures}{mark}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
