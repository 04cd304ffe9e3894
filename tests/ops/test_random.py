"""Random numbers: the generator bit by bit, statistics, seeds and states, and where each draw stands in the stream."""

import pickle

import agtape as ag
import numpy as np
import pytest

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)


def philox(seed, first, count):
    """The four words at each of `count` counters from `first` on: Philox 4x32-10 (Salmon and others, SC 2011)."""
    at = np.arange(first, first + count, dtype=np.uint64)
    c = [at & LOW, at >> np.uint64(32), np.zeros_like(at), np.zeros_like(at)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(ROUNDS):
        a, b = c[0] * np.uint64(MULTIPLIERS[0]), c[2] * np.uint64(MULTIPLIERS[1])
        high = [b >> np.uint64(32), a >> np.uint64(32)]
        c = [high[0] ^ c[1] ^ np.uint64(key[0]), b & LOW, high[1] ^ c[3] ^ np.uint64(key[1]), a & LOW]
        key = [(k + w) & 0xFFFFFFFF for k, w in zip(key, WEYL)]
    return np.stack(c, axis=1)


def pairs(words):
    """Two words as one number, the first in the low half."""
    w = words.reshape(-1, 2)
    return w[:, 0] | w[:, 1] << np.uint64(32)


def test_the_published_vectors():
    """kat_vectors of Random123 1.14, for this file's own reading of the generator."""
    assert philox(0, 0, 1)[0].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


SIZES = [1, 2, 3, 4, 5, 63, 64, 65, 257, 70_001]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", [0, 7, 2**40 + 3, 2**64 - 1])
def test_uniform_is_the_generator_bit_by_bit(seed, n):
    ag.manual_seed(seed)
    words = philox(seed, 0, -(-n // 4)).reshape(-1)[:n]
    wanted = (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
    np.testing.assert_array_equal(ag.rand(n).numpy(), wanted)
    ag.manual_seed(seed)
    wide = (pairs(philox(seed, 0, -(-n // 2)))[:n] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    np.testing.assert_array_equal(ag.rand(n, dtype="float64").numpy(), wide)


@pytest.mark.parametrize("n", SIZES)
def test_integers_are_the_generator_bit_by_bit(n):
    ag.manual_seed(5)
    bits = [int(b) for b in pairs(philox(5, 0, -(-n // 2)))[:n]]
    assert ag.randint(-3, 8, (n,)).tolist() == [-3 + (b * 11 >> 64) for b in bits]


@pytest.mark.parametrize("n", SIZES)
def test_normals_follow_box_and_muller(n):
    ag.manual_seed(9)
    words = philox(9, 0, -(-n // 4)).reshape(-1, 2)
    # The logarithm's argument is a float32 in (0, 1].
    open_unit = (words[:, 0].astype(np.float32) + np.float32(1)) * np.float32(2.0**-32)
    radius = np.sqrt(-2 * np.log(open_unit.astype(np.float64)))
    angle = 2 * np.pi * (words[:, 1] >> np.uint64(8)).astype(np.float64) * 2.0**-24
    wanted = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:n]
    np.testing.assert_allclose(ag.randn(n).numpy(), wanted, rtol=2e-6, atol=2e-6)


def test_same_seed_same_numbers_whatever_else_runs():
    draws = []
    for noise in (0, 3):
        ag.manual_seed(42)
        first = ag.randn(10)
        for _ in range(noise):
            (ag.ones(100) * 2).sum().item()
        second = ag.uniform(-1, 1, (3, 4))
        # Read in another order than drawn: the counters were taken at the call.
        draws.append([second.tolist(), first.tolist(), ag.randint(0, 9, (5,)).tolist()])
    assert draws[0] == draws[1]
    ag.manual_seed(43)
    assert ag.randn(10).tolist() != draws[0][1]


def test_shapes_split_a_stream_alike():
    """The numbers depend on the seed and the position, not on the shape."""
    ag.manual_seed(1)
    flat = ag.rand(24)
    ag.manual_seed(1)
    np.testing.assert_array_equal(ag.rand(2, 3, 4).numpy().reshape(-1), flat.numpy())


@pytest.mark.parametrize(
    ("draw", "per_counter"),
    [
        (lambda n: ag.rand(n), 4),
        (lambda n: ag.randn(n), 4),
        (lambda n: ag.rand(n, dtype="float16"), 4),
        (lambda n: ag.rand(n, dtype="float64"), 2),
        (lambda n: ag.randn(n, dtype="float64"), 2),
        (lambda n: ag.randint(0, 5, (n,)), 2),
        (lambda n: ag.randint(0, 5, (n,), dtype="int32"), 2),
        (lambda n: ag.bernoulli(0.5, (n,)), 4),
        (lambda n: ag.dropout(ag.ones(n), 0.5), 4),
        (lambda n: ag.permutation(n), 2),
    ],
)
def test_stream_positions(draw, per_counter):
    """A draw takes its counters when it is called, whether it is ever computed or not."""
    ag.manual_seed(3)
    for n, taken in ((0, 0), (1, 1), (per_counter, 1), (per_counter + 1, 2), (101, -(-101 // per_counter))):
        before = ag.get_rng_state().counter
        draw(n)
        assert ag.get_rng_state().counter - before == taken, n


def test_a_skipped_draw_leaves_later_ones_as_they_are():
    ag.manual_seed(3)
    ag.rand(6)
    wanted = ag.rand(4).tolist()
    ag.set_rng_state(type(ag.get_rng_state())(3, 2))
    assert ag.rand(4).tolist() == wanted


def test_states_are_kept_compared_and_pickled():
    ag.manual_seed(8)
    ag.rand(7)
    state = ag.get_rng_state()
    assert state == ag.get_rng_state()
    assert hash(state) == hash(ag.get_rng_state())
    first = ag.randn(5).tolist()
    assert state != ag.get_rng_state()
    for again in (state, pickle.loads(pickle.dumps(state))):
        assert again == state
        ag.set_rng_state(again)
        assert ag.randn(5).tolist() == first
    assert "seed=8" in repr(state)
    for wrong in (None, 3, (8, 2)):
        with pytest.raises(TypeError, match="set_rng_state"):
            ag.set_rng_state(wrong)


N = 100_000


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_uniform_statistics(dtype):
    x = ag.rand(N, dtype=dtype)
    assert str(x.dtype) == dtype
    values = x.numpy().astype(np.float64)
    assert values.min() >= 0.0
    # 16-bit floats round to their grid: 1 itself is out of reach only for the wider ones.
    assert values.max() < 1.0 or dtype in ("float16", "bfloat16")
    assert abs(values.mean() - 0.5) < 5 / np.sqrt(12 * N) + 1e-3 * (dtype in ("float16", "bfloat16"))
    counts = np.histogram(values, 16, (0, 1))[0]
    assert (((counts - N / 16) ** 2) / (N / 16)).sum() < 60 or dtype in ("float16", "bfloat16")
    y = ag.uniform(-3, 5, (N,), dtype=dtype).numpy().astype(np.float64)
    assert y.min() >= -3.0
    assert abs(y.mean() - 1.0) < 0.05
    assert abs(y.std() - 8 / np.sqrt(12)) < 0.05


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_normal_statistics(dtype):
    x = ag.randn(N, dtype=dtype).numpy().astype(np.float64)
    assert abs(x.mean()) < 5 / np.sqrt(N)
    assert abs(x.std() - 1) < 0.012
    assert abs((x**3).mean()) < 0.05
    assert abs((x**4).mean() - 3) < 0.15
    # The two numbers of a pair and neighbouring pairs are independent.
    for step in (1, 2, 4):
        assert abs((x[step:] * x[:-step]).mean()) < 5 / np.sqrt(N)
    y = ag.normal(2.0, 0.5, (N,), dtype=dtype).numpy().astype(np.float64)
    assert abs(y.mean() - 2.0) < 0.01
    assert abs(y.std() - 0.5) < 0.01
    assert (ag.normal(2.0, 0.0, (5,), dtype=dtype).numpy() == 2.0).all()


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_randint_statistics(dtype):
    x = ag.randint(3, 10, (N,), dtype=dtype)
    assert str(x.dtype) == dtype
    counts = np.bincount(x.numpy(), minlength=10)
    assert counts[:3].sum() == 0
    assert (((counts[3:] - N / 7) ** 2) / (N / 7)).sum() < 35


def test_randint_reaches_both_ends():
    assert set(ag.randint(0, 2, (200,)).tolist()) == {0, 1}
    assert set(ag.randint(-1, 1, (200,), dtype="int32").tolist()) == {-1, 0}
    wide = ag.randint(-(2**63), 2**63 - 1, (1000,)).numpy()
    assert (wide < 0).any()
    assert (wide > 0).any()
    assert set(ag.randint(255, 256, (9,), dtype="uint8").tolist()) == {255}
    assert set(ag.randint(4, size=(500,)).tolist()) == {0, 1, 2, 3}


def test_permutations():
    for n in (0, 1, 2, 7, 1000):
        p = ag.permutation(n)
        assert str(p.dtype) == "int64"
        assert sorted(p.tolist()) == list(range(n))
    assert ag.permutation(1000).tolist() != ag.permutation(1000).tolist()
    firsts = np.bincount([ag.permutation(4)[0].item() for _ in range(800)], minlength=4)
    assert (abs(firsts - 200) < 70).all()
    x = ag.tensor(np.arange(12.0).reshape(6, 2))
    rows = ag.permutation(x).tolist()
    assert sorted(rows) == x.tolist()
    with pytest.raises(ValueError):
        ag.permutation(-1)
    with pytest.raises(ValueError):
        ag.permutation(ag.tensor(3.0))


def test_bernoulli_and_dropout():
    kept = ag.bernoulli(0.3, (N,))
    assert str(kept.dtype) == "bool"
    assert abs(kept.numpy().mean() - 0.3) < 0.01
    assert not ag.bernoulli(0.0, (99,)).numpy().any()
    assert ag.bernoulli(1.0, (99,)).numpy().all()
    y = ag.dropout(ag.ones(N), 0.25).numpy()
    assert set(np.unique(y)) == {np.float32(0.0), np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.01
    assert not ag.dropout(ag.ones(9), 1.0).numpy().any()


def test_dropout_gradients_use_the_mask_of_the_forward_pass():
    w = ag.param(np.arange(1.0, 1001.0))
    with ag.grad_tape():
        y = ag.dropout(w, 0.5)
        loss = y.sum()
    ag.rand(10)
    loss.backward()
    np.testing.assert_array_equal(w.grad.numpy() * w.numpy(), y.numpy())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: ag.rand(-1), ValueError),
        (lambda: ag.rand(2, dtype="int64"), TypeError),
        (lambda: ag.randn(2, dtype="bool"), TypeError),
        (lambda: ag.uniform(1, 0, (2,)), ValueError),
        (lambda: ag.uniform(0, float("inf"), (2,)), ValueError),
        (lambda: ag.uniform(0, float("nan"), (2,)), ValueError),
        (lambda: ag.normal(0, -1.0, (2,)), ValueError),
        (lambda: ag.randint(3, 3, (2,)), ValueError),
        (lambda: ag.randint(0, 300, (2,), dtype="uint8"), ValueError),
        (lambda: ag.randint(0, 3, (2,), dtype="float32"), TypeError),
        (lambda: ag.randint(0.5, 3, (2,)), TypeError),
        (lambda: ag.bernoulli(1.5), ValueError),
        (lambda: ag.dropout(ag.ones(2), -0.1), ValueError),
        (lambda: ag.manual_seed(-1), ValueError),
        (lambda: ag.manual_seed(2**64), ValueError),
        (lambda: ag.manual_seed("a"), TypeError),
    ],
)
def test_bad_arguments(call, error):
    state = ag.get_rng_state()
    with pytest.raises(error):
        call()
    assert ag.get_rng_state() == state
