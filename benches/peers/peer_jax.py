"""JAX: the whole training step (loss, gradient, optimizer) is one jitted function with donated state. No optax needed."""

import jax
import jax.numpy as jnp
from workloads import Run

VARIANTS = {"jax": "jit"}


def init(device, threads):
    jax.config.update("jax_default_matmul_precision", "highest")  # f32 everywhere, no TF32
    a = jnp.ones((64, 64))
    float((a @ a).sum())


def make_loss(w):
    c = w.cfg
    if w.kind == "chain":

        def loss(P, x, y):
            h = x
            for _ in range(c["depth"]):
                h = jax.nn.relu(h @ P["w"])
            return h.sum()
    elif w.kind == "elementwise":

        def loss(P, x, y):
            return jax.nn.relu(P["x"] * P["y"] + P["x"]).sum()
    elif w.kind == "mlp":
        n = len(c["sizes"]) - 1

        def loss(P, x, y):
            h, s = x, w.ckpt or n
            for lo in range(0, n, s):

                def seg(P, h, lo=lo):
                    for i in range(lo, min(lo + s, n)):
                        h = h @ P[f"l{i}.w"] + P[f"l{i}.b"]
                        if i < n - 1:
                            h = jax.nn.relu(h)
                    return h

                h = (jax.checkpoint(seg) if w.ckpt else seg)(P, h)
            return ce(h, y) if c["loss"] == "ce" else jnp.mean((h - y) ** 2)
    else:
        H, d = c["heads"], c["d"]

        def block(P, h):
            ln = lambda k, z: norm(z, P[f"{k}.g"], P[f"{k}.b"])
            lin = lambda k, z: z @ P[f"{k}.w"] + P[f"{k}.b"]
            B, T, _ = h.shape
            q, k, v = jnp.moveaxis(lin("qkv", ln("ln1", h)).reshape(B, T, 3, H, d // H), 2, 0)
            a = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(B, T, d)
            h = h + lin("out", a)
            return h + lin("down", jax.nn.gelu(lin("fc", ln("ln2", h)), approximate=True))

        f = jax.checkpoint(block) if w.ckpt else block

        def loss(P, x, y):
            h = P["wte"][x] + P["wpe"]
            for i in range(c["layers"]):
                h = f({k[len(f"h{i}.") :]: v for k, v in P.items() if k.startswith(f"h{i}.")}, h)
            return ce((norm(h, P["lnf.g"], P["lnf.b"]) @ P["wte"].T).reshape(-1, c["V"]), y.reshape(-1))

    return loss


def ce(z, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1))


def norm(h, g, b):
    m = h.mean(-1, keepdims=True)
    return (h - m) * jax.lax.rsqrt(h.var(-1, keepdims=True) + 1e-5) * g + b


def update(w, P, S, G):
    kind, lr, wd = w.opt
    tm = jax.tree.map
    if kind == "sgd":
        return tm(lambda p, g: p - lr * g, P, G), S
    t = S["t"] + 1
    m = tm(lambda a, g: 0.9 * a + 0.1 * g, S["m"], G)
    v = tm(lambda a, g: 0.999 * a + 0.001 * g * g, S["v"], G)
    c1, c2 = 1 - 0.9**t, 1 - 0.999**t
    P = tm(lambda p, a, b: p * (1 - lr * wd) - lr * (a / c1) / (jnp.sqrt(b / c2) + 1e-8), P, m, v)
    return P, dict(t=t, m=m, v=v)


def build(w, params, batches, device, variant):
    dev = jax.devices()[0]
    assert dev.platform == {"cpu": "cpu", "cuda": "gpu"}[device], f"silent fallback to {dev}"
    j = lambda a: None if a is None else jax.device_put(a, dev)
    data, loss = [(j(x), j(y)) for x, y in batches], make_loss(w)
    st = dict(P={k: j(v) for k, v in params.items()}, S=None, G=None)
    if w.opt and w.opt[0] != "sgd":
        z = lambda: {k: jnp.zeros_like(v) for k, v in st["P"].items()}
        st["S"] = dict(t=jnp.zeros((), jnp.float32), m=z(), v=z())
    if not w.backward:
        f = jax.jit(loss)

        def step(i):
            return f(st["P"], *data[0])
    elif not w.opt:
        f = jax.jit(jax.value_and_grad(loss))

        def step(i):
            l, st["G"] = f(st["P"], *data[0])
            return l
    else:

        def train(P, S, x, y):
            l, G = jax.value_and_grad(loss)(P, x, y)
            return *update(w, P, S, G), l

        f = jax.jit(train, donate_argnums=(0, 1))

        def step(i):
            st["P"], st["S"], l = f(st["P"], st["S"], *data[i % len(data)])
            return l

    def device_peak():  # cpu: what XLA plans for one step (arguments + results + temporaries)
        if device == "cuda":
            return (dev.memory_stats() or {}).get("peak_bytes_in_use")
        args = (st["P"], st["S"], *data[0]) if w.opt else (st["P"], *data[0])
        m = f.lower(*args).compile().memory_analysis()
        return m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes + m.temp_size_in_bytes

    return Run(
        step,
        sync=lambda r: jax.block_until_ready((r, st)),
        item=float,
        grads=lambda: {k: jax.device_get(v) for k, v in st["G"].items()},
        device_peak=device_peak,
        info=dict(version=jax.__version__, device=str(dev)),
    )
