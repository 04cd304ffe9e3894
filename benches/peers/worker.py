"""One peer, one workload, one fresh process (started by run.py). Prints one line: RESULT {json}."""

import argparse
import importlib
import json
import os
import statistics
import time
import traceback

import numpy as np
import workloads
from workloads import Unsupported


def mem(key):  # VmRSS / VmHWM in MB (Linux); 0.0 elsewhere
    try:
        with open("/proc/self/status") as f:
            return next(int(l.split()[1]) / 1024 for l in f if l.startswith(key))
    except (OSError, StopIteration):
        return 0.0


def reset_peak():  # VmHWM := VmRSS
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass


def grad_norm(grads):
    return float(np.sqrt(sum((np.asarray(g, np.float64) ** 2).sum() for g in grads.values())))


def measure(a):
    w, out = workloads.BY_NAME[a.workload], {}
    t = time.perf_counter()
    mod = importlib.import_module("peer_" + a.module)
    mod.init(a.device, a.threads)
    out["import_s"] = time.perf_counter() - t
    w.batches()  # its lazy imports (sklearn) do not count either
    reset_peak()
    base = mem("VmRSS")
    params, batches = w.params(), w.batches()
    run = mod.build(w, params, batches, a.device, mod.VARIANTS[a.peer])
    del params, batches
    out["params_mb"] = mem("VmRSS") - base
    t0 = time.perf_counter()
    for i in range(w.check):  # from the initial weights: first step, warm-up and the agreement check
        t = time.perf_counter()
        r = run.step(i)
        run.sync(r)
        if i == 0:
            out["first_s"], t1 = time.perf_counter() - t, time.perf_counter()
        out.setdefault("losses", []).append(run.item(r))
        if time.perf_counter() - t1 > a.timeout / 2:
            raise TimeoutError(
                f"steps 2 to {i + 1} took {time.perf_counter() - t1:.0f} s, the first {out['first_s']:.0f} s"
            )
    out["warm_s"] = time.perf_counter() - t0  # all check steps, so a second-step capture/compile shows here
    t, i = time.perf_counter(), w.check
    while i < w.check + 3 or (time.perf_counter() - t < 0.3 and i < w.check + 500):
        run.sync(run.step(i))
        i += 1
        if time.perf_counter() - t > a.max_s / 4:
            break
    out["peak_warm_mb"] = mem("VmHWM") - base  # compile and first steps included
    reset_peak()
    ts, t0 = [], time.perf_counter()
    while len(ts) < 5000:
        t = time.perf_counter()
        run.sync(run.step(i))
        e = time.perf_counter()
        ts.append(e - t)
        i += 1
        if (len(ts) >= 20 and e - t0 > a.min_s) or (len(ts) >= 3 and e - t0 > a.max_s):
            break
    out.update(
        step_ms=statistics.median(ts) * 1e3,
        p10_ms=float(np.percentile(ts, 10)) * 1e3,
        p90_ms=float(np.percentile(ts, 90)) * 1e3,
        steps=len(ts),
        peak_step_mb=mem("VmHWM") - base,
        end_mb=mem("VmRSS") - base,
        rss_mb=mem("VmRSS"),
    )
    if run.device_peak:
        out["device_peak_mb"] = (run.device_peak() or 0) / 2**20
    if run.grads and w.backward and w.kind in ("chain", "elementwise"):
        out["grad_norm"] = grad_norm(run.grads())
    out["info"] = run.info
    return out


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    for k in ("peer", "module", "workload", "device"):
        p.add_argument("--" + k)
    p.add_argument("--threads", type=int)
    p.add_argument("--min-s", type=float, dest="min_s")
    p.add_argument("--max-s", type=float, dest="max_s")
    p.add_argument("--timeout", type=float)
    a = p.parse_args()
    if hasattr(os, "sched_setaffinity") and a.device == "cpu":  # no library can use more cores than this
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: a.threads])
    try:
        r = measure(a)
    except Unsupported as e:
        r = dict(unsupported=str(e))
    except ModuleNotFoundError as e:
        r = dict(unsupported=f"not installed: {e}")
    except Exception as e:
        traceback.print_exc()
        r = dict(error=f"{type(e).__name__}: {str(e)[:300]}")
    print("RESULT " + json.dumps(r), flush=True)
    os._exit(0)  # skip at-exit hooks of the libraries
