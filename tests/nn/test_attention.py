"""Attention: the function and the layer against NumPy, masks, gradients, bad input."""

import agtape as ag
import numpy as np
import pytest

F = ag.nn.functional


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v, added=0.0, scale=None):
    scores = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale) + added
    return softmax(scores) @ v


@pytest.fixture
def qkv(rng):
    return rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((2, 3, 6, 7))


def test_plain_scaled_and_causal_equal_numpy(qkv):
    q, k, v = qkv
    t = tuple(map(ag.tensor, qkv))
    np.testing.assert_allclose(F.scaled_dot_product_attention(*t).numpy(), attend(q, k, v), rtol=1e-10)
    np.testing.assert_allclose(
        F.scaled_dot_product_attention(*t, scale=0.3).numpy(), attend(q, k, v, scale=0.3), rtol=1e-10
    )
    causal = np.where(np.tri(4, 6, dtype=bool), 0, -np.inf)
    np.testing.assert_allclose(
        F.scaled_dot_product_attention(*t, is_causal=True).numpy(), attend(q, k, v, causal), rtol=1e-10
    )


def test_causal_attention_makes_no_mask_and_equals_the_masked(qkv):
    q, k, v = (ag.param(a) for a in qkv)
    mask, grads = np.tri(4, 6, dtype=bool), []
    for how in ({"is_causal": True}, {"attn_mask": mask}):
        with ag.grad_tape() as tape:
            loss = ag.square(F.scaled_dot_product_attention(q, k, v, **how)).sum()
        names = {row.op for row in ag.tape_memory(tape).by_op}
        assert ("where" in names) == ("attn_mask" in how)
        loss.backward()
        grads.append([t.grad.numpy() for t in (q, k, v)])
        for t in (q, k, v):
            t.grad = None
    for causal, masked in zip(*grads):
        np.testing.assert_allclose(causal, masked, rtol=1e-12, atol=1e-14)
    causal = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    assert ag.testing.gradcheck(causal, (q, k, v), order=2, directions=1)


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_scale_may_be_learned(is_causal, qkv):
    t = tuple(map(ag.tensor, qkv))
    attend_by = lambda s: F.scaled_dot_product_attention(*t, is_causal=is_causal, scale=s)  # noqa: E731
    scale = ag.tensor(np.array(0.3))
    np.testing.assert_allclose(attend_by(scale).numpy(), attend_by(0.3).numpy(), rtol=1e-12)
    assert ag.testing.gradcheck(attend_by, scale, order=2)


def test_the_layer_is_causal_with_and_without_padding(rng):
    layer, x = (
        ag.nn.MultiHeadAttention(8, 2, batch_first=True, dtype="float64"),
        ag.tensor(rng.standard_normal((2, 5, 8))),
    )
    later = ~np.tri(5, dtype=bool)
    expected = layer(x, attn_mask=ag.tensor(later))
    for padding in (None, ag.tensor(np.zeros((2, 5), bool))):
        for got, wanted in zip(layer(x, key_padding_mask=padding, is_causal=True), expected):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-12, atol=1e-14)


def test_masks_of_bool_and_float_equal_numpy(qkv, rng):
    q, k, v = qkv
    t = tuple(map(ag.tensor, qkv))
    seen = rng.random((4, 6)) < 0.6
    seen[:, 0] = True
    expected = attend(q, k, v, np.where(seen, 0, -np.inf))
    for mask in (ag.tensor(seen), seen, ag.tensor(np.where(seen, 0.0, -np.inf))):
        np.testing.assert_allclose(F.scaled_dot_product_attention(*t, mask).numpy(), expected, rtol=1e-10)
    added = rng.standard_normal((2, 1, 4, 6))
    out = F.scaled_dot_product_attention(*t, ag.tensor(added)).numpy()
    np.testing.assert_allclose(out, attend(q, k, v, added), rtol=1e-10)


def test_a_query_that_may_look_nowhere_gets_zeros_and_finite_gradients(qkv):
    t = tuple(map(ag.tensor, qkv))
    mask = np.ones((4, 6), bool)
    mask[1] = False
    out = F.scaled_dot_product_attention(*t, mask)
    assert (out.numpy()[:, :, 1] == 0).all()
    grads = ag.grad(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask).sum(), argnums=(0, 1, 2))(*t)
    assert all(np.isfinite(g.numpy()).all() for g in grads)
    assert (grads[0].numpy()[:, :, 1] == 0).all()


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": np.tri(4, 6, 1, dtype=bool)}])
def test_gradients_to_second_order(qkv, options):
    small = tuple(ag.tensor(a[:1, :2]) for a in qkv)
    assert ag.testing.gradcheck(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), small, order=2)


def test_dropout_drops_weights(qkv):
    t = tuple(map(ag.tensor, qkv))
    assert (F.scaled_dot_product_attention(*t, dropout_p=1.0).numpy() == 0).all()
    assert (
        F.scaled_dot_product_attention(*t, dropout_p=0.5).numpy() != F.scaled_dot_product_attention(*t).numpy()
    ).any()


def test_U01_attention_names_what_does_not_fit(qkv):
    q, k, v = map(ag.tensor, qkv)
    with pytest.raises(ValueError, match=r"scaled_dot_product_attention: query \(2, 3, 4, 5\), key \(2, 3, 6, 7\)"):
        F.scaled_dot_product_attention(q, v, v)
    with pytest.raises(ValueError, match=r"value \(2, 3, 4, 5\); expected query"):
        F.scaled_dot_product_attention(q, k, q)
    with pytest.raises(ValueError, match="attn_mask and is_causal=True were both given"):
        F.scaled_dot_product_attention(q, k, v, np.ones((4, 6), bool), is_causal=True)
    with pytest.raises(TypeError, match="attn_mask is int64; expected bool"):
        F.scaled_dot_product_attention(q, k, v, ag.tensor(np.ones((4, 6), np.int64)))


def layer_reference(layer, q, k, v, added=0.0):
    """The whole layer in NumPy for batch-first inputs; `added` broadcasts to (N, heads, L, S)."""
    e, h = layer.embed_dim, layer.num_heads
    if layer.in_proj_weight is not None:
        weights = np.split(layer.in_proj_weight.numpy(), 3)
    else:
        weights = [w.numpy() for w in (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)]
    biases = np.split(layer.in_proj_bias.numpy(), 3) if layer.in_proj_bias is not None else [0.0] * 3
    parts = [x @ w.T + b for x, w, b in zip((q, k, v), weights, biases)]
    parts = [p.reshape(*p.shape[:2], h, e // h).swapaxes(1, 2) for p in parts]
    mixed = attend(*parts, added).swapaxes(1, 2).reshape(q.shape[0], q.shape[1], e)
    out = layer.out_proj
    return mixed @ out.weight.numpy().T + (0 if out.bias is None else out.bias.numpy())


def made(rng, *args, **kwargs):
    layer = ag.nn.MultiHeadAttention(*args, dtype="float64", **kwargs)
    for p in layer.parameters():  # biases start at zero, where a mistake would not show
        p.assign_(ag.tensor(rng.standard_normal(tuple(p.shape))))
    return layer


@pytest.mark.parametrize("need_weights", [True, False])
def test_the_layer_equals_numpy(need_weights, rng):
    layer = made(rng, 8, 2, batch_first=True)
    x, y, z = rng.standard_normal((3, 5, 8)), rng.standard_normal((3, 4, 8)), rng.standard_normal((3, 4, 8))
    out, weights = layer(*map(ag.tensor, (x, y, z)), need_weights=need_weights)
    np.testing.assert_allclose(out.numpy(), layer_reference(layer, x, y, z), rtol=1e-9)
    if need_weights:
        assert weights.shape == (3, 5, 4)
        np.testing.assert_allclose(weights.numpy().sum(-1), 1, rtol=1e-12)
        assert layer(*map(ag.tensor, (x, y, z)), average_attn_weights=False)[1].shape == (3, 2, 5, 4)
    else:
        assert weights is None
    own = ag.tensor(x)
    for given in ((own, own, own), (own,), (own, ag.tensor(x), ag.tensor(x))):
        np.testing.assert_allclose(layer(*given)[0].numpy(), layer_reference(layer, x, x, x), rtol=1e-9)


def test_the_layer_takes_other_lengths_no_bias_and_sequence_first(rng):
    layer = made(rng, 8, 4, bias=False, kdim=3, vdim=6)
    q, k, v = rng.standard_normal((5, 2, 8)), rng.standard_normal((7, 2, 3)), rng.standard_normal((7, 2, 6))
    expected = layer_reference(layer, *(a.swapaxes(0, 1) for a in (q, k, v))).swapaxes(0, 1)
    out, weights = layer(*map(ag.tensor, (q, k, v)))
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-9)
    assert weights.shape == (2, 5, 7)
    one, weights = layer(*(ag.tensor(a[:, 0]) for a in (q, k, v)))
    np.testing.assert_allclose(one.numpy(), expected[:, 0], rtol=1e-9)
    assert weights.shape == (5, 7)


def test_the_layers_masks_mean_what_they_mean_in_torch(rng):
    layer, x = made(rng, 4, 2, batch_first=True), rng.standard_normal((2, 3, 4))
    t = ag.tensor(x)
    hidden = np.triu(np.ones((3, 3), bool), 1)  # true: may not look
    expected = layer_reference(layer, x, x, x, np.where(hidden, -np.inf, 0))
    for options in (
        {"attn_mask": hidden},
        {"attn_mask": ag.tensor(np.where(hidden, -np.inf, 0.0))},
        {"is_causal": True},
    ):
        np.testing.assert_allclose(layer(t, t, t, **options)[0].numpy(), expected, rtol=1e-9)
    padding = np.array([[False, False, True], [False, True, True]])
    expected = layer_reference(layer, x, x, x, np.where(padding, -np.inf, 0)[:, None, None])
    np.testing.assert_allclose(layer(t, t, t, key_padding_mask=padding)[0].numpy(), expected, rtol=1e-9)
    both = np.where(padding[:, None, None] | hidden, -np.inf, 0)
    expected = layer_reference(layer, x, x, x, both)
    got = layer(t, t, t, key_padding_mask=padding, attn_mask=ag.tensor(np.where(hidden, -np.inf, 0.0)))[0].numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    per_head = rng.standard_normal((4, 3, 3))
    expected = layer_reference(layer, x, x, x, per_head.reshape(2, 2, 3, 3))
    np.testing.assert_allclose(layer(t, t, t, attn_mask=ag.tensor(per_head))[0].numpy(), expected, rtol=1e-9)


def test_every_parameter_of_the_layer_gets_a_gradient(rng):
    layer, x = (
        ag.nn.MultiHeadAttention(8, 2, batch_first=True),
        ag.tensor(rng.standard_normal((2, 3, 8)).astype(np.float32)),
    )
    with ag.grad_tape():
        loss = ag.square(layer(x)[0]).sum()
    loss.backward()
    assert all(np.abs(p.grad.numpy()).sum() > 0 for p in layer.parameters())
    assert [n for n, _ in layer.named_parameters()] == [
        "in_proj_weight",
        "in_proj_bias",
        "out_proj.weight",
        "out_proj.bias",
    ]


def test_U01_the_layer_names_what_does_not_fit():
    with pytest.raises(ValueError, match="embed_dim is 6 and num_heads 4; expected a multiple"):
        ag.nn.MultiHeadAttention(6, 4)
    layer, x = ag.nn.MultiHeadAttention(4, 2, batch_first=True), ag.ones((2, 3, 4))
    with pytest.raises(ValueError, match=r"attn_mask has shape \(2, 2\); expected \(3, 3\) or \(4, 3, 3\)"):
        layer(x, x, x, attn_mask=np.ones((2, 2), bool))
    with pytest.raises(ValueError, match=r"key_padding_mask has shape \(3,\); expected \(2, 3\)"):
        layer(x, x, x, key_padding_mask=np.zeros(3, bool))
    with pytest.raises(ValueError, match="have 4, 3 and 3 axes"):
        layer(ag.ones((1, 2, 3, 4)), x, x)


def test_a_segment_replays_a_transformer_block_to_the_bit(rng):
    """Norms, causal attention, gelu and cross-entropy: what a segment drops is rebuilt as it was."""
    shapes = [16, 16, (16, 48), (16, 16), (16, 32), (32, 16), 16]
    leaves = [ag.param(rng.standard_normal(shape)) for shape in shapes]
    x, y = ag.tensor(rng.standard_normal((3, 5, 16))), ag.tensor(rng.integers(0, 16, 15))

    def block(h, gain, bias, qkv, out, up, down, scale):
        heads = (F.layer_norm(h, 16, gain, bias) @ qkv).reshape(3, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        h = h + mixed.transpose(1, 2).reshape(3, 5, 16) @ out
        return h + F.gelu(F.rms_norm(h, 16, scale, 1e-5) @ up, approximate="tanh") @ down

    def loss_of(h):
        return F.cross_entropy(h.reshape(-1, 16), y, label_smoothing=0.1)

    ways = [
        lambda: loss_of(block(block(x, *leaves), *leaves)),
        lambda: loss_of(ag.checkpoint(block, ag.checkpoint(block, x, *leaves), *leaves)),
        lambda: ag.checkpoint(lambda: loss_of(block(block(x, *leaves), *leaves))),
    ]
    results = []
    for way in ways:
        with ag.grad_tape():
            loss = way()
        loss.backward()
        results.append([loss.numpy().tobytes(), *(leaf.grad.numpy().tobytes() for leaf in leaves)])
        for leaf in leaves:
            leaf.grad = None
    assert results[0] == results[1] == results[2]


def test_a_row_that_a_float_mask_hides_whole_gives_zeros_and_no_gradient():
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal((2, 3, 4)).astype("float32") for _ in range(3)]
    mask = np.zeros((3, 3), "float32")
    mask[1] = mask[0, 2] = -np.inf
    for given in (mask, np.isfinite(mask)):
        q, k, v = (ag.param(a) for a in arrays)
        with ag.grad_tape():
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=ag.tensor(given))
            loss = (y * y).sum()
        loss.backward()
        assert y.numpy()[:, 1].tolist() == [[0.0] * 4] * 2
        assert all(np.isfinite(t.grad.numpy()).all() for t in (q, k, v))
        assert not q.grad.numpy()[:, 1].any()
    scores = arrays[0] @ arrays[1].swapaxes(-1, -2) / 2 + mask
    seen = np.exp(scores[:, [0, 2]] - scores[:, [0, 2]].max(-1, keepdims=True))
    np.testing.assert_allclose(y.numpy()[:, [0, 2]], seen / seen.sum(-1, keepdims=True) @ arrays[2], rtol=1e-4)
    everywhere = F.scaled_dot_product_attention(q, k, v, attn_mask=ag.tensor(-np.inf, dtype="float32"))
    assert not everywhere.numpy().any()
