"""Options and their defaults from the environment, gradients as host copies, and the count of transfers."""

import threading

import agtape as ag
import numpy as np
import pytest
from fresh_process import run_json, run_python

IN_THREADS = """
    import json, threading
    import agtape as ag
    seen = []
    def look():
        ag.eval(ag.ones(4) * 2 + 1)
        o = ag.options()
        seen.append([o.fuse, o.plan_cache, o.resident_grads, ag.last_plan().kernels, ag.last_plan().cache_hit])
    look()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    with ag.options(fuse=True, plan_cache=True, resident_grads=True):
        look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    look()
    print(json.dumps(seen))
"""


def test_environment_variables_set_what_every_thread_starts_from():
    plain = run_json(IN_THREADS)
    assert [row[:4] for row in plain] == [[True, True, True, 1]] * 5
    # The same plan again, on whatever thread: found.
    assert [row[4] for row in plain] == [False, True, True, True, True]
    off = run_json(IN_THREADS, AGTAPE_FUSE="0", AGTAPE_PLAN_CACHE="0", AGTAPE_RESIDENT_GRADS="0")
    assert [row[:3] for row in off] == [[False] * 3, [False] * 3, [True] * 3, [False] * 3, [False] * 3]
    assert [row[3] > 1 for row in off] == [True, True, False, True, True]
    assert not any(row[4] for row in off)


@pytest.mark.parametrize("name", ["AGTAPE_FUSE", "AGTAPE_PLAN_CACHE", "AGTAPE_RESIDENT_GRADS", "AGTAPE_DETERMINISTIC"])
def test_U01_a_bad_environment_variable_is_named(name):
    code = """
        try:
            import agtape
        except ValueError as error:
            print(error)
    """
    assert run_python(code, **{name: "yes"}) == f"{name} is 'yes'; expected 0 or 1\n"


def trained(steps=5, clip=True, make=ag.optim.Adam, **options):
    """Parameters and gradients after a few steps, with accumulation over two passes in each."""
    rng = np.random.default_rng(3)
    w, b = ag.param(rng.standard_normal((4, 3)).astype(np.float32)), ag.param(np.zeros(3, np.float32))
    x = ag.tensor(rng.standard_normal((8, 4)).astype(np.float32))
    opt = make([{"params": [w]}, {"params": [b]}], lr=0.1)
    grads = []
    with ag.options(**options):
        for _ in range(steps):
            opt.zero_grad()
            for _ in range(2):
                with ag.grad_tape():
                    loss = ag.tanh(x @ w + b).square().sum()
                loss.backward()
            if clip:
                ag.nn.clip_grad_norm_([w, b], 1.0)
                ag.nn.clip_grad_value_([w, b], 0.5)
            grads.append((w.grad, b.grad))
            opt.step()
    return [w.numpy(), b.numpy()], grads


@pytest.mark.parametrize(
    "make", [ag.optim.Adam, ag.optim.AdamW, lambda p, lr: ag.optim.SGD(p, lr, momentum=0.9, dampening=0.1)]
)
@pytest.mark.parametrize("clip", [False, True])
def test_R02_host_copies_of_gradients_have_equal_numbers_and_train_alike(make, clip):
    there, resident = trained(clip=clip, make=make)
    here, copies = trained(clip=clip, make=make, resident_grads=False)
    for mine, theirs in zip(resident, copies):
        for g, copy in zip(mine, theirs):
            assert isinstance(g, ag.Tensor) and type(copy) is np.ndarray
            assert copy.dtype == np.float32 and not copy.flags.writeable
            np.testing.assert_array_equal(g.numpy(), copy)
    for a, b in zip(there, here):
        np.testing.assert_array_equal(a, b)


def test_R02_the_last_backward_decides_and_a_gradient_can_be_set_either_way():
    w = ag.param([1.0, 2.0])

    def backward():
        with ag.grad_tape():
            loss = (w * w).sum()
        loss.backward()

    with ag.options(resident_grads=False) as o:
        assert not o.resident_grads
        backward()
    assert ag.options().resident_grads and type(w.grad) is np.ndarray
    backward()
    assert isinstance(w.grad, ag.Tensor) and w.grad.tolist() == [4.0, 8.0]
    w.grad = np.array([1.0, 3.0], np.float32)
    assert type(w.grad) is np.ndarray and w.grad.tolist() == [1.0, 3.0]
    ag.optim.SGD([w], lr=1.0).step()
    assert w.tolist() == [0.0, -1.0]
    w.grad = ag.ones(2)
    assert isinstance(w.grad, ag.Tensor)
    with pytest.raises(ValueError, match=r"grad: got shape \[3\] of float32, expected \[2\]"):
        w.grad = np.zeros(3, np.float32)
    with pytest.raises(TypeError, match="grad: got str; expected a tensor"):
        w.grad = "none"
    w.grad = None
    with ag.options(resident_grads=False), ag.grad_tape():
        (w * w * w).sum().backward(create_graph=True)
        assert isinstance(w.grad, ag.Tensor) and w.grad.requires_grad
    half = ag.param([1.0], dtype="bfloat16")
    with ag.options(resident_grads=False):
        with ag.grad_tape():
            loss = (half * half).sum()
        loss.backward()
    half.grad = half.grad * 2  # float32 on the host, which has no bfloat16
    assert half.grad.tolist() == [4.0]


def test_R02_the_environment_makes_gradients_host_copies():
    code = """
        import threading
        import agtape as ag
        def show():
            w = ag.param([3.0])
            with ag.grad_tape():
                loss = (w * w).sum()
            loss.backward()
            ag.optim.SGD([w], lr=0.5).step()
            print(type(w.grad).__name__, w.grad.tolist(), w.tolist())
        show()
        thread = threading.Thread(target=show)
        thread.start()
        thread.join()
    """
    assert run_python(code, AGTAPE_RESIDENT_GRADS="0") == "ndarray [6.0] [0.0]\n" * 2
    assert run_python(code) == "Tensor [6.0] [0.0]\n" * 2


def test_R03_on_the_cpu_nothing_is_transferred_but_arguments():
    w = ag.param(np.ones(4, np.float32))
    opt = ag.optim.SGD([w], lr=0.1)
    before = ag.transfers()
    with ag.transfers() as step:
        x = ag.tensor(np.ones(4, np.float32))
        with ag.grad_tape():
            loss = (w * x).sum()
        loss.backward()
        opt.step()
        inside = step.arguments_bytes
    assert loss.item() == 4.0 and w.grad.numpy().shape == (4,)
    moved = step.to_dict()
    # The seed of backward, the learning rate and the weight decay.
    assert inside == moved["arguments_bytes"] == 3 * 8
    assert [moved[k] for k in ("to_host", "to_host_bytes", "to_device", "to_device_bytes")] == [0] * 4
    ag.eval(x * 5.0)
    assert step.to_dict() == moved and before.to_dict() != ag.transfers().to_dict()
    assert repr(step) == "transfers(to_host=0, to_host_bytes=0, to_device=0, to_device_bytes=0, arguments_bytes=24)"


def test_R03_transfers_count_all_threads_and_nest():
    with ag.transfers() as outer:
        with ag.transfers() as inner:
            thread = threading.Thread(target=lambda: ag.eval(ag.ones(3) * 2.0))
            thread.start()
            thread.join()
        ag.eval(ag.ones(3) * 4.0)
    assert 0 < inner.arguments_bytes < outer.arguments_bytes
    assert outer.arguments_bytes == 2 * inner.arguments_bytes and inner == inner and inner != outer
