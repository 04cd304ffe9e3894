"""Judges agtape's ops by torch, jax.numpy and the array API, and writes the page that says how it went.

    run.py [--write docs/conformance.md] [--limit 64] [NAME ...]

With names (of agtape or of torch), only their cases run and nothing is written. Exit status 1 if anything differs unexpectedly.
"""

import argparse
import pathlib
import sys
import time
import warnings

import gradcheck
import names
import opinfo
import report
from rows import Count


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="ops to run, by agtape's or torch's name; all by default")
    parser.add_argument("--write", type=pathlib.Path, help="the page to write")
    parser.add_argument(
        "--limit", type=int, default=64, help="samples an operator and dtype, evenly from all (default: 64)"
    )
    return parser.parse_args()


def run(limit, is_chosen):
    """Counts by (agtape's name, judge)."""
    results = {}

    def add(key, count):
        results.setdefault(key, Count()).merge(count)

    for part, counts in (
        (
            "torch's samples",
            lambda: {(name, report.SAMPLES, op): c for (name, op), c in opinfo.run(limit, is_chosen).items()},
        ),
        ("gradcheck", lambda: gradcheck.run(is_chosen)),
        ("names", lambda: names.run(is_chosen)),
    ):
        start = time.perf_counter()
        for key, count in counts().items():
            add(key[:2], count)
        print(f"{part}: {time.perf_counter() - start:.0f} s", flush=True)
    return results


def main():
    """Run, print, write; returns the exit status."""
    options = arguments()
    warnings.filterwarnings("ignore")  # torch's samples warn of their own deprecations
    wanted = set(options.names)
    ops = report.collect(run(options.limit, lambda *known: not wanted or not wanted.isdisjoint(known)), not wanted)
    messages = report.unexpected(ops)
    for message in messages:
        print(f"unexpected: {message}")
    print("\n".join(report.totals_table(ops)))
    if options.write and not wanted:
        options.write.write_text(report.page(ops))
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
