"""Runs the workloads in agtape and every peer and prints one row per workload with the ratio to torch eager.

    python run.py --device cpu --workloads digits,mlp_mid --peers torch,jax --json out.json

Bias: each (peer, workload, round) is a fresh process pinned to --threads cores. Per workload the peers run one after
the other, and every second round in reverse order (ABBA: torch, a, b | b, a, torch), so a steady drift of the machine
cancels. A ratio is taken inside one round (peer median / torch median of that round) and the geometric mean over rounds
is reported; `spread` (largest/smallest torch median over the rounds) says how noisy the machine was. With --rounds 1
nothing is cancelled. A ratio above 1 means slower than torch eager. The exit status is 1 if agtape fails or disagrees
with torch, whatever the other peers do.
"""

import argparse
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import workloads

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = dict(
    torch="torch",
    torch_fused="torch",
    torch_compile="torch",
    jax="jax",
    tinygrad="tinygrad",
    ferrotensor="ferrotensor",
    mlx="mlx",
    agtape="agtape",
)
OURS = "agtape"
DEFAULT = "agtape,torch,torch_fused,torch_compile,jax,mlx,tinygrad,ferrotensor"


def environment(a, peer, cache):
    e = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    n = str(a.threads)
    e.update(
        PYTHONUNBUFFERED="1",
        TORCHINDUCTOR_CACHE_DIR=cache + "/inductor",
        CACHEDB=cache + "/tinygrad.db",
        TMPDIR=cache,
        XLA_PYTHON_CLIENT_PREALLOCATE="false",
    )
    if a.device == "cpu":
        e.update(
            {
                k: n
                for k in (
                    "OMP_NUM_THREADS",
                    "MKL_NUM_THREADS",
                    "OPENBLAS_NUM_THREADS",
                    "RAYON_NUM_THREADS",
                    "NUM_CPU_THREADS",
                    "NPROC",
                )
            },
            JAX_PLATFORMS="cpu",
            DEV="CPU",
            CUDA_VISIBLE_DEVICES="",
        )
    else:
        e.update(JAX_PLATFORMS="cuda", DEV="CUDA")
    e.update(x.split(":", 1)[1].split("=", 1) for x in a.env if x.startswith(peer + ":"))
    return e


def one(a, peer, workload, cache):
    cmd = [
        sys.executable,
        "worker.py",
        "--peer",
        peer,
        "--module",
        MODULES[peer],
        "--workload",
        workload,
        "--device",
        a.device,
        "--threads",
        str(a.threads),
        "--min-s",
        str(a.min_s),
        "--max-s",
        str(a.max_s),
        "--timeout",
        str(a.timeout),
    ]
    t = time.time()
    os.makedirs(cache, exist_ok=True)
    try:
        p = subprocess.run(
            cmd, cwd=HERE, env=environment(a, peer, cache), capture_output=True, text=True, timeout=a.timeout
        )
    except subprocess.TimeoutExpired:
        return dict(error=f"timeout: over {a.timeout:.0f} s")
    for line in reversed(p.stdout.splitlines()):
        if line.startswith("RESULT "):
            r = json.loads(line[7:])
            if "error" in r:
                r["stderr"] = p.stderr[-1500:]
            return dict(r, wall_s=round(time.time() - t, 1))
    return dict(error=f"crashed, exit status {p.returncode}", stderr=p.stderr[-1500:])


def close(x, y, tol):
    return math.isfinite(x) and abs(x - y) <= tol * max(abs(y), 1e-12)


def summarize(name, rounds, ref="torch"):
    """rounds: [{peer: result}]; returns {peer: {...}} and compares losses with the reference peer."""
    w, out = workloads.BY_NAME[name], {}
    for peer in dict.fromkeys(p for r in rounds for p in r):
        rs = [r[peer] for r in rounds if peer in r]
        ok = [r for r in rs if "step_ms" in r]
        if not ok:
            out[peer] = {k: v for k, v in rs[-1].items() if k in ("error", "unsupported")}
            continue
        med = lambda k: statistics.median(r[k] for r in ok) if k in ok[0] else None
        s = dict(
            step_ms=med("step_ms"),
            first_s=max(r["first_s"] for r in ok),
            warm_s=max(r["warm_s"] for r in ok),
            peak_step_mb=med("peak_step_mb"),
            peak_warm_mb=med("peak_warm_mb"),
            device_peak_mb=med("device_peak_mb"),
            steps=min(r["steps"] for r in ok),
            losses=ok[0]["losses"],
            grad_norm=ok[0].get("grad_norm"),
            failed_rounds=len(rs) - len(ok),
        )
        pairs = [
            r[peer]["step_ms"] / r[ref]["step_ms"]
            for r in rounds
            if "step_ms" in r.get(peer, {}) and "step_ms" in r.get(ref, {})
        ]
        if pairs:
            s["ratio"], s["ratio_rounds"] = math.exp(sum(map(math.log, pairs)) / len(pairs)), pairs
        out[peer] = s
    t = out.get(ref, {})
    if "step_ms" in t:
        ms = [r[ref]["step_ms"] for r in rounds if "step_ms" in r.get(ref, {})]
        t["spread"] = max(ms) / min(ms)
        for s in out.values():
            if "step_ms" not in s:
                continue
            first = max(2e-4, w.tol if w.kind == "elementwise" else 0)
            s["worst_loss_diff"] = max(abs(x - y) / abs(y) for x, y in zip(s["losses"], t["losses"]))
            s["agrees"] = all(
                close(x, y, w.tol if i else first) for i, (x, y) in enumerate(zip(s["losses"], t["losses"]))
            ) and (t.get("grad_norm") is None or close(s["grad_norm"], t["grad_norm"], w.tol))
    return out


def verdict(results):
    """({title: lines to print}, does agtape itself fail). A missing agtape is a failure; what it says it lacks is not."""
    cells = [(n, q, s) for n in results for q, s in results[n].items()]
    failed = {f"{n}/{q}: {s['error']}": q for n, q, s in cells if "error" in s}
    failed.update({f"{n}/{q}: failed in {s['failed_rounds']} rounds": q for n, q, s in cells if s.get("failed_rounds")})
    failed.update(
        {
            f"{n}/{q}: {s['unsupported']}": q
            for n, q, s in cells
            if q == OURS and s.get("unsupported", "").startswith("not installed")
        }
    )
    bad = {f"{n}/{q}": q for n, q, s in cells if s.get("agrees") is False}
    lacks = sorted({f"{q}: {s['unsupported']}" for n, q, s in cells if "unsupported" in s})
    notes = {"n/a": lacks, "FAILED": list(failed), "DISAGREES WITH TORCH (loss or gradient)": list(bad)}
    return notes, OURS in [*failed.values(), *bad.values()]


def fmt(v):
    return "-" if v is None else f"{v:.3f}" if v < 1 else f"{v:.2f}" if v < 100 else f"{v:.0f}"


def tables(results, peers):
    names = list(results)

    def table(title, cell):
        rows = [["workload"] + peers] + [[n] + [cell(results[n].get(p, {}), n) for p in peers] for n in names]
        wd = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        line = lambda r: "| " + " | ".join(c.ljust(k) for c, k in zip(r, wd)) + " |"
        return "\n".join(
            [f"\n### {title}\n", line(rows[0]), "|" + "|".join("-" * (k + 2) for k in wd) + "|", *map(line, rows[1:])]
        )

    def why(s):
        return "n/a" if "unsupported" in s else "FAIL" if "error" in s else "-"

    def step(s, n):
        if "step_ms" not in s:
            return why(s)
        star = "" if s.get("agrees", True) else " BAD"
        return (
            fmt(s["step_ms"])
            + (
                f" ({s['ratio']:.2f}x)"
                if "ratio" in s and "spread" not in s
                else f" (spread {s['spread']:.2f})"
                if "spread" in s
                else ""
            )
            + star
        )

    return "\n".join(
        [
            table("median step, ms (ratio to torch eager; above 1 = slower)", step),
            table(
                "first step, s (trace + compile, cold caches)",
                lambda s, n: fmt(s["first_s"]) if "first_s" in s else why(s),
            ),
            table(
                "peak RSS growth since before the weights exist, MB: during timed steps / including warm-up and compile",
                lambda s, n: f"{s['peak_step_mb']:.0f} / {s['peak_warm_mb']:.0f}" if "peak_step_mb" in s else why(s),
            ),
            table(
                "device peak as the library reports it, MB",
                lambda s, n: fmt(s.get("device_peak_mb")) if "step_ms" in s else why(s),
            ),
            table(
                "loss at the check step (largest relative difference to torch over all check steps)",
                lambda s, n: f"{s['losses'][-1]:.6g} ({s.get('worst_loss_diff', 0):.0e})" if "losses" in s else why(s),
            ),
        ]
    )


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument(
        "--workloads",
        default="ops,digits,mlp_small,mlp_mid,mlp_deep,gpt_nano,elementwise",
        help="groups, or =NAME for one workload: " + ", ".join(workloads.GROUPS),
    )
    p.add_argument("--peers", default=DEFAULT, help="of: " + ", ".join(MODULES))
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--min-s", type=float, default=1.0, dest="min_s", help="time at least this long (and 20 steps)")
    p.add_argument("--max-s", type=float, default=12.0, dest="max_s", help="stop after this (but 3 steps)")
    p.add_argument("--timeout", type=float, default=150, help="seconds for one process")
    p.add_argument(
        "--slow",
        type=float,
        default=4,
        help="a peer this many times slower than torch in round 1 is not run again: drift is small beside that",
    )
    p.add_argument(
        "--env", action="append", default=[], metavar="PEER:KEY=VALUE", help="extra environment for one peer"
    )
    p.add_argument("--json", default=None)
    a = p.parse_args()
    names = list(
        dict.fromkeys(n for g in a.workloads.split(",") for n in workloads.GROUPS.get(g, [g.removeprefix("=")]))
    )
    peers = a.peers.split(",")
    if bad := [x for x in names if x not in workloads.BY_NAME] + [x for x in peers if x not in MODULES]:
        p.error(f"unknown: {bad}")
    if a.device == "cpu" and (big := [n for n in names if workloads.BY_NAME[n].gpu_only]):
        p.error(f"only for --device cuda: {big}")
    raw, results, root = {}, {}, tempfile.mkdtemp(prefix="peers-")
    machine = dict(
        cpu=platform.processor() or platform.machine(),
        cores=os.cpu_count(),
        python=sys.version.split()[0],
        load_before=os.getloadavg(),
        started=time.strftime("%F %T"),
    )
    try:
        with open("/proc/cpuinfo") as f:
            machine["cpu"] = next(l.split(":")[1].strip() for l in f if l.startswith("model name"))
    except (OSError, StopIteration):
        pass
    try:
        for n in names:
            raw[n] = []
            for k in range(a.rounds):
                raw[n].append({})
                for peer in peers if k % 2 == 0 else peers[::-1]:
                    first, ref = (raw[n][0].get(q, {}) for q in (peer, "torch"))
                    if k and "unsupported" in first:
                        raw[n][k][peer] = first
                        continue
                    if k and first.get("step_ms", 0) > a.slow * ref.get("step_ms", math.inf):
                        continue
                    r = raw[n][k][peer] = one(a, peer, n, f"{root}/{n}/{peer}")
                    print(
                        f"{n:20s} round {k + 1} {peer:14s} "
                        + (
                            f"{r['step_ms']:10.3f} ms x {r['steps']:<5d} first {r['first_s']:7.2f} s  loss {r['losses'][-1]:.6g}"
                            f"  [{r['wall_s']} s]"
                            if "step_ms" in r
                            else r.get("unsupported") or r["error"] + " " + r.get("stderr", "")[-300:]
                        ),
                        file=sys.stderr,
                        flush=True,
                    )
            results[n] = summarize(n, raw[n])
            if a.json:
                with open(a.json, "w") as f:
                    json.dump(dict(machine=machine, args=vars(a), summary=results, raw=raw), f, indent=1)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(tables(results, peers))
    notes, fails = verdict(results)
    for title, xs in notes.items():
        if xs:
            print(f"\n{title}:", *("\n- " + x for x in xs), sep="")
    sys.exit(1 if fails else 0)
