"""The examples run, briefly, as a user would run them."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name, *arguments, cwd):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n").split("\n")


def test_the_transformer_learns_a_little_and_writes(tmp_path):
    lines = run("transformer.py", "--steps", "25", "--batch", "8", "--context", "32", "--write", "20", cwd=tmp_path)
    first, last, even = map(
        float, re.fullmatch(r"loss: ([\d.]+) at first, ([\d.]+) at the end .*: ([\d.]+)\)", lines[1]).groups()
    )
    assert abs(first - even) < 0.3
    assert last < first - 0.3
    assert "\n".join(lines[2:]).startswith("The ")


def test_M08_M09_memory_is_compared_with_equal_losses(tmp_path):
    sizes = ("--layers", "3", "--width", "32", "--batch", "8", "--context", "32", "--steps", "3")
    lines = run("memory.py", *sizes, "--ending", ".svg", cwd=tmp_path)
    estimate = float(re.fullmatch(r"estimated peak of a plain step: ([\d.]+) MiB", lines[0])[1])
    rows = [re.fullmatch(r"(.+?) +([\d.]+) MiB +([\d.]+) +([\d.]+)  yes", line) for line in lines[2 : lines.index("")]]
    assert all(rows), lines
    peaks = {row[1]: float(row[2]) for row in rows}
    names = ["plain", "checkpointed", "budget 1/2", "budget 1/3", "budget 1/5"]
    assert [name.split(":")[0] for name in peaks] == names and len(rows) == len(names)
    assert abs(estimate - peaks["plain"]) <= 0.05 * peaks["plain"]
    assert peaks["checkpointed"] < peaks["plain"]
    for name, peak in peaks.items():
        if name.startswith("budget"):
            assert peak <= float(name.split(":")[1].removesuffix(" MiB")) + 0.05
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["memory_checkpointed.svg", "memory_plain.svg"]


def test_the_demo_reads_96_of_100_digits_and_says_so_last(tmp_path):
    lines = run("mnist.py", "--picture", "digits.png", cwd=tmp_path)
    accuracy = re.fullmatch(r"test accuracy: (\d+\.\d) %", lines[-1])
    assert accuracy, lines[-1]
    assert float(accuracy[1]) >= 96
    assert any(re.fullmatch(r"  nodes +[1-9][\d,]*", line) for line in lines)
    assert any(re.fullmatch(r"  activations +[1-9][\d,]* bytes", line) for line in lines)
    assert (tmp_path / "digits.png").stat().st_size > 10_000


def test_the_demo_never_trains_on_a_test_digit():
    spec = importlib.util.spec_from_file_location("mnist_demo", EXAMPLES / "mnist.py")
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    (train, train_labels), (test, test_labels) = demo.load_digits()
    assert train.shape == (4000, 784)
    assert np.bincount(test_labels).tolist() == [100] * 10
    assert np.bincount(train_labels).tolist() == [400] * 10
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in test}
    moved, labels = demo.shift_images(np.random.default_rng(0), train[:50], train_labels[:50])
    assert moved.shape == (50, 784)
    assert (labels == train_labels[:50]).all()
    for image, other in zip(train[:50].reshape(-1, 28, 28), moved.reshape(-1, 28, 28)):
        shifts = [np.roll(image, (dy, dx), (0, 1)) for dy in range(-2, 3) for dx in range(-2, 3)]
        # Digits keep their distance from the border, so what leaves the frame is black too.
        assert any(
            np.abs(other - shifted).sum() <= image[[0, 1, -2, -1]].sum() + image[:, [0, 1, -2, -1]].sum()
            for shifted in shifts
        )
