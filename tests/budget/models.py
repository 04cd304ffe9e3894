"""Owns the networks that budget tests train, what one step of them costs, and the figures that tests add up themselves."""

import math

import agtape as ag
import numpy as np
from agtape import _core
from pool_bytes import active, class_bytes


def leaves(*shapes, seed=0):
    """Parameters of these shapes, and the generator that made them."""
    rng = np.random.default_rng(seed)
    made = [ag.param((rng.standard_normal(s) / math.sqrt(s[0])).astype("float32")) for s in shapes]
    ag.eval(*made)
    return made, rng


class Mlp:
    """`layers` products and relus of one width, with a mean square at the end."""

    def __init__(self, layers=48, width=64, batch=4096):
        self.params, rng = leaves(*[s for _ in range(layers) for s in ((width, width), (width,))])
        self.x = ag.tensor(rng.standard_normal((batch, width)).astype("float32"))

    def loss(self):
        h = self.x
        for w, b in zip(self.params[::2], self.params[1::2]):
            h = ag.relu(h @ w + b)
        return (h * h).mean()


class Skips(Mlp):
    """An Mlp whose layers add what came in two layers before."""

    def loss(self):
        h, before = self.x, self.x
        for w, b in zip(self.params[::2], self.params[1::2]):
            h, before = ag.tanh(h @ w + b) + before, h
        return (h * h).mean()


class Shared(Mlp):
    """One layer used many times."""

    def __init__(self, layers=24, width=48, batch=512):
        super().__init__(1, width, batch)
        self.layers = layers

    def loss(self):
        h, (w, b) = self.x, self.params
        for _ in range(self.layers):
            h = ag.tanh(h @ w + b)
        return (h * h).mean()


class Lookup(Mlp):
    """An Mlp over rows of a table chosen by index tensors, judged by label tensors: kernels that may refuse their values at both ends."""

    def __init__(self, layers=16, width=32, batch=512):
        super().__init__(layers, width, batch)
        (self.table,), rng = leaves((50, width))
        self.params.append(self.table)
        self.ids = ag.tensor(rng.integers(0, 50, batch))
        self.labels = ag.tensor(rng.integers(0, width, batch))

    def loss(self):
        h = ag.tanh(self.table[self.ids])
        for w, b in zip(self.params[:-1:2], self.params[1:-1:2]):
            h = ag.relu(h @ w + b)
        return ag.nn.functional.cross_entropy(h, self.labels)


class Chain:
    """`length` equal layers of one elementwise op each that a kernel cannot hold together: a cumulative sum between them."""

    def __init__(self, length=1000, elems=1024):
        self.params, _ = leaves((1, elems))
        self.length = length

    def loss(self):
        h = self.params[0]
        for _ in range(self.length):
            h = ag.softmax(h, axis=-1)
        return h.sum()


class Transformer:
    """Blocks of layer norm, causal attention with dropout, and a GELU network of four times the width."""

    def __init__(self, blocks=12, width=32, heads=2, length=32, batch=4, dropout=0.0):
        shapes = []
        for _ in range(blocks):
            shapes += [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
        self.params, rng = leaves(*shapes)
        self.heads, self.dropout = heads, dropout
        self.x = ag.tensor(rng.standard_normal((batch, length, width)).astype("float32"))
        self.gain, self.bias = (ag.param(np.full(width, v, "float32")) for v in (1.0, 0.0))
        self.params += [self.gain, self.bias]

    def loss(self):
        ag.manual_seed(7)
        h = self.x
        functional = ag.nn.functional
        for at in range(0, len(self.params) - 2, 4):
            wqkv, wo, w1, w2 = self.params[at : at + 4]
            h = h + self.attention(functional.layer_norm(h, (h.shape[-1],), self.gain, self.bias) @ wqkv) @ wo
            inner = functional.layer_norm(h, (h.shape[-1],), self.gain, self.bias)
            h = h + functional.gelu(inner @ w1) @ w2
        return (h * h).mean()

    def attention(self, qkv):
        batch, length, three = qkv.shape
        width = three // 3
        split = qkv.reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = split[0], split[1], split[2]
        out = ag.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        return out.permute(0, 2, 1, 3).reshape(batch, length, width)


class Step:
    """One forward and backward pass: gradients, the last plan, and the highest active and reserved bytes."""

    def __init__(self, model, budget=None, read_loss=False):
        for p in model.params:
            p.grad = None
        ag.eval()
        ag.empty_cache()
        self.held = active()
        ag.reset_peak_memory()
        with ag.peak_memory() as scope:
            with ag.grad_tape(budget=budget):
                loss = model.loss()
                if read_loss:
                    self.value = loss.item()
            loss.backward()
        self.peak, self.plan = scope.peak, ag.last_plan()
        self.reserved = _core.reserved_peak()
        self.launches = _core.last_plan_launches()
        self.grads = [p.grad.numpy().copy() for p in model.params]
        self.grad_bytes = sum(class_bytes(p.grad.nbytes) for p in model.params)

    @property
    def fixed(self):
        """What every budget has to hold: parameters, inputs, the gradients and the loss."""
        return self.held + self.grad_bytes + 64

    @property
    def activations(self):
        """The peak less what every budget has to hold."""
        return self.peak - self.fixed


def smallest_of(model, budget):
    """The smallest budget, as the refusal of a smaller one says it."""
    try:
        Step(model, budget)
    except ag.BudgetError as refused:
        return refused.smallest_bytes
    raise AssertionError(f"a budget of {budget} bytes was not refused")


def work_of(launches):
    """Work added up from the kernel list: 2mnk for a product, 4 for each element that epilogues and other kernels move."""
    total = 0
    for launch in launches:
        moved = launch["ins"] + launch["outs"]
        if launch["kernel"] in ("matmul", "fused_matmul"):
            total += 2 * math.prod(launch["shape"]) * launch["ins"][0]["shape"][-1]
            moved = [] if launch["kernel"] == "matmul" else moved[2:]
        total += 4 * sum(math.prod(o["shape"]) for o in moved)
    return total


def most_scratch(launches):
    """The most bytes that one kernel needs for itself, such as parts of sums that an adapter adds up afterwards."""
    needs = (launch["scratch"] for launch in launches)
    return max(sum(class_bytes(math.prod(o["shape"]) * o["item_bytes"]) for o in need) for need in needs)


def peak_of(launches):
    """The highest sum of living temporaries, each counted from its launch to its last use and shared memory once."""
    spans = {}
    for at, launch in enumerate(launches):
        # What a kernel needs for itself lives as long as its launch.
        for operand in launch["outs"] + launch["scratch"]:
            if operand["place"] is not None:
                nbytes = class_bytes(math.prod(operand["shape"]) * operand["item_bytes"])
                spans[operand["temp"]] = [at, at, tuple(operand["place"]), nbytes, operand["is_kept"]]
        for operand in launch["ins"]:
            if operand["temp"] in spans:
                spans[operand["temp"]][1] = at
                spans[operand["temp"]][4] |= operand["is_kept"]
    highest = 0
    for at in range(len(launches)):
        alive = {}
        for first, last, place, nbytes, is_kept in spans.values():
            if first <= at <= (len(launches) if is_kept else last):
                # Where an output takes over its input's memory both are there at that launch, once.
                alive[place] = max(alive.get(place, 0), nbytes)
        highest = max(highest, sum(alive.values()))
    return highest
