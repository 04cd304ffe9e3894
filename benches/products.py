"""Owns the CPU's matrix products beside torch's, each library in processes of its own.

`python benches/products.py` prints both medians and their ratio. In one process the threads with which torch waits for its next product hold
a core that the other library's threads need; so each measurement is a process that does nothing else.
"""

import argparse
import math
import statistics
import subprocess
import sys

PROGRAM = """
import sys, time
n, seconds, library = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if library == "torch":
    import torch
    torch.set_num_threads(int(sys.argv[4]))
    x, y = torch.rand(n, n), torch.rand(n, n)
    multiply = lambda: x @ y
else:
    import agtape as ag
    x, y = ag.rand(n, n), ag.rand(n, n)
    ag.eval(x, y)
    multiply = lambda: ag.eval(x @ y)
times, end = [], time.perf_counter() + seconds
while time.perf_counter() < end or len(times) < 4:
    begin = time.perf_counter()
    multiply()
    times.append(time.perf_counter() - begin)
times = sorted(times[1:])
print(times[len(times) // 2])
"""


def seconds(library, n, options):
    """The median time of a product of n x n float32 in a new process."""
    python = options.torch_python if library == "torch" else sys.executable
    command = [python, "-c", PROGRAM, str(n), str(options.seconds), library, str(options.threads)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main():
    """Run the rounds, every second one in reverse order, and print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="512,1024,2048")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--threads", type=int, default=2, help="torch's; agtape uses the cores that it may run on")
    parser.add_argument("--torch-python", default=sys.executable, help="an interpreter that has torch")
    options = parser.parse_args()
    print(f"{'n':>6}{'agtape ms':>12}{'torch ms':>12}{'ratio':>8}   (asked: at most 1.15)")
    for n in map(int, options.sizes.split(",")):
        found = {"agtape": [], "torch": []}
        for number in range(options.rounds):
            for library in list(found)[:: -1 if number % 2 else 1]:
                found[library].append(seconds(library, n, options))
        ratio = math.exp(statistics.fmean(math.log(a / t) for a, t in zip(found["agtape"], found["torch"])))
        ours, theirs = (statistics.median(times) * 1e3 for times in found.values())
        print(f"{n:>6}{ours:>12.2f}{theirs:>12.2f}{ratio:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
