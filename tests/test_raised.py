"""What the code of an argument raises when it is asked for its value (Ctrl-C, no memory) leaves every function as it is, and it is asked once."""

import itertools
import operator

import agtape as ag
import pytest
from public_calls import X, call, callables, kind_of, signature

pytestmark = pytest.mark.promise("U01")

# Which method each kind of argument is asked by.
ASKED = {
    "integer": ["__index__"], "integers": ["__index__", "__len__", "__iter__"], "positional": ["__index__", "__len__", "__iter__"],
    "quantity": ["__index__", "__float__"], "quantity or bool": ["__index__", "__float__"], "real": ["__float__"],
    "flag": ["__index__"], "array": ["__array__"], "sequence": ["__len__", "__iter__"],
}  # fmt: skip
ARRAYS = set("""
    x x1 x2 input weight target indices index src source data obj attn_mask query key value bias labels actual expected tensor
    prepend append sorter pos_weight mask gradient other min max
""".split())  # fmt: skip
SEQUENCES = {"parameters", "params", "functions", "rngs", "inputs", "modules"}
# What takes tensors alone, or asks nothing of what it is given.
NOT_ASKED = {
    "Tensor.where.x1", "Tensor.where.x2", "where.x1", "where.x2", "eval.tensors", "tape_memory.top", "save.obj", "Sequential.modules",
    "estimate_memory.inputs", "from_dlpack.x", "result_type.arrays_and_dtypes", "gradcheck.inputs",
}  # fmt: skip


class Trap:
    """An object whose method of one name raises; it counts how often it was asked."""

    def __init__(self, error):
        self.error, self.asked = error, 0

    def spring(self, *_args, **_kwargs):
        self.asked += 1
        raise self.error


def trap(method, error):
    """A trap of a class of its own, which looks like what has that method."""
    members = {method: Trap.spring}
    if method in ("__len__", "__iter__"):
        members = {
            "__len__": lambda self: 1, "__getitem__": lambda self, i: [0][i], "__iter__": lambda self: iter([0]), **members,
        }  # fmt: skip
    return type("Trapped", (Trap,), members)(error)


def asked_by(row):
    """The methods that an argument in this place is asked by."""
    label, name, _, parameter = row
    kind = kind_of(label, name, parameter)[0]
    owner = f"Tensor.{name}" if label.startswith("Tensor.") else name
    if f"{owner}.{parameter.name}" in NOT_ASKED:
        return []
    if kind != "other":
        return ASKED.get(kind, [])
    takes_tensors_alone = label.startswith(("schedule.", "testing.", "init.", "data.", "nn."))
    if parameter.name in ARRAYS and not takes_tensors_alone:
        return ASKED["array"]
    return ASKED["sequence"] if parameter.name in SEQUENCES or parameter.name == "tensors" else []


ROWS = [
    (*row, method)
    for row in ((*entry, p) for entry in callables() for p in signature(entry[2]))
    for method in asked_by(row)
]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}({row[3].name}){row[4]}")
def test_U01_what_an_argument_raises_comes_through_as_it_is_and_once(row, kind):
    *call_of, method = row
    value = trap(method, kind("now"))
    given = (value,) if call_of[3].kind is call_of[3].VAR_POSITIONAL else value
    with pytest.raises(kind) as caught:
        call(*call_of, given)
    assert caught.value is value.error and value.asked == 1


BINARY = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift eq ne lt le gt ge".split()
IN_PLACE = "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", [*BINARY, *IN_PLACE])
def test_U01_operators_let_through_what_their_other_side_raises(name, kind):
    value = trap("__array__", kind("now"))
    sides = [(ag.ones(2), value)] if name.startswith("i") else [(ag.ones(2), value), (value, ag.ones(2))]
    for i, (left, right) in enumerate(sides):
        with pytest.raises(kind) as caught:
            getattr(operator, name)(left, right)
        assert caught.value is value.error and value.asked == i + 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("method", ["__index__", "__array__"])
def test_U01_indexing_lets_through_what_an_index_raises(method, kind):
    value = trap(method, kind("now"))
    bounds = [slice(value, None), slice(None, value), slice(None, None, value)] if method == "__index__" else []
    for i, index in enumerate((value, (0, value), *bounds)):
        for ask in (lambda index: X[index], lambda index: ag.zeros(2, 4).__setitem__(index, 1.0)):
            with pytest.raises(kind) as caught:
                ask(index)
            assert caught.value is value.error
        assert value.asked == 2 * (i + 1)


def test_U01_an_axis_whose_value_is_computed_for_long_can_be_interrupted():
    class Axis:
        def __index__(self):
            raise KeyboardInterrupt("pressed")

    for call_with in (
        X.sum,
        X.softmax,
        lambda axis: ag.zeros(axis),
        lambda axis: ag.nn.GLU(axis),
        lambda axis: X[axis],
    ):
        with pytest.raises(KeyboardInterrupt, match="pressed"):
            call_with(Axis())


ENDLESS = {
    "as many as 2**40": lambda: range(2**40),
    "no end": lambda: itertools.repeat(ag.nn.ReLU()),
}


@pytest.mark.parametrize("endless", ENDLESS.values(), ids=list(ENDLESS))
@pytest.mark.parametrize(
    ("op", "ask"),
    [
        ("SGD", lambda many: ag.optim.SGD(many, lr=0.1)),
        ("SGD", lambda many: ag.optim.SGD([{"params": many}], lr=0.1)),
        ("clip_grad_norm_", lambda many: ag.nn.clip_grad_norm_(many, 1.0)),
        ("checkpoint_sequential", lambda many: ag.nn.checkpoint_sequential(many, 1, X)),
        ("checkpoint", lambda many: ag.checkpoint(ag.sin, X, rngs=many)),
        ("ModuleList", lambda many: ag.nn.ModuleList(many)),
        ("ModuleDict", lambda many: ag.nn.ModuleDict(many)),
        ("concat", lambda many: ag.concat(many)),
        ("backward", lambda many: ag.ones(1).backward(inputs=many)),
        (
            "SequentialLR",
            lambda many: ag.optim.lr_scheduler.SequentialLR(ag.optim.SGD([ag.param([1.0])], lr=0.1), many, [1]),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_U01_sequences_without_an_end_are_refused(op, ask, endless):
    with pytest.raises((ValueError, TypeError)) as caught:
        ask(endless())
    assert str(caught.value).startswith(f"{op}: ") and "expected" in str(caught.value)


@pytest.mark.parametrize(
    ("op", "ask"),
    [
        ("layer_norm", lambda many: ag.nn.functional.layer_norm(X, many)),
        ("LayerNorm", lambda many: ag.nn.LayerNorm(many)),
        ("grad", lambda many: ag.grad(ag.sin, argnums=many)),
        ("zeros", lambda many: ag.zeros(many)),
        ("sum", lambda many: X.sum(axis=many)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_U01_sequences_of_integers_are_bounded(op, ask):
    class Long:
        """As `range(2**40)`, whose members nobody has room for."""

        def __len__(self):
            return 2**40

        def __getitem__(self, i):
            return 0

        def __iter__(self):
            return iter(int, 1)

    for many in (range(2**40), Long()):
        with pytest.raises((ValueError, TypeError), match=rf"^{op}: .*expected (at most 1048576|an int)"):
            ask(many)
