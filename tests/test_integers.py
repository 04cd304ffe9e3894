"""Every public function, method and layer that takes integers refuses what is none, by name: found by their signatures, so none can be forgotten."""

import inspect

import agtape as ag
import numpy as np
import pytest

pytestmark = pytest.mark.promise("U01")

F = ag.nn.functional
X = ag.tensor(np.arange(8, dtype=np.float32).reshape(2, 4))
MODEL = ag.optim.SGD([ag.param([1.0])], lr=0.1)


def halves():
    """Two schedules of one optimizer."""
    return [ag.optim.lr_scheduler.LambdaLR(MODEL, lambda n: 1.0) for _ in range(2)]


# Parameters that mean one integer, and an integer that each takes; None is refused as well unless it is the default.
INTEGERS = {
    "axis": 0, "axis1": 0, "axis2": 1, "dim": 0, "k": 1, "n": 1, "offset": 1, "decimals": 1, "start": 0, "end": 1, "n_rows": 2,
    "n_cols": 2, "num": 3, "num_classes": 3, "seed": 1, "start_dim": 0, "end_dim": 1, "in_features": 2, "out_features": 2,
    "num_embeddings": 3, "embedding_dim": 2, "padding_idx": 1, "num_features": 4, "embed_dim": 4, "num_heads": 2, "kdim": 4,
    "vdim": 4, "ignore_index": 1, "checkpoint_every": 1, "segments": 1, "step_size": 2, "T_max": 2, "total_iters": 2,
    "last_epoch": -1, "batch_size": 2, "order": 1, "directions": 1, "limit": 1 << 40, "top": 3, "budget": 1 << 40, "warmup": 1,
}  # fmt: skip
# Parameters that mean one or several.
SEVERAL = {
    "axes": (1, 0), "shape": (2, 4), "size": (2,), "shift": 1, "repeats": 2, "reps": 2, "indices_or_sections": 2, "pad_width": 1,
    "destination": 0, "normalized_shape": 4, "argnums": 0, "milestones": [1],
}  # fmt: skip
# Where a name means something else than in other functions: what kind of parameter it is there, and what it takes.
HERE = {
    "arange.start": ("number", 0), "arange.stop": ("number", 3), "arange.step": ("number", 1), "linspace.start": ("number", 0),
    "linspace.stop": ("number", 1), "full.fill_value": ("number or bool", 1.0), "full_like.fill_value": ("number or bool", 1.0),
    "Tensor.fill_.value": ("number or bool", 1.0), "randint.low": ("integer", 1), "randint.high": ("integer", 3),
    "moveaxis.source": ("integers", 0), "Tensor.moveaxis.source": ("integers", 0), "tensordot.axes": ("integers", 0),
    "index_add.source": ("other", 1.0), "Tensor.index_add.source": ("other", 1.0), "TensorDataset.*arrays": ("other", None),
    "one_hot.tensor": ("other", [0]), "embedding.input": ("other", [0]), "take_along_axis.indices": ("other", [[0] * 4]),
    "Tensor.take_along_axis.indices": ("other", [[0] * 4]), "scatter_add.index": ("other", [[0] * 4]),
    "Tensor.scatter_add.index": ("other", [[0] * 4]), "checkpoint_sequential.input": ("other", 1.0), "squeeze.x": ("other", X[:1]),
    "permutation.x": ("other", X), "Tensor.backward.inputs": ("other", None), "cross_entropy.input": ("other", X),
}  # fmt: skip
# By position, as many as wanted.
POSITIONAL = {
    "reshape": (4, 2), "permute": (1, 0), "transpose": (1, 0), "broadcast_to": (2, 4), "zeros": (2,), "ones": (2,), "empty": (2,),
    "rand": (2,), "randn": (2,), "Tensor.reshape": (4, 2), "Tensor.view": (4, 2), "Tensor.permute": (1, 0),
    "Tensor.transpose": (1, 0), "Tensor.broadcast_to": (2, 4), "Tensor.expand": (2, 4), "Tensor.tile": (2,),
}  # fmt: skip
# What other required parameters are given.
GIVEN = {
    "x": X, "x1": X, "x2": X, "input": X, "tensors": [X, X], "indices": [0], "index": [0], "src": 1.0, "target": [0, 1], "weight": X,
    "functions": [ag.sin], "fn": lambda x: x.sum(), "inputs": X, "optimizer": MODEL, "dataset": [1.0, 2.0],
    "lr_lambda": lambda n: 1.0, "dtype": "float32", "obj": X, "data": X, "device": "cpu",
}  # fmt: skip
# Parameters that are never integers: arrays, floats, flags, words, functions, containers.
OTHERS = set("""
    a b accumulate actual affine allow_unused alpha append api_version approximate args arrays arrays_and_dtypes atol attn_mask average_attn_weights
    backward batch_first beta betas bias bufs clip_value closure condition constant_values copy correction create_graph cuda dampening data
    ddof default delta descending device dl_device drop_last defaults dropout dropout_p dtype dtypes elementwise_affine end_factor endpoint eps equal_nan
    equation error_if_nonfinite eta_min expected exponent file fill_value forward from_ fuse gain gamma generator grad gradient grads
    has_aux high include_initial indexing is_causal is_given keepdims kernels key key_padding_mask kind kwargs label_smoothing labels largest
    loc loss low lr lr_scheduler mask matmul_precision max max_norm max_version maximize mean memo metadata min mode model module modules
    momentum msg name nan need_weights neginf negative_slope nesterov neg nonlinearity norm_type obj operands optimizer other outputs p
    param parameters params path peaks persistent plan_cache pos_weight posinf prepend primals progress query quiet reduction replay
    requires_grad resident_grads retain_graph rngs rtol rule running_mean running_var sample scale schedulers self shuffle side
    sorted sorter source_lines spec stable start_factor state state_dict std stream strict tangents tape tensor tensors
    to track_running_stats training transform type val value values vectors verbose verify weight weight_decay large threshold deterministic
""".split()) | set(GIVEN)  # fmt: skip

NEITHER = (1.5, "one", np.float64(1.0), np.array([1.5]), object())
TOO_LARGE = (2**63, -(2**63) - 1, 2**200, 1 << 20000)
WRONG = {
    "integer": (*NEITHER, *TOO_LARGE, True, np.True_, None),
    "integers": (*NEITHER, *TOO_LARGE, True, np.True_, None, (0, True), [0, "one"], (2**63,), (0, 1.5), (None, 0)),
    "number": ("one", object(), True, *TOO_LARGE[:3]),
    "number or bool": ("one", object(), *TOO_LARGE[:3]),
}
# Limits of what is shown: more than there is is no mistake.
NO_LIMIT = {"tape_memory.top"}
# Where None says something else than the default does.
NONE_IS_MEANT = {
    "argsort.axis", "sort.axis", "concat.axis", "cross_entropy.ignore_index", "nll_loss.ignore_index", "NLLLoss.ignore_index",
    "CrossEntropyLoss.ignore_index", "tape_memory.top",
}  # fmt: skip
# Seeds of NumPy's and counters: any that 64 bits hold, without a sign.
UNSIGNED = {"manual_seed.seed"}
# Names in errors where one function does the work of two.
SAID = {"value_and_grad": "grad", "cumulative_sum": "cumulative_sum"}


# Made only by those who derive from them.
BASES = {"LRScheduler", "Optimizer", "Module"}


def callables():
    """(label, name in errors, callable) of everything public that can be called."""
    spaces = {
        "": ag,
        "F.": F,
        "nn.": ag.nn,
        "init.": ag.nn.init,
        "optim.": ag.optim,
        "data.": ag.data,
        "testing.": ag.testing,
    }
    spaces["schedule."] = ag.optim.lr_scheduler
    seen = set()
    for prefix, space in spaces.items():
        for name, value in vars(space).items():
            module = getattr(value, "__module__", None) or ""
            is_own = prefix in ("", "F.", "nn.", "optim.") or module == space.__name__
            is_ours = (module.startswith("agtape") and is_own) or (not prefix and type(value) is type(ag.exp))
            if name.startswith("_") or name in BASES or not callable(value) or not is_ours or id(value) in seen:
                continue
            seen.add(id(value))
            yield prefix + name, value.__name__, value
    for name in dir(ag.Tensor):
        value = inspect.getattr_static(ag.Tensor, name)
        if not name.startswith("_") and callable(value):
            yield f"Tensor.{name}", name, getattr(ag.Tensor, name)


def kind_of(label, name, parameter):
    """What kind of parameter it is, and what it takes."""
    owner = f"Tensor.{name}" if label.startswith("Tensor.") else name
    known = HERE.get(f"{owner}.{parameter.name}")
    if known:
        return known
    if parameter.kind is parameter.VAR_POSITIONAL:
        return ("positional", POSITIONAL[owner]) if owner in POSITIONAL else ("other", None)
    if parameter.kind is parameter.VAR_KEYWORD or parameter.name in OTHERS:
        return "other", GIVEN.get(parameter.name)
    if parameter.name in INTEGERS:
        return "integer", INTEGERS[parameter.name]
    if parameter.name in SEVERAL:
        return "integers", SEVERAL[parameter.name]
    return "unknown", None


def signature(function):
    """Its parameters, or none where Python cannot tell them."""
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        return []


ROWS = [
    (label, name, function, parameter)
    for label, name, function in callables()
    for parameter in signature(function)
    if kind_of(label, name, parameter)[0] not in ("other", "unknown")
]


def call(label, name, function, parameter, value):
    """The call with this value in one place and what fits in every other that needs one."""
    args, keywords = [], {}
    has_more = any(p.kind is p.VAR_POSITIONAL for p in signature(function))
    for p in signature(function):
        fits = kind_of(label, name, p)[1]
        if p.name == "self":
            given = X[:1] if name == "squeeze" else X.clone()
        elif p == parameter:
            given = value
        elif p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            given = halves() if p.name == "schedulers" else fits
        else:
            continue
        if p.kind is p.VAR_POSITIONAL:
            args.extend(given)
        elif p.kind is p.KEYWORD_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self" and not has_more):
            keywords[p.name] = given
        else:
            args.append(given)
    return function(*args, **keywords)


def wrong_values(label, name, parameter):
    """What is refused in that place."""
    kind, fits = kind_of(label, name, parameter)
    if kind == "positional":
        values = [v for v in WRONG["integer"] if v is not None]
        return [(v,) for v in values] + [(*fits[:-1], v) for v in values]
    owner = f"{name}.{parameter.name}"
    values = [v for v in WRONG[kind] if not (v is None and (parameter.default is None or owner in NONE_IS_MEANT))]
    if owner in NO_LIMIT:
        values = [v for v in values if not (type(v) is int and v > 0)]
    if owner in UNSIGNED:
        values = [*(v for v in values if not (type(v) is int and 0 < v < 2**64)), -1, 2**64]
    return values


def text_of(value):
    """How an error may show what it was given."""
    if isinstance(value, (tuple, list)):
        return [word for item in value for word in text_of(item)]
    if type(value) is int and value.bit_length() >= 256:
        return ["bits", "more digits", "budget is ?"]
    return [str(value), "float64" if isinstance(value, np.ndarray) else type(value).__name__, type(value).__name__]


def shown(value):
    """A value in a few letters: Python does not write every integer."""
    return f"{value:#x}"[:24] if type(value) is int else repr(value)[:40]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}({row[3].name})")
def test_U01_what_is_no_integer_is_refused_by_the_name_of_the_function(row):
    label, name, _, parameter = row
    state = ag.get_rng_state()
    fits = kind_of(label, name, parameter)[1]
    call(*row, fits)
    said = SAID.get(name, name)
    for value in wrong_values(label, name, parameter):
        with pytest.raises(Exception) as caught:
            call(*row, value)
        text = str(caught.value)
        assert type(caught.value) in (TypeError, ValueError, IndexError), f"{shown(value)}: {caught.value!r:.300}"
        assert text.startswith(f"{said}: "), f"{shown(value)}: {text!r} does not name {said}"
        assert "expected" in text, f"{shown(value)}: {text!r} does not say what was expected"
        assert any(word in text for word in text_of(value)), f"{shown(value)}: {text!r} does not say what was given"
    ag.set_rng_state(state)


def test_U01_every_parameter_of_a_public_function_is_known_here():
    unknown = [
        f"{label}({parameter.name})"
        for label, name, function in callables()
        for parameter in signature(function)
        if kind_of(label, name, parameter)[0] == "unknown"
    ]
    assert not unknown, f"say in tests/test_integers.py whether these take integers: {', '.join(unknown)}"
    assert len(ROWS) > 150 and {"sum", "F.softmax", "nn.Linear", "Tensor.topk", "data.DataLoader"} <= {
        row[0] for row in ROWS
    }


@pytest.mark.parametrize("wrong", [1.5, "one", 2**63, -(2**63) - 1, 1 << 20000, np.array([1.5]), object()], ids=shown)
def test_U01_what_is_no_index_is_refused(wrong):
    for index in (wrong, (0, wrong), (Ellipsis, wrong)):
        with pytest.raises(IndexError, match=r"^getitem: .*(expected|out of range)"):
            X[index]
        with pytest.raises(IndexError, match=r"^setitem: .*(expected|out of range)"):
            ag.zeros(2, 4)[index] = 1.0


@pytest.mark.parametrize("wrong", [1.5, "one", True, np.True_, np.array([0, 1]), object()], ids=shown)
def test_U01_what_is_no_bound_of_a_slice_is_refused(wrong):
    for bounds in (slice(wrong, None), slice(None, wrong), slice(None, None, wrong)):
        with pytest.raises(TypeError, match=r"^getitem: slice bound .* expected integers or None"):
            X[bounds]


@pytest.mark.parametrize(
    "name", "sum mean prod max min any all var std logsumexp count_nonzero flip squeeze expand_dims roll".split()
)
def test_U01_each_of_several_axes_is_looked_at(name):
    x, shift = (X[:1], ()) if name == "squeeze" else (X, (1,) if name == "roll" else ())
    for wrong in ((0, True), [0, "one"], (2**63,), (0, 1.5), (None, 0), np.array([0.0, 1.0]), "01", {0: 1}):
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(ag, name)(x, *shift, axis=wrong)
        assert str(caught.value).startswith(f"{name}: ") and "expected" in str(caught.value)


def test_integers_of_numpy_and_tensors_are_integers():
    for axis in (1, np.int8(1), np.uint64(1), np.array(1), ag.tensor(1), ag.tensor([1])):
        assert X.sum(axis=axis).shape == X.softmax(axis=axis).sum(axis=(axis,)).shape == (2,)
        assert ag.nn.GLU(dim=axis)(X).shape == (2, 2) and ag.zeros(axis, axis).shape == (1, 1)
    assert X[:, 0 : 2**70].shape == (2, 1 * 4) and X[:, -(2**70) :].shape == (2, 4)
    assert X.reshape(np.array([4, 2])).shape == ag.zeros(ag.tensor([4, 2])).shape == (4, 2)
    assert ag.pad(X, np.array([[1, 0], [0, 2]])).shape == (3, 6) and ag.split(X, np.array([1]))[1].shape == (1, 4)


@pytest.mark.parametrize(
    "call",
    [ag.reset, ag.synchronize, ag.set_default_device, ag.device, ag.memory_stats, ag.empty_cache, ag.reset_peak_memory],
    ids=lambda call: call.__name__,
)
def test_U01_devices_that_are_no_names_are_refused(call):
    for wrong in (3, 1.5, True, b"cpu", object()):
        with pytest.raises(TypeError) as caught:
            call(wrong)
        assert str(caught.value).startswith(f"{call.__name__}: ") and type(wrong).__name__ in str(caught.value)
        assert "expected" in str(caught.value)


PLACED = [
    (label, name, function, parameter)
    for label, name, function in callables()
    for parameter in signature(function)
    if parameter.name == "device" and (label.startswith("Tensor.") or type(function) is type(ag.exp))
]


@pytest.mark.parametrize("row", PLACED, ids=lambda row: row[0])
def test_U01_a_device_that_is_none_is_refused_by_the_name_of_the_function(row):
    for wrong, kind in ((3, TypeError), (b"cpu", TypeError), (object(), TypeError), ("quantum", ValueError)):
        with pytest.raises(kind) as caught:
            call(*row, wrong)
        text = str(caught.value)
        assert text.startswith(f"{row[1]}: ") and "expected" in text
        assert "quantum" in text or type(wrong).__name__ in text


def test_U01_integers_beyond_every_float_are_refused_beside_floats():
    for huge in (10**400, 1 << 20000):
        with pytest.raises(ValueError, match=r"^add: the integer .* does not fit into float64; expected one that does"):
            X + huge
        with pytest.raises(ValueError, match=r"^var: correction is .* expected a number that float64 holds"):
            ag.var(X, correction=huge)
    assert (X + 2**70).max().item() == float(np.float32(2**70))
