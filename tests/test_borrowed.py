"""Zero-copy imports: arrays as tensors in their own memory, which is never written to and outlives the tensor."""

import gc
import weakref

import agtape as ag
import numpy as np
import pytest
from fresh_process import run_python
from pool_bytes import active

LENDERS = {
    "from_dlpack": lambda a: ag.from_dlpack(a, copy=False),
    "asarray": lambda a: ag.asarray(a, copy=False),
}
VIEWS = {
    "plain": lambda a: a,
    "transposed": lambda a: a.T,
    "flipped": lambda a: a[::-1, ::-2],
    "sliced": lambda a: a[1:3, 2:7:2],
    "row": lambda a: a[2],
    "scalar": lambda a: a[1, 3, ...],
    "broadcast": lambda a: np.broadcast_to(a[0], (4, 8)),
    "empty": lambda a: a[2:2],
}


@pytest.mark.parametrize("lend", LENDERS)
@pytest.mark.parametrize("view", VIEWS)
def test_U02_copy_false_borrows_the_memory_of_an_array(lend, view):
    base = np.arange(32, dtype=np.float32).reshape(4, 8)
    a = VIEWS[view](base)
    if view == "scalar":
        a = np.asarray(a) if a.base is not None else base[1:2, 3].reshape(())
    expected = a.copy()
    t = LENDERS[lend](a)
    assert t.shape == a.shape and np.array_equal(t.numpy(), expected)
    if a.size:
        assert np.shares_memory(t.numpy(), base)
    np.testing.assert_array_equal((t * 2 + t).numpy(), expected * 3)
    np.testing.assert_allclose(t.sum().item(), expected.sum())


@pytest.mark.parametrize("lend", LENDERS)
def test_U02_borrowed_memory_is_never_written_nor_reused(lend):
    a = np.ones(1000, np.float32)
    t = LENDERS[lend](a)
    t += 1
    t[3] = 7
    ag.eval(t)
    assert (a == 1).all() and t[3].item() == 7.0
    w = LENDERS[lend](a).requires_grad_()
    w.grad = ag.ones(1000)
    ag.optim.SGD([w], lr=0.5).step()
    assert (a == 1).all() and (w.numpy() == 0.5).all()
    held = [LENDERS[lend](a) for _ in range(3)]
    del t, w, held
    made = [ag.eval(ag.full((1000,), float(i)) * 1) or ag.full((1000,), float(i)) * 1 for i in range(5)]
    ag.eval(made)
    assert (a == 1).all()


def test_U02_borrowed_memory_lives_as_long_as_its_tensor_and_is_counted():
    gc.collect()
    before, reserved = active(), ag.memory_stats().reserved
    a = np.arange(5000, dtype=np.float64)
    alive = weakref.ref(a)
    t = ag.from_dlpack(a, copy=False)
    part = t[10:20]
    del a
    assert alive() is not None or t[4999].item() == 4999.0
    assert active() - before >= 40000
    del t
    assert part.tolist() == list(range(10, 20))
    del part
    gc.collect()
    assert alive() is None
    assert active() == before and ag.memory_stats().reserved == reserved


def test_U02_copy_false_says_what_would_need_a_copy():
    for make, words in [
        (lambda: ag.asarray([1.0], copy=False), "asarray: copy=False, but list must be converted"),
        (lambda: ag.asarray(2.0, copy=False), "asarray: copy=False, but float must be converted"),
        (lambda: ag.asarray(np.ones(2), "float32", copy=False), "but float64 must be converted to float32"),
        (lambda: ag.asarray(np.ones(2, ">f4"), copy=False), "dtype >f4 must be converted"),
        (lambda: ag.asarray(np.ones(2, "i2"), copy=False), "dtype int16 must be converted"),
        (lambda: ag.asarray(np.ones(3, "u1, f4")["f1"], copy=False), "not aligned"),
        (lambda: ag.from_dlpack(np.ones(2, "i2"), copy=False), "dtype int16 must be converted"),
        (lambda: ag.asarray(ag.ones(2), "int64", copy=False), "but float32 must be converted to int64"),
    ]:
        with pytest.raises(ValueError, match=words):
            make()
    t = ag.tensor([1.0, 1.0])
    assert ag.asarray(t, copy=False) is t
    assert np.shares_memory(ag.from_dlpack(t, copy=False).numpy(), t.numpy())
    assert not np.shares_memory(ag.from_dlpack(t).numpy(), t.numpy())
    assert ag.asarray(np.array([True, False]), copy=False).tolist() == [True, False]


def test_U02_a_reset_leaves_borrowed_memory_alone():
    code = """
        import agtape as ag, numpy as np
        a = np.ones(1000, np.float32)
        t = ag.from_dlpack(a, copy=False)
        ag.reset()
        for i in range(8):
            ag.eval(ag.full((1000,), 5.0) * 1.0, ag.zeros(1000) + 3.0)
        try:
            t.numpy()
        except RuntimeError as error:
            print("generation" in str(error), (a == 1).all())
    """
    assert run_python(code) == "True True\n"


def test_U02_a_dtype_that_dlpack_cannot_bring_is_named():
    code = """
        import jax.numpy as jnp, agtape as ag, numpy as np
        for copy in (None, False):
            try:
                ag.from_dlpack(jnp.ones(2, jnp.float8_e4m3fn), copy=copy)
            except TypeError as error:
                print(str(error).split(";")[1].split("(")[0].strip())
        x = jnp.arange(6.0).reshape(2, 3)
        t = ag.from_dlpack(x, copy=False)
        print(np.shares_memory(t.numpy(), np.from_dlpack(x)), t.shape)
    """
    expected = "expected booleans, integers or floats up to 64 bits on the CPU"
    assert run_python(code, JAX_PLATFORMS="cpu").splitlines() == [expected, expected, "True (2, 3)"]
