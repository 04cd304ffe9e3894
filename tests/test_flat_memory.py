"""Nothing accumulates over steps that the user does not hold: pool bytes, pending nodes, plans and the process stay flat."""

import gc

import agtape as ag
import numpy as np
import pytest
from pool_bytes import active, resident_bytes

F = ag.nn.functional
MIB = 1 << 20
WARM, STEPS, EVERY = 300, 3000, 300


def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, 8)).astype(np.float32)
    return ag.tensor(x), ag.tensor((x.sum(1) > 0).astype(np.int64))


class Training:
    """A small model and its step; subclasses add what users keep beside it."""

    def __init__(self):
        ag.manual_seed(0)
        self.x, self.labels = data()
        self.model = self.build()
        self.opt = ag.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def build(self):
        return ag.nn.Sequential(ag.nn.Linear(8, 16), ag.nn.ReLU(), ag.nn.Linear(16, 2))

    def loss(self):
        return F.cross_entropy(self.model(self.x), self.labels)

    def step(self, i):
        with ag.grad_tape():
            loss = self.loss()
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss


class RunningStatistics(Training):
    def build(self):
        return ag.nn.Sequential(ag.nn.Linear(8, 16), ag.nn.BatchNorm(16), ag.nn.Dropout(0.1), ag.nn.Linear(16, 2))


class UnreadMetrics(Training):
    """Sums that nobody reads before the end, kept in tensors of the user's own."""

    def __init__(self):
        super().__init__()
        self.total, self.right, self.seen = ag.zeros(()), ag.zeros((), dtype="int64"), 0

    def step(self, i):
        with ag.grad_tape():
            out = self.model(self.x)
            loss = F.cross_entropy(out, self.labels)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        self.total += loss
        self.right = self.right + (out.argmax(axis=1) == self.labels).sum()
        self.seen += 1


class AveragedWeights(Training):
    def __init__(self):
        super().__init__()
        self.mean = [p.detach() for p in self.model.parameters()]

    def step(self, i):
        super().step(i)
        self.mean = [m * 0.99 + p.detach() * 0.01 for m, p in zip(self.mean, self.model.parameters())]


class AveragedInPlace(AveragedWeights):
    def step(self, i):
        Training.step(self, i)
        with ag.no_grad():
            for m, p in zip(self.mean, self.model.parameters()):
                m *= 0.99
                m += 0.01 * p


class AccumulatedGradients(Training):
    """Never a step, never a zero_grad."""

    def step(self, i):
        with ag.grad_tape():
            loss = self.loss()
        loss.backward()


class UnreadLosses(Training):
    """Losses that are neither read nor differentiated."""

    def step(self, i):
        with ag.grad_tape():
            self.last = self.loss()


class NoTape(Training):
    """Evaluation outside a tape whose result is dropped, and one that is replaced unread."""

    def step(self, i):
        self.model(self.x)
        self.last = self.loss()
        self.best = ag.minimum(self.last, getattr(self, "best", self.last))


class SmoothedLoss(Training):
    """A Python variable that depends on every step before, unread."""

    smooth = 0.0

    def step(self, i):
        self.smooth = 0.9 * self.smooth + 0.1 * super().step(i)


class SmoothedUnderTape(Training):
    """The same, recorded on each step's tape."""

    smooth = 0.0

    def step(self, i):
        with ag.grad_tape():
            loss = self.loss()
            self.smooth = 0.9 * self.smooth + 0.1 * loss
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()


class ClearedTape(Training):
    def step(self, i):
        with ag.grad_tape() as tape:
            self.last = self.loss()
        tape.clear()


class OneTape(Training):
    """One tape, entered for every step."""

    def __init__(self):
        super().__init__()
        self.tape = ag.grad_tape()

    def step(self, i):
        with self.tape:
            loss = self.loss()
            loss.backward()
        self.opt.step()
        self.opt.zero_grad()


class FailingSteps(Training):
    """Every step raises somewhere."""

    def fail(self):
        with ag.grad_tape():
            self.kept = self.loss()
            self.kept @ ag.ones((3, 3))

    def step(self, i):
        with pytest.raises(ValueError):
            self.fail()
        with pytest.raises(IndexError):
            self.x[ag.tensor([99])].numpy()


class DroppedOps(Training):
    """An endless loop of ops none of which is ever needed."""

    def step(self, i):
        for _ in range(20):
            self.x * 2 + 1


class RebindInPlace(Training):
    def __init__(self):
        super().__init__()
        self.buffer = ag.zeros((16, 8))

    def step(self, i):
        self.buffer[i % 15] = self.x[i % 30]
        self.buffer.assign_(self.buffer)
        self.buffer = self.buffer.detach()


class GradFunctions(Training):
    def __init__(self):
        super().__init__()
        self.w = ag.ones(8)

    def step(self, i):
        value, slope = ag.value_and_grad(lambda w: ag.tanh(self.x @ w).sum())(self.w)
        self.w = self.w - 1e-3 * slope
        self.value = value


CASES = [
    Training, RunningStatistics, UnreadMetrics, AveragedWeights, AveragedInPlace, AccumulatedGradients, UnreadLosses, NoTape,
    SmoothedLoss, SmoothedUnderTape, ClearedTape, OneTape, FailingSteps, DroppedOps, RebindInPlace, GradFunctions,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_T15_pool_bytes_and_pending_nodes_are_flat(case):
    gc.collect()
    gc.disable()
    try:
        run = case()
        bytes_seen, nodes_seen, plans_seen = [], [], []
        for i in range(WARM + STEPS):
            run.step(i)
            if (i + 1) % EVERY:
                continue
            with ag.grad_tape():  # computes what is pending, as the next step would
                pass
            if i >= WARM:
                bytes_seen.append(active())
                nodes_seen.append(ag.last_plan().nodes)
                plans_seen.append(ag.plan_cache_stats().misses)
            if i + 1 == WARM + STEPS // 3 // EVERY * EVERY:
                resident = resident_bytes()
        grown = resident_bytes() - resident
    finally:
        gc.enable()
    assert len(set(bytes_seen)) == 1, bytes_seen
    assert len(set(nodes_seen)) == 1 and nodes_seen[0] < 10_064, nodes_seen
    assert len(set(plans_seen[1:])) <= 1, plans_seen
    assert grown < MIB, f"the process grew by {grown} bytes in {STEPS * 2 // 3} steps"


def test_T15_metrics_are_right_when_read_at_the_end():
    run = UnreadMetrics()
    twin = Training()
    losses = []
    for i in range(200):
        run.step(i)
        losses.append(twin.step(i).item())
    assert run.total.item() == pytest.approx(sum(losses), rel=1e-4)
    assert 0 < run.right.item() <= 200 * 32 and run.seen == 200


def test_T15_tapes_leave_no_pools_behind():
    """A pass pool's number is used again: a handle of the thousandth tape names no higher pool than one of the third."""
    w = ag.param(np.ones(4, np.float32))

    def pool_of_a_step():
        with ag.grad_tape():
            y = w * 2
        return y.handle.pool

    early = {pool_of_a_step() for _ in range(3)}
    assert all(pool_of_a_step() in early for _ in range(1000))


def test_T15_what_was_read_by_name_does_not_cut_later_plans():
    x, misses = ag.tensor(np.ones(4)), []
    for _ in range(200):
        h = x
        for _ in range(100):
            h = ag.tanh(h)
        h.sum().item()
        misses.append(ag.plan_cache_stats().misses)
    assert len(set(misses[1:])) == 1, misses
    # Batches that only their predictions keep alive, until these are read.
    source, misses = np.ones(8 * MIB // 4, np.float32), []

    def predict():
        batch = ag.tensor(source)
        return ag.tanh(batch * 0.5).sum()

    for _ in range(80):  # 640 MiB in all
        predict().item()
        misses.append(ag.plan_cache_stats().misses)
    assert len(set(misses[1:])) == 1, misses


@pytest.mark.promise("T15", "U01")
@pytest.mark.parametrize("keeps_gradient", [False, True])
def test_T15_a_backward_pass_that_fails_keeps_no_parameter_alive(keeps_gradient):
    """What could not be computed needs its leaf, whose gradient it is."""

    def fail():
        w = ag.param(np.ones((1000, 10), np.float32))
        with ag.grad_tape():
            loss = (w[ag.tensor([1, 5000])] ** 2).sum()
        with pytest.raises(IndexError, match="out of range"):
            loss.backward()
        gradient = w.grad
        with pytest.raises(IndexError, match="out of range"):
            gradient.numpy()
        return gradient if keeps_gradient else None

    before = active()
    for _ in range(3):
        kept = fail()
        if keeps_gradient:
            # Whoever holds the gradient holds its recipe, and hears again why it has no value.
            assert active() > before
            with pytest.raises(IndexError, match="out of range"):
                kept.numpy()
        del kept
        gc.collect()
        assert active() == before


@pytest.mark.promise("T05", "T15")
def test_T15_the_gradient_belongs_to_a_leaf_through_every_object_of_it():
    w = ag.param([1.0, 2.0])
    with ag.grad_tape():
        same = ag.checkpoint(lambda x: x, w)
        loss = (same * 3).sum()
    loss.backward()
    del same
    assert w.grad.tolist() == [3.0, 3.0]
    w.assign_([5.0, 6.0])
    gradient = w.grad
    gradient += 1
    assert w.grad.tolist() == [4.0, 4.0]
    del w
    assert gradient.tolist() == [4.0, 4.0]
    gradient += 1
    assert gradient.tolist() == [5.0, 5.0]


@pytest.mark.promise("T15")
@pytest.mark.parametrize("create_graph", [False, True])
def test_T15_a_leaf_that_ends_before_its_backward_pass_leaves_no_gradient(create_graph):
    x = ag.ones((64, 64))
    ag.eval(x)
    held = []
    for _ in range(4):
        w = ag.param(np.ones((64, 64), np.float32))
        with ag.grad_tape():
            loss = (w * w * x).sum()
        del w
        loss.backward(create_graph=create_graph)
        del loss
        ag.eval()
        held.append(ag.memory_stats("cpu").active)
    assert len(set(held)) == 1, held
