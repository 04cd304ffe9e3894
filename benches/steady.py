"""Owns the check that long training takes no more memory: pools and process over thousands of steps of workloads of benches/peers.

`python benches/steady.py` runs each workload in a process of its own: 1,000 steps, then 10,000 more over which pool bytes stay equal and
the process grows by less than 1 MB; the second step finds its plans in the cache. The exit status is 1 if one of these fails.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).resolve().parent / "peers"
WORKLOADS = "digits,ops_fwd,ops_fwdbwd,mlp_small"
MB = 1_000_000
LEAST_LOOKS = 10


def resident():
    """Bytes that this process has in memory."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def measure(name, warm, steps):
    """Run one workload; what its pools and the process held at equal distances after the first `warm` steps."""
    sys.path.insert(0, str(PEERS))
    import peer_agtape
    import workloads

    ag, w = peer_agtape.ag, workloads.BY_NAME[name]
    peer_agtape.init("cpu", 2)
    run = peer_agtape.build(w, w.params(), w.batches(), "cpu", "tape")
    misses = []
    for i in range(warm):
        run.sync(run.step(i))
        misses.append(ag.plan_cache_stats().misses)
    pools, process = [], []
    every = max(steps // LEAST_LOOKS, 1)
    for i in range(steps + 1):
        run.sync(run.step(warm + i))
        if i % every == 0:
            stats = ag.memory_stats("cpu")
            pools.append([stats.active, stats.cached, stats.reserved])
            process.append(resident())
    return {
        "pools": pools,
        "process": process,
        "second_step_hits": misses[1] == misses[0],
        "misses_after_the_first": ag.plan_cache_stats().misses - misses[0],
    }


def verdict(found):
    """What of a workload's figures is not as it should be."""
    wrong = []
    if any(pool != found["pools"][0] for pool in found["pools"]):
        wrong.append("pool bytes changed")
    if found["process"][-1] - found["process"][0] >= MB:
        wrong.append("the process grew")
    if not found["second_step_hits"]:
        wrong.append("the second step missed the plan cache")
    return wrong


def main():
    """Run the workloads asked for, each in a process of its own, and print what they held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default=WORKLOADS, help="names of benches/peers, separated by commas")
    parser.add_argument("--warm", type=int, default=1000, help="steps before the first look, at least 2")
    parser.add_argument("--steps", type=int, default=10_000, help="steps after it")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return print(json.dumps(measure(options.one, options.warm, options.steps)))
    print(f"{'workload':<12}{'pool bytes':>12}{'after':>12}{'process MB':>12}{'grown':>9}  plans after step 1  verdict")
    rows, failed = {}, False
    for name in options.workloads.split(","):
        command = [sys.executable, __file__, "--one", name, "--warm", str(options.warm), "--steps", str(options.steps)]
        found = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
        wrong, (pools, process) = verdict(found), (found["pools"], found["process"])
        rows[name] = {**found, "wrong": wrong}
        failed |= bool(wrong)
        memory = f"{process[0] / MB:>12.1f}{(process[-1] - process[0]) / MB:>+9.3f}"
        plans = f"{found['misses_after_the_first']:>18}"
        print(
            f"{name:<12}{pools[0][0]:>12}{pools[-1][0]:>12}{memory}{plans}    {', '.join(wrong) or 'steady'}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return sys.exit(int(failed))


if __name__ == "__main__":
    main()
