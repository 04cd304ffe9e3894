"""Files: what is saved comes back, an old file stays whole until the new one is, and hostile files raise (U03)."""

import json
import os
import struct
import threading

import agtape as ag
import numpy as np
import pytest
import safetensors.numpy
from fresh_process import run_json, run_python
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool")


def raw(header, data=b""):
    """A file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4)])
def test_U03_every_dtype_and_shape_comes_back(tmp_path, dtype, shape):
    size = int(np.prod(shape))
    x = (ag.arange(size).reshape(shape) - 1).astype(dtype)
    ag.save({"x": x}, tmp_path / "x")
    found = ag.load(tmp_path / "x")["x"]
    assert (found.dtype, found.shape, found.requires_grad) == (x.dtype, x.shape, False)
    assert found.tolist() == x.tolist()


def test_U03_views_and_pending_values_are_saved_row_major(tmp_path):
    x = ag.arange(12).reshape(3, 4)
    saved = {
        "turned": x.T,
        "slice": x[1:, ::2],
        "flipped": ag.flip(x),
        "pending": x * 2 + 1,
        "spread": ag.ones(1).broadcast_to((4,)),
    }
    ag.save(saved, tmp_path / "views")
    found = ag.load(tmp_path / "views")
    assert {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in saved.items()}


def test_U03_other_programs_read_and_write_the_same_files(tmp_path):
    model = ag.nn.Sequential(ag.nn.Linear(3, 2), ag.nn.BatchNorm1d(2))
    ag.save(model.state_dict(), tmp_path / "ours", metadata={"format": "agtape"})
    theirs = safetensors.numpy.load_file(tmp_path / "ours")
    assert sorted(theirs) == sorted(model.state_dict())
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(theirs[name], tensor.numpy())
    safetensors.numpy.save_file(theirs, tmp_path / "theirs")
    other = ag.nn.Sequential(ag.nn.Linear(3, 2), ag.nn.BatchNorm1d(2))
    other.load_state_dict(ag.load(tmp_path / "theirs"))
    x = ag.randn(5, 3)
    assert other.eval()(x).tolist() == model.eval()(x).tolist()


def test_U03_training_resumed_from_a_file_goes_on_to_the_bit(tmp_path):
    def start():
        model = ag.nn.Linear(4, 2)
        return model, ag.optim.AdamW(model.parameters(), lr=0.1)

    def train(model, opt, steps):
        for k in range(steps):
            with ag.grad_tape():
                loss = (model(ag.full((3, 4), float(k))) ** 2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()

    model, opt = start()
    train(model, opt, 3)
    ag.save(
        {"model": model.state_dict(), "optimizer": opt.state_dict(), "rng": [1, "two", None, True, 0.5]},
        tmp_path / "run",
    )
    train(model, opt, 3)
    again, opt_again = start()
    found = ag.load(tmp_path / "run")
    again.load_state_dict(found["model"])
    opt_again.load_state_dict(found["optimizer"])
    assert found["rng"] == [1, "two", None, True, 0.5]
    train(again, opt_again, 3)
    assert again.weight.tolist() == model.weight.tolist()


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
keys = st.one_of(st.integers(), st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"])))
trees = st.recursive(
    st.one_of(scalars, st.integers(0, 5).map(lambda n: np.arange(n))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3).filter(lambda d: len({str(k) for k in d}) == len(d)),
    ),
    max_leaves=8,
)


def same(a, b):
    if isinstance(a, np.ndarray):
        return isinstance(b, ag.Tensor) and a.tolist() == b.tolist()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


@settings(deadline=None, max_examples=60)
@given(tree=trees)
def test_U03_any_nesting_comes_back(tmp_path_factory, tree):
    path = tmp_path_factory.getbasetemp() / "tree"
    try:
        ag.save(tree, path)
    except UnicodeEncodeError:
        assert any(0xD800 <= ord(c) < 0xE000 for c in repr(tree))
        return
    found = ag.load(path)
    if type(tree) is dict and tree and all(isinstance(k, str) and isinstance(v, np.ndarray) for k, v in tree.items()):
        tree, found = {k: tree[k] for k in sorted(tree)}, {k: found[k] for k in sorted(found)}
    assert same(tree, found)


def test_U03_what_cannot_be_saved_says_so_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    ag.save({"x": ag.ones(3)}, path)
    before, itself = path.read_bytes(), []
    itself.append(itself)
    for obj, error, words in (
        (ag.nn.Linear(1, 1), TypeError, "Linear; expected tensors"),
        ({"a": {"b": object()}}, TypeError, "object at 'a.b'"),
        ({(1, 2): 3}, TypeError, r"the key \(1, 2\)"),
        ({"a.b": ag.ones(1), "a": {"b": ag.ones(1)}}, ValueError, "two tensors would be named 'a.b'"),
        ({"__metadata__": ag.ones(1)}, ValueError, "__metadata__"),
        ({"x": itself}, ValueError, "holds itself"),
        ({"x": np.array(["text"])}, TypeError, "cannot hold an array of dtype"),
    ):
        with pytest.raises(error, match=words):
            ag.save(obj, path)
    with pytest.raises(TypeError, match="metadata is"):
        ag.save({"x": ag.ones(1)}, path, metadata={"epoch": 3})
    with pytest.raises(FileNotFoundError):
        ag.save({"x": ag.ones(1)}, tmp_path / "missing" / "file")
    with pytest.raises(IsADirectoryError):
        ag.save({"x": ag.ones(1)}, tmp_path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["file"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a device or a pipe"):
        ag.save({"x": ag.ones(1)}, tmp_path / "pipe")
    assert sorted(os.listdir(tmp_path)) == ["file", "pipe"]


def test_U03_a_disk_that_fills_up_leaves_the_old_file_and_no_other(tmp_path):
    code = f"""
        import json, os, resource, signal
        import agtape as ag
        path = {str(tmp_path / "file")!r}
        ag.save({{"x": ag.ones(3)}}, path)
        before = open(path, "rb").read()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            ag.save({{"x": ag.ones(100_000)}}, path)
            raised = ""
        except OSError as e:
            raised = type(e).__name__ + str(e)
        print(json.dumps([raised, open(path, "rb").read() == before, os.listdir({str(tmp_path)!r})]))
    """
    raised, is_whole, names = run_json(code)
    assert "OSError" in raised and "too large" in raised
    assert (is_whole, names) == (True, ["file"])


def test_U03_the_file_changes_its_name_only_when_it_is_whole(tmp_path):
    """A reader that opens the path at any time finds one of the two files, and a link stays a link."""
    real, link = tmp_path / "real", tmp_path / "link"
    ag.save({"x": ag.zeros(4)}, real)
    link.symlink_to(real)
    code = f"""
        import agtape as ag
        for k in range(300):
            ag.save({{"x": ag.full((200_000,), float(k % 2))}}, {str(link)!r})
    """
    seen, done = [], threading.Event()

    def watch():
        while not done.is_set():
            values = ag.load(link)["x"]
            seen.append(len(set(values.numpy().tolist()[::1000])))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run_python(code)
    finally:
        done.set()
        watcher.join()
    assert len(seen) > 5 and set(seen) == {1}
    assert link.is_symlink() and sorted(os.listdir(tmp_path)) == ["link", "real"]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_U03_new_files_obey_the_mask_and_old_ones_keep_their_mode(tmp_path):
    new, old = tmp_path / "new", tmp_path / "old"
    old.touch(mode=0o640)
    os.chmod(old, 0o640)
    mask = os.umask(0o022)
    try:
        ag.save({"x": ag.ones(1)}, new)
        ag.save({"x": ag.ones(1)}, old)
    finally:
        os.umask(mask)
    assert [path.stat().st_mode & 0o777 for path in (new, old)] == [0o644, 0o640]


HOSTILE = {
    "empty": b"",
    "shorter than its length": b"\x01\x02",
    "a header beyond the end": struct.pack("<Q", 1 << 40) + b"{}",
    "a header of 2**64 - 1 bytes": struct.pack("<Q", 2**64 - 1) + b"{}",
    "no JSON": raw(b"not json"),
    "no UTF-8": raw(b'{"\xff": 1}'),
    "no object": raw([1, 2]),
    "nested without end": raw(b"[" * 100_000),
    "a tensor without a type": raw({"x": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "an unknown type": raw({"x": entry("F31")}, bytes(8)),
    "fewer bytes than its shape": raw({"x": entry(shape=(4,))}, bytes(8)),
    "data that ends early": raw({"x": entry()}, bytes(7)),
    "data left over": raw({"x": entry()}, bytes(9)),
    "offsets turned round": raw({"x": entry(offsets=(8, 0))}, bytes(8)),
    "tensors that overlap": raw({"x": entry(), "y": entry(offsets=(4, 12))}, bytes(12)),
    "a hole": raw({"x": entry(), "y": entry(offsets=(16, 24))}, bytes(24)),
    "sizes beyond 64 bits": raw({"x": entry(shape=(2**40, 2**40))}, bytes(8)),
    "a negative size": raw({"x": entry(shape=(-2,))}, bytes(8)),
    "a size that is no integer": raw({"x": entry(shape=(2.5,))}, bytes(8)),
    "metadata that is no text": raw({"__metadata__": {"a": 1}, "x": entry()}, bytes(8)),
    "a bool of 2": raw({"x": entry("BOOL", (2,), (0, 2))}, b"\x00\x02"),
}
TREES = {
    "no JSON": "{",
    "a scalar list": "[1]",
    "a list of nothing known": '{"set": []}',
    "two kinds": '{"list": [], "dict": []}',
    "a tensor that is missing": '{"tensor": "y"}',
    "a tensor twice": '{"list": [{"tensor": "x"}, {"tensor": "x"}]}',
    "no tensor": '{"list": []}',
    "a key that is a list": '{"dict": [[[1], {"tensor": "x"}]]}',
    "a pair of three": '{"dict": [["x", 1, 2]]}',
    "nested without end": '{"list":[' * 50_000,
}


def check_refused(path, error=ValueError, words=""):
    before = ag.memory_stats("cpu")
    with ag.peak_memory("cpu") as peak, pytest.raises(error, match="load: .*" + words):
        ag.load(path)
    assert peak.peak == before.active, "something was allocated before the file was checked"


@pytest.mark.parametrize("name", HOSTILE)
def test_U03_hostile_files_raise_before_anything_is_allocated(tmp_path, name):
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[name])
    check_refused(path)


@pytest.mark.parametrize("name", TREES)
def test_U03_a_hostile_tree_raises_before_anything_is_allocated(tmp_path, name):
    path = tmp_path / "hostile"
    path.write_bytes(raw({"__metadata__": {"agtape.tree": TREES[name]}, "x": entry()}, bytes(8)))
    check_refused(path)


def test_U03_types_that_tensors_lack_are_named(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(raw({"x": entry(), "small": entry("I16", (2,), (8, 12))}, bytes(12)))
    check_refused(path, TypeError, "'small'|\"small\" is of type I16; expected one of")
    with pytest.raises(FileNotFoundError):
        ag.load(tmp_path / "missing")
    ag.save({"x": ag.ones(1)}, path)
    with pytest.raises(ValueError, match="device"):
        ag.load(path, device="nowhere")


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_U03_a_damaged_file_raises_or_gives_tensors_of_its_length(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged"
    ag.save({"a": ag.arange(6).reshape(2, 3), "b": [ag.ones(3), True]}, path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[at] = data.draw(st.integers(0, 255))
        else:
            del content[at : at + data.draw(st.integers(1, 20))]
        if not content:
            break
    path.write_bytes(content)
    try:
        found = ag.load(path)
    except (ValueError, TypeError):
        return
    leaves, _ = ag.tree.flatten(found)
    assert sum(leaf.nbytes for leaf in leaves if isinstance(leaf, ag.Tensor)) <= len(content)
