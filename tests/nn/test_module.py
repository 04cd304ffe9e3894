"""Module: registration, the tree, state dicts, modes, dtype moves, display, copies."""

import copy
import gc
import pickle
import weakref
from collections import OrderedDict

import agtape as ag
import numpy as np
import pytest

nn = ag.nn


class Net(nn.Module):
    """Two layers, a buffer, a shared weight and a plain attribute."""

    def __init__(self):
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.second = nn.Linear(4, 2, bias=False)
        self.scale = nn.Parameter(np.ones(2, np.float32))
        self.register_buffer("offset", ag.zeros(2))
        self.register_buffer("scratch", ag.zeros(1), persistent=False)
        self.width = 4

    def forward(self, x):
        return self.second(ag.relu(self.norm(self.first(x)))) * self.scale + self.offset


PARAMETERS = ["scale", "first.weight", "first.bias", "norm.weight", "norm.bias", "second.weight"]
BUFFERS = ["offset", "scratch", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]


def test_the_tree_is_walked_in_order_without_calling_super_init():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == PARAMETERS
    assert [n for n, _ in net.named_buffers()] == BUFFERS
    assert [n for n, _ in net.named_modules()] == ["", "first", "norm", "second"]
    assert [n for n, _ in net.named_children()] == ["first", "norm", "second"]
    assert [n for n, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert len(list(net.parameters())) == len(PARAMETERS)
    assert net.width == 4


def test_a_shared_parameter_is_counted_once_and_saved_under_both_names():
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    net[1].weight = net[0].weight
    assert [n for n, _ in net.named_parameters()] == ["0.weight"]
    assert list(net.state_dict()) == ["0.weight", "1.weight"]
    with ag.grad_tape():
        loss = net(ag.ones((1, 3))).sum()
    loss.backward()
    assert net[1].weight.grad is not None
    module = nn.Sequential(net, net)
    assert len(list(module.modules())) == 4


def test_attributes_move_between_registries():
    m = nn.Module()
    m.x = nn.Parameter([1.0])
    assert len(list(m.parameters())) == 1
    m.x = None
    assert not list(m.parameters())
    m.x = nn.ReLU()
    assert [n for n, _ in m.named_children()] == ["x"]
    m.x = 3
    assert not list(m.children())
    m.x = nn.Parameter([2.0])
    del m.x
    assert not list(m.parameters())
    assert not hasattr(m, "x")
    m.plain = ag.ones(2)  # a tensor that wants no gradient is an ordinary attribute
    assert not list(m.parameters())
    assert not list(m.buffers())


def test_a_frozen_parameter_stays_one():
    layer = nn.Linear(2, 2).requires_grad_(False)
    layer.weight = layer.weight
    assert len(list(layer.parameters())) == 2
    m = nn.Module()
    m.register_parameter("w", nn.Parameter([1.0], requires_grad=False))
    assert [p.requires_grad for p in m.parameters()] == [False]


def test_a_buffer_keeps_its_identity_and_its_updates_are_not_recorded():
    m = nn.Module()
    m.register_buffer("mean", ag.zeros(2))
    before, w = m.mean, ag.param([1.0, 2.0])
    with ag.grad_tape():
        m.mean = m.mean * 0.5 + w
        loss = (m.mean * w).sum()
    loss.backward()
    assert m.mean is before
    assert m.mean.tolist() == [1.0, 2.0]
    assert not m.mean.requires_grad
    assert w.grad.tolist() == [1.0, 2.0]
    m.mean = ag.zeros(3)  # another shape: another tensor, still the buffer
    assert [b.shape for b in m.buffers()] == [(3,)]


def test_train_eval_requires_grad_and_apply():
    net = Net()
    assert all(m.training for m in net.modules())
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "BatchNorm1d", "Linear", "Net"]
    with pytest.raises(TypeError, match="train: mode is 'yes'; expected True or False"):
        net.train("yes")


def test_zero_grad_drops_gradients():
    net = Net()
    with ag.grad_tape():
        loss = net(ag.rand((5, 3))).sum()
    loss.backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all((p.grad.numpy() == 0).all() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_a_state_dict_goes_round_and_is_a_snapshot():
    net, other = Net(), Net()
    x = ag.rand((5, 3))
    net(x)
    state = net.state_dict()
    assert list(state) == ["scale", "offset", *PARAMETERS[1:5], *BUFFERS[2:], "second.weight"]
    assert not any(t.requires_grad for t in state.values())
    kept, leaves = {k: v.numpy().copy() for k, v in state.items()}, list(other.parameters())
    assert other.load_state_dict(state) == ([], [])
    assert all(a is b for a, b in zip(leaves, other.parameters()))
    assert all(p.requires_grad and p.is_leaf for p in other.parameters())
    np.testing.assert_array_equal(net.eval()(x).numpy(), other.eval()(x).numpy())
    net.scale.assign_(net.scale * 2)
    np.testing.assert_array_equal(state["scale"].numpy(), kept["scale"])
    assert list(net.first.state_dict("first.")) == ["first.weight", "first.bias"]


def test_loading_is_all_or_nothing():
    net = Net()
    state = {k: v.numpy() for k, v in net.state_dict().items()}
    before = {k: v.copy() for k, v in state.items()}
    changed = {k: v + 1 for k, v in state.items()}
    changed["second.weight"] = np.zeros((9, 9), np.float32)
    del changed["scale"]
    changed["extra"] = np.zeros(1, np.float32)
    message = r"missing: scale; unexpected: extra; second.weight has shape \(9, 9\), expected \(2, 4\)"
    with pytest.raises(ValueError, match=message):
        net.load_state_dict(changed)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    del changed["second.weight"]
    result = net.load_state_dict(changed, strict=False)
    assert result.missing_keys == ["scale", "second.weight"]
    assert result.unexpected_keys == ["extra"]
    np.testing.assert_array_equal(net.first.bias.numpy(), before["first.bias"] + 1)
    with pytest.raises(TypeError, match="load_state_dict: the state is list"):
        net.load_state_dict([1])
    with pytest.raises(TypeError, match="scale is str; expected a tensor or an array"):
        net.load_state_dict({"scale": "big"}, strict=False)


def test_loading_converts_dtypes():
    layer = nn.Linear(2, 2)
    layer.load_state_dict({"weight": np.eye(2), "bias": [1, 2]})
    assert str(layer.weight.dtype) == "float32"
    assert layer.bias.tolist() == [1.0, 2.0]


def test_to_changes_floating_tensors_in_place():
    net = Net()
    leaves = [*net.parameters(), *net.buffers()]
    assert net.to("float64") is net
    assert [id(t) for t in [*net.parameters(), *net.buffers()]] == [id(t) for t in leaves]
    assert {str(p.dtype) for p in net.parameters()} == {"float64"}
    assert str(net.norm.num_batches_tracked.dtype) == "int64"
    assert str(net(ag.tensor(np.ones((2, 3)))).dtype) == "float64"
    with ag.grad_tape():
        loss = net(ag.tensor(np.random.default_rng(0).random((4, 3)))).sum()
    loss.backward()
    assert str(net.scale.grad.dtype) == "float64"
    assert str(net.to(dtype="float32").scale.dtype) == "float32"
    assert net.scale.grad is None
    assert net.to(device="cpu") is net
    with pytest.raises(TypeError, match="to: dtype int64 is not floating"):
        net.to("int64")


def test_repr_shows_the_tree():
    assert repr(nn.Linear(3, 4)) == "Linear(in_features=3, out_features=4, bias=True)"
    inner = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    assert repr(nn.Sequential(inner, nn.Dropout(0.5))) == "\n".join(
        [
            "Sequential(",
            "  (0): Sequential(",
            "    (0): Linear(in_features=3, out_features=4, bias=True)",
            "    (1): ReLU()",
            "  )",
            "  (1): Dropout(p=0.5)",
            ")",
        ]
    )
    html = Net()._repr_html_()
    assert "<b>Linear</b>" in html
    assert "first" in html
    assert "offset: buffer (2,) float32" in html
    assert "34 parameters" in html  # 2 + 12 + 4 + 4 + 4 + 8
    assert "<script" not in nn.Sequential(OrderedDict([("<script>", nn.ReLU())]))._repr_html_()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_shares_nothing(duplicate):
    net, x = Net(), ag.rand((4, 3))
    other = duplicate(net)
    np.testing.assert_array_equal(net(x).numpy(), other(x).numpy())
    assert all(a is not b for a, b in zip(net.parameters(), other.parameters()))
    assert all(getattr(other, n) is p for n, p in other.named_parameters(recurse=False))
    other.scale.assign_(other.scale * 3)
    assert net.scale.tolist() == [1.0, 1.0]
    assert [n for n, _ in other.named_parameters()] == PARAMETERS


def test_a_module_is_freed_without_the_collector():
    gc.collect()
    gc.disable()
    try:
        net = Net()
        with ag.grad_tape():
            loss = net(ag.rand((4, 3))).sum()
        loss.backward()
        gone = weakref.ref(net)
        del net, loss
        assert gone() is None
    finally:
        gc.enable()


def test_containers_hold_modules():
    layers = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
    layers.append(nn.Linear(2, 3)).insert(1, nn.Tanh())
    assert [type(m).__name__ for m in layers] == ["Linear", "Tanh", "ReLU", "Linear"]
    assert [n for n, _ in layers.named_parameters()] == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert len(layers[1:3]) == 2
    assert layers[-1].out_features == 3
    del layers[0]
    assert [n for n, _ in layers.named_children()] == ["0", "1", "2"]
    layers[0] = nn.GELU()
    assert isinstance(layers[0], nn.GELU)
    with pytest.raises(IndexError, match="ModuleList: index 9 but 3 modules"):
        layers[9]
    named = nn.ModuleDict({"a": nn.ReLU()})
    named["b"] = nn.Linear(1, 1)
    assert list(named.keys()) == ["a", "b"]
    assert "a" in named
    assert len(named) == 2
    del named["a"]
    assert list(named) == ["b"]
    model = nn.Sequential(OrderedDict(first=nn.Linear(2, 3), act=nn.ReLU()))
    assert model.first.out_features == 3
    assert model(ag.ones((1, 2))).shape == (1, 3)
    assert type(model[:1]) is nn.Sequential


def test_U01_misuse_is_named():
    m = nn.Module()
    with pytest.raises(TypeError, match="Module: has no forward method"):
        m(1)
    with pytest.raises(TypeError, match="add_module: 'x' is int; expected a Module"):
        m.add_module("x", 3)
    with pytest.raises(TypeError, match="'0' is function; expected a Module"):
        nn.Sequential(lambda x: x)
    with pytest.raises(ValueError, match="expected a string without dots"):
        m.register_buffer("a.b", None)
    with pytest.raises(ValueError, match="'forward' is a method or attribute of Module"):
        m.register_buffer("forward", None)
    with pytest.raises(TypeError, match="register_parameter: 'w' is list; expected a tensor or None"):
        m.register_parameter("w", [1.0])
    m.w = nn.Parameter([1.0])
    with ag.grad_tape():
        computed = m.w * 2
        with pytest.raises(ValueError, match=r"Module\.w is a parameter; expected a leaf"):
            m.w = computed
