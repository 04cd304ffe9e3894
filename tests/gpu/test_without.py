"""Adapters that lack something, played by test switches: without subgroups, and without 64-bit integers."""

import json

import agtape as ag
import numpy as np
import pytest
from agtape import _core
from fresh_process import WITH_TESTS, run_python
from ops.registry import ROWS
from ops.samples import arrange, as_list, to_dtype

ROW_KERNELS = """
import sys
import agtape as ag
import numpy as np
from agtape import _core

F = ag.nn.functional
rng = np.random.default_rng(0)
found = {}

def both(name, call, *arrays):
    cpu, gpu = ([t.numpy() for t in call(*[ag.tensor(a, device=d) for a in arrays])] for d in ("cpu", "gpu"))
    for k, (a, b) in enumerate(zip(cpu, gpu, strict=True)):
        rtol = 2e-3 if a.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(b, a, rtol=rtol, atol=rtol, err_msg=f"{name} {k}")
        found[f"{name} {k}"] = b

def gradients(f, *leaves):
    leaves = [t.detach().requires_grad_() for t in leaves]
    with ag.grad_tape():
        y = f(*leaves)
        loss = (y * ag.arange(y.size, dtype="float32", device=y.device).reshape(y.shape).remainder(5.0)).mean()
    loss.backward()
    return [y, *(leaf.grad for leaf in leaves)]

for shape in ((7, 1), (5, 33), (3, 300), (2, 5000)):
    n = shape[-1]
    x = rng.normal(size=shape).astype(np.float32)
    w, b = rng.normal(size=(2, n)).astype(np.float32)
    labels = rng.integers(0, n, shape[0])
    at = f"{shape}"
    both("softmax " + at, lambda x: gradients(lambda x: ag.softmax(x, -1), x), x)
    both("log_softmax " + at, lambda x: gradients(lambda x: ag.log_softmax(x, -1), x), x)
    both("layer_norm " + at, lambda x, w, b: gradients(lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), x, w, b), x, w, b)
    both("rms_norm " + at, lambda x, w: gradients(lambda x, w: F.rms_norm(x, (x.shape[-1],), w), x, w), x, w)
    both("cross_entropy " + at, lambda x, y: gradients(lambda x: F.cross_entropy(x, y, reduction="none"), x), x, labels)
    both("reductions " + at, lambda x: [f(x, axis=a) for f in (ag.sum, ag.mean, ag.max, ag.min, ag.prod) for a in (None, 0, 1)], x)
    both("positions " + at, lambda x: [f(x, axis=a) for f in (ag.argmax, ag.argmin) for a in (0, 1)], x)
    both("truths " + at, lambda x: [f(x > 2, axis=a) for f in (ag.any, ag.all) for a in (None, 0, 1)], x)
    both("scans " + at, lambda x: [ag.cumsum(x, a) for a in (0, 1)] + [ag.cumprod(ag.tanh(x), 1)], x)
    both("orders " + at, lambda x: [ag.sort(x, axis=1), ag.argsort(x, axis=0)], x)
    both("products " + at, lambda x: [x @ x.T, x[0] @ x.T, x @ x[0]], x)
    both("halves " + at, lambda x: [ag.softmax(x, -1), F.layer_norm(x, (x.shape[-1],)), x.max(axis=1)], x.astype(np.float16))
np.savez(sys.argv[1], **found)
print(_core.adapter_limits("gpu")["subgroup"])
"""


@pytest.mark.promise("G01")
def test_G01_without_subgroups_row_kernels_give_the_same(tmp_path):
    """Each also equals the CPU's; between both only the order of additions may differ."""
    with_, without = (
        run_python(ROW_KERNELS, tmp_path / f"{off}.npz", AGTAPE_NO_SUBGROUPS=off, timeout=280) for off in "01"
    )
    assert without == "(0, 0)\n"
    # Software Vulkan has subgroups: both ways run in every test run.
    assert with_ != without or not ag.adapters()[0].is_software
    a, b = (np.load(tmp_path / f"{off}.npz") for off in "01")
    assert a.files == b.files
    assert len(a.files) > 100
    for name in a.files:
        rtol = 2e-3 if a[name].dtype == np.float16 else 2e-5
        np.testing.assert_allclose(b[name], a[name], rtol=rtol, atol=rtol, err_msg=name)


@pytest.mark.promise("G01", "G02")
@pytest.mark.timeout(300)
def test_G02_an_adapter_that_has_only_what_every_one_has_passes_the_self_test():
    """No 64-bit integers, no 16-bit floats, no subgroups, no clock and no cooperative matrices."""
    printed = run_python(
        """
        import agtape as ag
        from agtape import _core

        limits = _core.adapter_limits("gpu")
        assert (limits["int64"], limits["f16"], limits["subgroup"]) == (False, False, (0, 0)), limits
        report = ag.selftest("gpu", large=False)
        print(report if not report.is_ok else "ok")
        """,
        AGTAPE_NO_INT64="1",
        AGTAPE_NO_F16="1",
        AGTAPE_NO_SUBGROUPS="1",
        AGTAPE_NO_TIMESTAMPS="1",
        AGTAPE_COOPERATIVE="0",
        timeout=280,
    )
    assert printed == "ok\n"


# Draws that stay small: what they count, repeat or shift by would be beyond memory, and positions are what indices are.
INT64 = [row for row in ROWS if "int64" in row.dtypes]


def outcome(row, bases, view, device):
    """A row's results in int64 on a device as arrays; or why there are none."""
    try:
        with ag.device(device):
            tensors = [ag.tensor(a, dtype="int64", device=device) for a in bases]
            return [t.numpy() for t in as_list(row.run(*view(ag, tensors)))], None
    except (ValueError, TypeError) as error:
        return None, str(error)


def run_rows():
    """Runs every row of the table in int64 on both devices; why the adapter refuses some, by name."""
    refused = {}
    for row in INT64:
        for n in (n for n in (1, 13, 129) if n >= row.least):
            rng = np.random.default_rng(n)
            shapes = row.shapes(n)
            arrays = [to_dtype(draw(rng, shape), "int64") for draw, shape in zip(row.draws(len(shapes)), shapes)]
            bases, view = arrange(arrays, "mixed")
            expected, wrong = outcome(row, bases, view, "cpu")
            assert wrong is None, (row.name, wrong)
            found, reason = outcome(row, bases, view, "gpu")
            if reason is not None:
                refused[row.name] = reason
                continue
            for a, b in zip(expected, found, strict=True):
                assert a.dtype == b.dtype, row.name
                rtol = 3e-5 if a.dtype.kind == "f" else 0.0
                np.testing.assert_allclose(b, a, rtol=rtol, atol=rtol, err_msg=row.name)
    return {name: reason for name, reason in refused.items() if "float64 runs on the CPU only" not in reason}


@pytest.mark.promise("G02")
def test_G02_with_64_bit_integers_no_row_of_the_table_is_refused():
    if not _core.adapter_limits("gpu")["int64"]:
        # Then the adapter itself is the one that the next test plays.
        assert not ag.adapters()[0].is_software
        return
    assert run_rows() == {}


@pytest.mark.promise("G02")
def test_G02_without_64_bit_integers_every_row_works_or_names_int32():
    printed = run_python(
        """
        import json, sys
        from agtape import _core
        from gpu import test_without

        print(json.dumps([_core.adapter_limits("gpu")["int64"], test_without.run_rows()]))
        """,
        AGTAPE_NO_INT64="1",
        **WITH_TESTS,
        timeout=280,
    )
    has_long, refused = json.loads(printed.splitlines()[-1])
    assert not has_long
    # Products alone, as the guide says; einsum may be one.
    assert {"matmul", "dot"} <= set(refused)
    assert all("the product of int64; convert to int32" in reason for reason in refused.values()), refused


WIDE = [
    -(1 << 63),
    (1 << 63) - 1,
    -(1 << 32),
    (1 << 32) - 1,
    1 << 31,
    -(1 << 31) - 1,
    (1 << 53) + 1,
    -1,
    0,
    1,
    12345678901,
]
ARITHMETIC = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "negative": lambda a, b: -a,
    "abs": lambda a, b: ag.abs(a),
    "square": lambda a, b: ag.square(a),
    "sign": lambda a, b: ag.sign(a),
    "floor_divide": lambda a, b: a // ag.where(b == 0, 7, b),
    "remainder": lambda a, b: a % ag.where(b == 0, 7, b),
    "maximum": ag.maximum,
    "minimum": ag.minimum,
    "compare": lambda a, b: ag.stack([a < b, a <= b, a == b, a != b, a > b, a >= b]),
    "bits": lambda a, b: ag.stack([a & b, a | b, a ^ b, ~a]),
    "shifts": lambda a, b: ag.stack([a << ag.remainder(b, 63), a >> ag.remainder(b, 63)]),
    "where": lambda a, b: ag.where(a < b, a, b),
    "clip": lambda a, b: ag.clip(a, -(1 << 40), 1 << 40),
    "sum": lambda a, b: a.sum(axis=0),
    "prod": lambda a, b: ag.prod(a, axis=0),
    "max": lambda a, b: a.max(axis=1),
    "min": lambda a, b: a.min(axis=0),
    "argmax": lambda a, b: ag.argmax(a, axis=0),
    "cumsum": lambda a, b: ag.cumsum(a, 0),
    "cumprod": lambda a, b: ag.cumprod(a, 1),
    "sort": lambda a, b: ag.sort(a, axis=0),
    "argsort": lambda a, b: ag.argsort(a, axis=1),
    "to int32": lambda a, b: a.astype("int32"),
    "to uint8": lambda a, b: a.astype("uint8"),
    "to bool": lambda a, b: a.astype("bool"),
    "to float32": lambda a, b: a.astype("float32"),
    "to float16": lambda a, b: ag.clip(a, -60000, 60000).astype("float16"),
    "to bfloat16": lambda a, b: a.astype("bfloat16"),
    "index_add": lambda a, b: ag.index_add(a, 0, ag.remainder(b[:, 0], a.shape[0]), b),
    "numbers": lambda a, b: (a * (1 << 35) + (1 << 62)) ^ (-(1 << 33)),
}


def run_wide():
    """Arithmetic on numbers beyond 32 bits, against the CPU."""
    a = np.array(WIDE * len(WIDE), np.int64).reshape(len(WIDE), -1)
    tensors = {d: (ag.tensor(a, device=d), ag.tensor(a.T.copy(), device=d)) for d in ("cpu", "gpu")}
    for name, call in ARITHMETIC.items():
        expected, found = (call(*tensors[d]).numpy() for d in ("cpu", "gpu"))
        assert found.dtype == expected.dtype, name
        np.testing.assert_array_equal(found, expected, err_msg=name)
    return len(ARITHMETIC)


@pytest.mark.promise("G02")
def test_G02_numbers_beyond_32_bits_are_computed_with_or_without_64_bit_integers():
    assert run_wide() == len(ARITHMETIC)
    program = """
        from agtape import _core
        from gpu import test_without

        print(_core.adapter_limits("gpu")["int64"], test_without.run_wide())
    """
    assert run_python(program, AGTAPE_NO_INT64="1", **WITH_TESTS) == f"False {len(ARITHMETIC)}\n"
