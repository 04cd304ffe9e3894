"""Tensors among NumPy arrays and Python objects: conversions, protocols, copies, and exports that never change."""

import copy
import ctypes
import gc
import io
import pickle

import agtape as ag
import numpy as np
import pytest
from fresh_process import run_python
from on_device import is_adapter
from pool_bytes import active, class_bytes

DTYPES = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"]


def sample(dtype):
    return (np.arange(12).reshape(3, 4) % 5).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_U02_arrays_keep_dtype_shape_and_values(dtype):
    a = sample(dtype)
    t = ag.tensor(a)
    assert (str(t.dtype), t.shape, t.ndim, t.size, t.nbytes, t.itemsize) == (dtype, (3, 4), 2, 12, a.nbytes, a.itemsize)
    for back in (t.numpy(), np.asarray(t), np.array(t), np.from_dlpack(t)):
        assert back.dtype == a.dtype
        np.testing.assert_array_equal(back, a)
    assert t.dtype == dtype and t.dtype == a.dtype and t.dtype == getattr(ag, dtype if dtype != "bool" else "bool_")


def test_U02_other_numbers_become_the_documented_types():
    assert str(ag.tensor(1.5).dtype) == "float32" and str(ag.tensor(3).dtype) == "int64"
    assert str(ag.tensor([True, False]).dtype) == "bool" and str(ag.tensor([1, 2.5]).dtype) == "float32"
    assert str(ag.tensor(np.float64(2)).dtype) == "float64" and str(ag.tensor(np.int16([1])).dtype) == "int32"
    assert str(ag.tensor([1.0], dtype="float64").dtype) == "float64" and str(ag.zeros(2).dtype) == "float32"
    assert ag.tensor([[1, 2], [3, 4]]).shape == (2, 2) and ag.tensor(5).shape == ()
    assert ag.tensor([]).shape == (0,) and ag.tensor(np.zeros((0, 3))).shape == (0, 3)
    x = ag.tensor([1.0, -2.5], dtype="bfloat16")
    assert x.numpy().dtype == np.float32 and x.tolist() == [1.0, -2.5]


@pytest.mark.parametrize(
    "view",
    [lambda a: a[:, ::2], lambda a: a.T, lambda a: a[::-1], lambda a: a[1:2], lambda a: np.broadcast_to(a[0], (5, 4))],
)
def test_U02_strided_arrays_come_in_and_strided_tensors_go_out(view):
    a = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(ag.tensor(view(a)).numpy(), view(a))
    t = ag.tensor(a)
    out = ag.broadcast_to(t[0], (5, 4)) if len(view(a)) == 5 else view(t)
    np.testing.assert_array_equal(np.asarray(out), view(a))
    np.testing.assert_array_equal(np.from_dlpack(out), view(a))


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">f2", ">i4", ">i8", ">u2", "<f4", "<i8"])
def test_U02_either_byte_order_is_read_right(dtype):
    a = np.arange(-3 if "u" not in dtype else 0, 4).astype(dtype)
    np.testing.assert_array_equal(ag.tensor(a).numpy(), a)
    np.testing.assert_array_equal((ag.zeros(a.shape) + a).numpy(), a)


@pytest.mark.parametrize("make", [ag.tensor, ag.asarray, ag.param, ag.from_dlpack, lambda a: ag.zeros(4) + a])
def test_U02_data_is_copied_at_the_call(make):
    buffer = np.arange(4, dtype=np.float32)
    t = make(buffer)
    later = t * 2
    buffer[:] = -1  # the next batch
    assert t.tolist() == [0.0, 1.0, 2.0, 3.0] and later.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_U02_an_export_is_read_only_and_never_changes():
    t = ag.tensor(np.zeros(1000, np.float32))
    arrays = {"numpy": t.numpy(), "asarray": np.asarray(t), "dlpack": np.from_dlpack(t), "view": t[10:20].numpy()}
    for name, a in arrays.items():
        assert not a.flags.writeable, name
        with pytest.raises(ValueError):
            a[0] = 1
    t += 1
    t[0] = 5
    ag.eval(t)
    t.assign_(np.full(1000, 7, np.float32))
    assert t.tolist() == [7.0] * 1000
    for name, a in arrays.items():
        assert not a.any(), name


def test_U02_an_export_outlives_its_tensor_and_holds_its_memory():
    gc.collect()
    before = active()
    a = (ag.tensor(np.arange(1000, dtype=np.float32)) * 2).numpy()
    part = a[5:10]
    for _ in range(20):  # would take the buffer if it were free
        ag.eval(ag.full((1000,), 9.0) * 1)
    np.testing.assert_array_equal(a, np.arange(1000) * 2)
    assert active() - before == class_bytes(4000)
    del a
    assert active() - before == class_bytes(4000) and part.tolist() == [10.0, 12.0, 14.0, 16.0, 18.0]
    del part
    assert active() == before


def test_U02_an_exported_parameter_is_not_updated_in_place():
    w = ag.param(np.ones(100, np.float32))
    before = w.numpy()
    for _ in range(3):
        with ag.grad_tape():
            loss = (w * w).sum()
        loss.backward()
        opt = ag.optim.SGD([w], lr=0.1)
        opt.step()
        opt.zero_grad()
    assert (before == 1).all() and w.numpy()[0] == pytest.approx(0.8**3)


def test_U02_a_gradient_and_a_recorded_tensor_can_be_exported():
    w = ag.param([1.0, 2.0])
    with ag.grad_tape():
        y = w * 3
        inside = y.numpy()
        loss = y.sum()
    loss.backward()
    assert (
        inside.tolist() == [3.0, 6.0]
        and np.asarray(w.grad).tolist() == [3.0, 3.0]
        and np.asarray(w).tolist() == [1.0, 2.0]
    )


def test_U02_asarray_takes_numpys_arguments():
    t = ag.tensor([1.5, 2.5])
    assert np.asarray(t, dtype=np.int32).tolist() == [1, 2]
    copied = np.array(t, copy=True)
    copied[0] = 9
    assert copied.tolist() == [9.0, 2.5] and t.tolist() == [1.5, 2.5]
    assert np.shares_memory(np.asarray(t), np.asarray(t))
    with pytest.raises(ValueError):
        np.array(t, dtype="float64", copy=False)


OPERATORS = [
    ("a + t", lambda a, b: a + b), ("a - t", lambda a, b: a - b), ("a * t", lambda a, b: a * b), ("a / t", lambda a, b: a / b),
    ("a ** t", lambda a, b: a**b), ("a @ t", lambda a, b: a @ b), ("a // t", lambda a, b: a // b), ("a % t", lambda a, b: a % b),
    ("a < t", lambda a, b: a < b), ("a == t", lambda a, b: a == b), ("a >= t", lambda a, b: a >= b), ("a != t", lambda a, b: a != b),
]  # fmt: skip


@pytest.mark.parametrize(("name", "f"), OPERATORS, ids=[o[0] for o in OPERATORS])
def test_U02_an_array_on_either_side_gives_a_tensor(name, f):
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[2.0, 0.5], [1.0, 4.0]])
    for got in (f(a, ag.tensor(b)), f(ag.tensor(a), b), f(ag.tensor(a), ag.tensor(b))):
        assert isinstance(got, ag.Tensor), name
        np.testing.assert_allclose(got.numpy(), f(a, b), rtol=1e-12)
    scalar = f(np.float64(2.0), ag.tensor(b)) if "@" not in name else ag.tensor(b)
    assert isinstance(scalar, ag.Tensor)


def test_U02_python_numbers_are_weak_whatever_their_size():
    assert (ag.tensor([1.0]) * 2**70).tolist() == [2.0**70] and str((ag.tensor([1.0]) * 2**70).dtype) == "float32"
    assert str((ag.tensor(np.array([1.0])) + 1).dtype) == "float64" and str((ag.tensor([1]) * 1.5).dtype) == "float32"
    assert str((ag.tensor([1], dtype="uint8") + 1).dtype) == "uint8"
    assert str((ag.tensor([1.0], dtype="float16") * np.float32(2)).dtype) == "float32"


def test_U02_gradients_flow_through_a_product_with_an_array():
    w = ag.param(np.ones((2, 2)))
    with ag.grad_tape():
        loss = (np.array([[1.0, 2.0], [3.0, 4.0]]) * w).sum()
    loss.backward()
    assert w.grad.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_U02_dlpack_goes_both_ways():
    a = np.arange(6, dtype=np.int64).reshape(2, 3)
    t = ag.from_dlpack(a)
    assert str(t.dtype) == "int64" and t.tolist() == a.tolist() and t.__dlpack_device__() == (1, 0)
    assert ag.from_dlpack(t).tolist() == a.tolist()
    old = t.__dlpack__()  # a consumer of before version 1.0 cannot be told read-only: it gets a copy
    assert "dltensor" in repr(old)
    with pytest.raises(ValueError, match="stream"):
        t.__dlpack__(stream=3)
    with pytest.raises(TypeError, match="from_dlpack: got list"):
        ag.from_dlpack([1, 2])


def test_U02_dlpack_with_another_library():
    code = """
        import warnings
        warnings.simplefilter("ignore")
        import jax, numpy as np, agtape as ag
        t = ag.tensor(np.arange(6, dtype=np.float32).reshape(2, 3)) * 2
        there = jax.numpy.asarray(np.from_dlpack(t))
        print(there.sum(), ag.from_dlpack(there + 1).sum().item(), ag.tensor(there).shape)
    """
    assert run_python(code, JAX_PLATFORMS="cpu").split("\n")[0] == "30.0 36.0 (2, 3)"


def element_of(capsule):
    """Kind, bits and numbers side by side of a capsule's elements, by DLPack's own layout."""
    versioned = "dltensor_versioned" in repr(capsule)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = address(capsule, name) + (32 if versioned else 0) + 20
    return tuple((ctypes.c_uint8 * 2).from_address(at)) + (ctypes.c_uint16.from_address(at + 2).value,)


@pytest.mark.parametrize("wishes", [{}, {"max_version": (1, 0)}, {"max_version": (1, 0), "copy": True}])
def test_U02_bfloat16_leaves_through_dlpack_as_what_it_is(wishes):
    t = ag.tensor([[1.0, -2.5, 3.0]], dtype="bfloat16")
    assert element_of(t.__dlpack__(**wishes)) == (4, 16, 1)
    assert element_of(t.T[1:].__dlpack__(**wishes)) == (4, 16, 1)
    assert element_of(t.astype("float32").__dlpack__(**wishes)) == (2, 32, 1)


def test_U02_bfloat16_goes_both_ways_through_dlpack():
    code = """
        import jax.numpy as jnp, agtape as ag, numpy as np
        x = jnp.asarray([[1.0, -2.5, 0.1], [jnp.inf, 1e30, 3e-40]], jnp.bfloat16)
        for copy in (None, True, False) if "gpu" not in str(ag.get_default_device()) else (None, True):
            for there in (x, x.T, x[:0], x[0, 1]):
                t = ag.from_dlpack(there, copy=copy)
                assert t.dtype == "bfloat16" and t.shape == there.shape, t
                assert t.tolist() == np.asarray(there, np.float32).tolist()
                back = jnp.from_dlpack(t)
                assert back.dtype == jnp.bfloat16 and (back == there).all()
        t = ag.tensor(np.arange(6.0, dtype=np.float32)).astype("bfloat16").reshape(2, 3)
        assert jnp.from_dlpack(t * 2).tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
        print(ag.from_dlpack(x).dtype)
    """
    assert run_python(code, JAX_PLATFORMS="cpu") == "bfloat16\n"


def test_U02_arrays_of_bfloat16_keep_their_type():
    import ml_dtypes

    a = np.array([[1.0, -2.5, 0.1], [np.inf, 1e30, 3e-40]], ml_dtypes.bfloat16)
    for array in (a, a.T, a[:, ::-2], a[0, 0], a[:0]):
        for make in (ag.tensor, ag.asarray, *([ag.from_dlpack] if isinstance(array, np.ndarray) else [])):
            t = make(array)
            assert t.dtype == "bfloat16" and t.tolist() == np.asarray(array, np.float32).tolist()
    assert (ag.zeros(2, 3) + a).dtype == "float32" and ag.zeros(3, dtype=a.dtype).dtype == "bfloat16"
    if not is_adapter():
        assert ag.from_dlpack(a, copy=False).tolist() == a.astype(np.float32).tolist()


def test_U02_len_iteration_and_membership():
    t = ag.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert len(t) == 3 and [row.tolist() for row in t] == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    first, *rest = t
    assert first.tolist() == [1.0, 2.0] and len(rest) == 2
    assert list(ag.tensor(np.zeros((0, 2)))) == []
    assert [int(v) for v in reversed(ag.tensor([1, 2]))] == [2, 1]
    assert 3.0 in t and 7.0 not in t
    assert {t: 1}[t] == 1  # tensors are hashable by identity
    assert max(float(v) for v in t[0]) == 2.0
    with pytest.raises(TypeError):
        len(ag.tensor(1.0))
    with pytest.raises(TypeError):
        iter(ag.tensor(1.0))


def test_U02_iteration_is_differentiable():
    w = ag.param([[1.0, 2.0], [3.0, 4.0]])
    with ag.grad_tape():
        a, b = w
        loss = (a * b).sum()
    loss.backward()
    assert w.grad.tolist() == [[3.0, 4.0], [1.0, 2.0]]


def test_U02_bool_numbers_and_index():
    assert bool(ag.tensor([[2.0]])) and not ag.tensor(0.0) and bool(ag.tensor(True))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(ag.tensor([1.0, 2.0]))
    assert (float(ag.tensor(2.5)), int(ag.tensor(2.5)), ag.tensor([3]).item()) == (2.5, 2, 3)
    assert [10, 20, 30][ag.tensor(1)] == 20 and list(range(ag.tensor(2))) == [0, 1]
    with pytest.raises(TypeError):
        [1, 2][ag.tensor(1.0)]
    assert f"{ag.tensor(1.23456):.2f} {ag.tensor(3)}" == "1.23 tensor(3)"
    assert type(ag.tensor(2).item()) is int and type(ag.tensor(True).item()) is bool


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ag.tensor([1.0, 2.5]), "tensor([1. , 2.5])"),
        (lambda: ag.tensor([1, 2]), "tensor([1, 2])"),
        (lambda: ag.tensor([True]), "tensor([ True])"),
        (lambda: ag.tensor(np.array([1.0])), "tensor([1.], dtype=float64)"),
        (lambda: ag.tensor([1.0], dtype="bfloat16"), "tensor([1.], dtype=bfloat16)"),
        (lambda: ag.param([1.0]), "tensor([1.], requires_grad=True)"),
        (lambda: ag.zeros((0, 3)), "tensor([], shape=(0, 3))"),
        (lambda: ag.tensor(2.0), "tensor(2.)"),
        (lambda: ag.zeros((2, 2)), "tensor([[0., 0.],\n        [0., 0.]])"),
    ],
)
def test_U02_repr(make, text):
    assert repr(make()) == str(make()) == text


def test_U02_repr_of_a_large_tensor_is_short():
    assert len(repr(ag.zeros((1000, 1000)))) < 1000 and "..." in repr(ag.zeros((1000, 1000)))


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_U02_pickling(dtype, protocol):
    t = ag.tensor(sample("float32"), dtype=dtype)[1:, ::-1]
    again = pickle.loads(pickle.dumps(t, protocol=protocol))
    assert str(again.dtype) == dtype and again.tolist() == t.tolist() and not again.requires_grad
    leaf = pickle.loads(pickle.dumps(ag.param([1.0, 2.0])))
    assert leaf.requires_grad and leaf.is_leaf and leaf.grad is None
    assert pickle.loads(pickle.dumps(ag.float32)) == ag.float32
    stream = io.BytesIO()
    pickle.dump({"model": [t, leaf]}, stream)
    assert pickle.loads(stream.getvalue())["model"][1].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_U02_copies_are_independent(duplicate):
    w = ag.param([1.0, 2.0])
    w.grad = ag.tensor([5.0, 6.0])
    twin = duplicate(w)
    assert twin is not w and twin.requires_grad and twin.is_leaf and twin.tolist() == [1.0, 2.0]
    with ag.grad_tape():
        loss = (twin * 3).sum()
    loss.backward()
    with ag.no_grad():
        twin += 10
    assert w.tolist() == [1.0, 2.0] and w.grad.tolist() == [5.0, 6.0] and twin.tolist() == [11.0, 12.0]
    with ag.grad_tape():
        recorded = w * 2
        apart = duplicate(recorded)
    assert apart.tolist() == [2.0, 4.0]


def test_U02_deepcopy_of_a_container_keeps_shared_tensors_shared():
    w = ag.param([1.0])
    twin = copy.deepcopy({"a": w, "b": [w]})
    assert twin["a"] is twin["b"][0] and twin["a"] is not w


def test_U02_the_array_api_names():
    t = ag.tensor([[1.0, 2.0]])
    xp = t.__array_namespace__()
    assert xp is ag and t.to_device("cpu") is t and t.mT.shape == (2, 1) and t.T.shape == (2, 1)
    for name in (
        "concat",
        "permute_dims",
        "matrix_transpose",
        "astype",
        "asarray",
        "isdtype",
        "result_type",
        "unstack",
    ):
        assert callable(getattr(xp, name)), name
    with pytest.raises(ValueError, match="1999"):
        t.__array_namespace__(api_version="1999.12")
