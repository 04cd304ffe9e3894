"""MLX: mx.compile over the whole training step (state as captured inputs/outputs)."""

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from workloads import Run

VARIANTS = {"mlx": "compile"}


def init(device, threads):
    mx.set_default_device(mx.cpu if device == "cpu" else mx.gpu)
    a = mx.ones((64, 64))
    (a @ a).sum().item()


def make_loss(w):
    c = w.cfg
    if w.kind == "chain":

        def loss(P, x, y):
            h = x
            for _ in range(c["depth"]):
                h = mx.maximum(h @ P["w"], 0)
            return h.sum()
    elif w.kind == "elementwise":

        def loss(P, x, y):
            return mx.maximum(P["x"] * P["y"] + P["x"], 0).sum()
    elif w.kind == "mlp":
        n = len(c["sizes"]) - 1

        def loss(P, x, y):
            h, s = x, w.ckpt or n
            for lo in range(0, n, s):

                def seg(P, h, lo=lo):
                    for i in range(lo, min(lo + s, n)):
                        h = mx.addmm(P[f"l{i}.b"], h, P[f"l{i}.w"])
                        if i < n - 1:
                            h = mx.maximum(h, 0)
                    return h

                h = (mx.checkpoint(seg) if w.ckpt else seg)(P, h)
            return nn.losses.cross_entropy(h, y, reduction="mean") if c["loss"] == "ce" else mx.square(h - y).mean()
    else:
        H, d = c["heads"], c["d"]

        def block(P, h):
            ln = lambda k, z: mx.fast.layer_norm(z, P[f"{k}.g"], P[f"{k}.b"], 1e-5)
            lin = lambda k, z: mx.addmm(P[f"{k}.b"], z, P[f"{k}.w"])
            B, T, _ = h.shape
            q, k, v = lin("qkv", ln("ln1", h)).reshape(B, T, 3, H, d // H).transpose(2, 0, 3, 1, 4)
            a = mx.fast.scaled_dot_product_attention(q, k, v, scale=(d // H) ** -0.5, mask="causal")
            h = h + lin("out", a.transpose(0, 2, 1, 3).reshape(B, T, d))
            return h + lin("down", nn.gelu_approx(lin("fc", ln("ln2", h))))

        f = mx.checkpoint(block) if w.ckpt else block

        def loss(P, x, y):
            h = P["wte"][x] + P["wpe"]
            for i in range(c["layers"]):
                h = f({k[len(f"h{i}.") :]: v for k, v in P.items() if k.startswith(f"h{i}.")}, h)
            z = mx.fast.layer_norm(h, P["lnf.g"], P["lnf.b"], 1e-5) @ P["wte"].T
            return nn.losses.cross_entropy(z.reshape(-1, c["V"]), y.reshape(-1), reduction="mean")

    return loss


def build(w, params, batches, device, variant):
    m = lambda a: None if a is None else mx.array(a)
    P, G = {k: m(v) for k, v in params.items()}, {}
    data, loss = [(m(x), m(y)) for x, y in batches], make_loss(w)
    if w.kind == "elementwise":
        z = mx.zeros((1,))
        data = [(z, z)]
    opt, state = None, [P]
    if w.opt:
        kind, lr, wd = w.opt
        opt = {
            "adam": lambda: optim.Adam(lr, bias_correction=True),
            "adamw": lambda: optim.AdamW(lr, weight_decay=wd, bias_correction=True),
            "sgd": lambda: optim.SGD(lr),
        }[kind]()
        opt.init(P)
        state = [P, opt.state]
    mx.eval(state, data)
    vg = mx.value_and_grad(loss)
    if not w.backward:
        f = mx.compile(loss)
    elif opt is None:
        f = mx.compile(vg)
    else:

        @partial(mx.compile, inputs=state, outputs=state)
        def f(x, y):
            l, g = vg(P, x, y)
            P.update(opt.apply_gradients(g, P))
            return l

    def step(i):
        x, y = data[i % len(data)]
        if opt is not None:
            r = f(x, y)
        elif not w.backward:
            r = f(P, x, y)
        else:
            r, g = f(P, x, y)
            G.clear()
            G.update(g)
        mx.eval(r, state, G)
        return r

    import numpy as np

    mx.reset_peak_memory()
    return Run(
        step,
        sync=lambda r: mx.synchronize(),
        item=lambda r: r.item(),
        grads=lambda: {k: np.array(v) for k, v in G.items()},
        device_peak=mx.get_peak_memory,
        info=dict(version=mx.__version__, device=str(mx.default_device())),
    )
