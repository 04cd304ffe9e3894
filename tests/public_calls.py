"""Every public function, method and layer, found in the package, and what kind of argument each of their parameters takes."""

import inspect

import agtape as ag
import numpy as np

F = ag.nn.functional
X = ag.tensor(np.arange(8, dtype=np.float32).reshape(2, 4))
MODEL = ag.optim.SGD([ag.param([1.0])], lr=0.1)


def halves():
    """Two schedules of one optimizer."""
    return [ag.optim.lr_scheduler.LambdaLR(MODEL, lambda n: 1.0) for _ in range(2)]


def loss():
    """A recorded result that backward can start from."""
    w = ag.param([1.0])
    with ag.grad_tape():
        return (w * w).sum()


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
    "arange.start": ("quantity", 0), "arange.stop": ("quantity", 3), "arange.step": ("quantity", 1), "linspace.start": ("quantity", 0),
    "linspace.stop": ("quantity", 1), "full.fill_value": ("quantity or bool", 1.0), "full_like.fill_value": ("quantity or bool", 1.0),
    "Tensor.fill_.value": ("quantity or bool", 1.0), "randint.low": ("integer", 1), "randint.high": ("integer", 3),
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
    "tensor": X, "query": X, "key": X, "value": X, "params": [ag.param([1.0])], "parameters": [ag.param([1.0])], "forward": ag.sin,
    "backward": lambda grad, inputs, outputs: grad, "actual": 1.0, "expected": 1.0, "running_mean": None, "running_var": None,
    "state_dict": ag.nn.Linear(2, 2).state_dict(), "name": "a_name", "primals": (X,), "tangents": (X,), "vectors": (X,),
    "model": ag.sin,
}  # fmt: skip
# Parameters that turn something on or off though their default does not say so.
FLAGS = {
    "copy", "retain_graph", "resident_grads", "fuse", "plan_cache", "deterministic", "source_lines", "holds_result",
}  # fmt: skip
# Parameters that are one of a few words though their default does not say so, and one of those words.
WORDS = {"nonlinearity": "relu", "matmul_precision": "high"}
# Parameters that are real numbers though their default does not say so, and one that fits.
REALS = {
    "ddof": 0.0, "posinf": 1.0, "neginf": -1.0, "max_norm": 1.0, "clip_value": 1.0, "param": 0.1, "rtol": 0.1, "atol": 0.1, "scale": 1.0,
    "val": 1.0,
}  # fmt: skip
# Where a name means something else than in other functions.
HERE |= {
    "vjp.fn": ("other", lambda: X), "can_cast.from_": ("other", "float32"), "randint.dtype": ("dtype", "int64"), "uniform.low": ("real", 0.0),
    "uniform.high": ("real", 1.0), "normal.loc": ("real", 0.0), "named_modules.prefix": ("text", "a"),
    "named_parameters.prefix": ("text", "a"), "named_buffers.prefix": ("text", "a"), "state_dict.prefix": ("text", "a"),
    "full_like.fill_value": ("quantity or bool", 1.0), "RMSNorm.eps": ("real", 1e-5),
    "rms_norm.eps": ("real", 1e-5), "from_dlpack.x": ("other", np.ones(2)), "device.name": ("other", "cpu"),
    "Tensor.__array__.dtype": ("other", "float32"), "mse_loss.target": ("other", X), "l1_loss.target": ("other", X), "huber_loss.target": ("other", X),
    "binary_cross_entropy_with_logits.target": ("other", X), "cumulative_sum.x": ("other", X[0]), "cumulative_prod.x": ("other", X[0]),
    "searchsorted.x1": ("other", X[0]),
    "isdtype.kind": ("other", "float32"), "finfo.type": ("dtype", "float32"), "iinfo.type": ("dtype", "int32"),
    "can_cast.to": ("dtype", "float32"), "custom_op.name": ("text", "mine"), "CustomOp.name": ("text", "mine"),
    "custom_gradient.name": ("text", "mine"), "checkpoint.name": ("text", "mine"), "assert_close.msg": ("text", "mine"),
    "checkpoint_sequential.name": ("text", "mine"), "einsum.equation": ("other", None), "clip.min": ("other", None),
    "checkpoint.fn": ("other", lambda: X), "selftest.device": ("other", "cpu"), "selftest.large": ("other", False),
    "where.condition": ("other", True),
}  # fmt: skip
# Parameters of other kinds: arrays, functions, containers.
BY_DEFAULT = {bool: "flag", str: "word", float: "real"}
OTHERS = set("""
    a b accumulate actual append args arrays arrays_and_dtypes attn_mask backward betas bias bufs closure condition constant_values
    data defaults expected file forward from_ generator grad gradient grads high key key_padding_mask kwargs labels loc loss low
    lr_scheduler mask max memo metadata min model module modules obj operands optimizer other outputs parameters params path peaks
    pos_weight prepend primals progress query rngs rule running_mean running_var sample schedulers self sorter spec state state_dict
    std stream tangents tape tensor tensors transform val value values vectors weight delta name to exponent dl_device max_version
    correction
""".split()) | set(GIVEN)  # fmt: skip

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
    if parameter.name == "dtype":
        return "dtype", "float32"
    if parameter.name in INTEGERS:
        return "integer", INTEGERS[parameter.name]
    if parameter.name in SEVERAL:
        return "integers", SEVERAL[parameter.name]
    # What a new parameter takes is told by its default.
    if type(parameter.default) in BY_DEFAULT:
        return BY_DEFAULT[type(parameter.default)], parameter.default
    if parameter.name in FLAGS:
        return "flag", True
    if parameter.name in WORDS:
        return "word", WORDS[parameter.name]
    if parameter.name in REALS:
        return "real", REALS[parameter.name]
    if parameter.kind is parameter.VAR_KEYWORD or parameter.name in OTHERS:
        return "other", GIVEN.get(parameter.name)
    return "unknown", None


def signature(function):
    """Its parameters, or none where Python cannot tell them."""
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        return []


def call(label, name, function, parameter, value):
    """The call with this value in one place and what fits in every other that needs one."""
    args, keywords = [], {}
    has_more = any(p.kind is p.VAR_POSITIONAL for p in signature(function))
    for p in signature(function):
        fits = kind_of(label, name, p)[1]
        if p.name == "self":
            given = X[:1] if name == "squeeze" else loss() if name == "backward" else X.clone()
        elif p == parameter:
            given = value
        elif p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            given = halves() if p.name == "schedulers" else X.clone() if fits is X else fits
        elif label == "reshape" and p.name == "shape" and parameter.kind is not parameter.VAR_POSITIONAL:
            given = (8,)
        else:
            continue
        if p.kind is p.VAR_POSITIONAL:
            args.extend(given)
        elif p.kind is p.KEYWORD_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self" and not has_more):
            keywords[p.name] = given
        else:
            args.append(given)
    return function(*args, **keywords)
