"""What a newcomer gets wrong in the README's first example: each mistake is an error that says what was given and what was expected."""

import re
from pathlib import Path

import agtape as ag
import numpy as np
import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
EXAMPLE = re.search(r"## A first example\n\n```python\n(.*?)```", README, re.DOTALL)[1].replace(
    "range(200)", "range(2)"
)

# What is written, what is written instead, the exception's class, and words of its message in their order.
MISTAKES = {
    "float labels": (".astype(np.int64))", ".astype(np.float32))", (TypeError, ValueError), ["cross_entropy", "float"]),
    "labels beyond the classes": ("> 0).astype(np.int64)", "> 0) * 2).astype(np.int64)", IndexError, ["cross_entropy", "2", "0 to 1", "called at"]),
    "no tape": ("with ag.grad_tape() as tape:", "tape = None\n    if True:", RuntimeError, ["backward", "not recorded", "grad_tape()"]),
    "no leaf": ("ag.param(", "ag.tensor(", ValueError, ["Adam", "(2, 32)", "never required a gradient", "ag.param"]),
    "weight of another shape": ("(2, 32)", "(3, 32)", ValueError, ["matmul", "[512, 2]", "[3, 32]", "(2)", "must equal"]),
    "bias of another shape": ("np.zeros(32", "np.zeros(31", ValueError, ["add", "[512, 32]", "[31]", "broadcast"]),
    "classes in the wrong place": ("argmax(axis=1)", "argmax(axis=2)", ValueError, ["argmax", "axis 2", "2 dimension"]),
    "a leaf instead of a list": ("[w1, b1, w2]", "w1", TypeError, ["Adam", "params is one Tensor", "put it in a list"]),
    "a leaf twice": ("[w1, b1, w2]", "[w1, b1, w1]", ValueError, ["Adam", "(2, 32)", "twice"]),
    "a computed leaf": ("w2 = ag.param(", "w2 = 1 * ag.param(", ValueError, ["Adam", "(32, 2)", "never required a gradient", "ag.param"]),
    "a rate that is text": ("lr=0.02", "lr='0.02'", TypeError, ["Adam", "lr is '0.02'", "number"]),
    "a negative rate": ("lr=0.02", "lr=-0.02", ValueError, ["Adam", "lr is -0.02", "not negative"]),
    "a loss of many": ("cross_entropy(logits(x), y)", "cross_entropy(logits(x), y, reduction='none')", ValueError, ["backward", "[512]", "gradient=", "one element"]),
    "backward twice": ("    opt.step()", "    loss.backward()\n    opt.step()", RuntimeError, ["backward", "freed", "retain_graph=True"]),
    "a weight changed while recording": ("        loss = ag", "        w1 += 1\n        loss = ag", RuntimeError, ["+=", "leaf", "no_grad()"]),
    "an array's method": ("logits(x).argmax", "logits(x).arg_max", AttributeError, ["arg_max"]),
    "a product of vectors": ("x @ w1 + b1", "x * w1 + b1", ValueError, ["multiply", "[512, 2]", "[2, 32]", "broadcast"]),
    "mixed devices": ("ag.tensor(points),", "ag.tensor(points, device='cuda'),", ValueError, ["cuda", "cpu"]),
    "text as data": ("ag.tensor(points),", "ag.tensor('points.csv'),", TypeError, ["tensor", "<U10", "booleans"]),
    "the truth of a tensor": ("    loss.backward()", "    assert logits(x) > 0\n    loss.backward()", ValueError, ["truth", "[512, 2]", "any() or all()"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_U01_a_mistake_in_the_first_example_is_explained(name, capsys):
    written, instead, error, words = MISTAKES[name]
    assert written in EXAMPLE, "the README's example has changed"
    code = EXAMPLE.replace(written, instead)
    if name == "labels beyond the classes":
        code = code.replace("(points[:, 0]", "((points[:, 0]")
    run = compile(code, "example.py", "exec")
    with pytest.raises(error) as caught:
        exec(run, {})
    text, at = str(caught.value), 0
    for word in words:
        at = text.find(word, at)
        assert at >= 0, f"{word!r} is not in its place in {text!r}"
    assert "internal error" not in text
    # Nothing is left behind: the example as it is written still works.
    exec(compile(EXAMPLE, "example.py", "exec"), {})
    assert "right" in capsys.readouterr().out and not ag.is_grad_enabled() and np.isfinite(ag.ones(1).item())
