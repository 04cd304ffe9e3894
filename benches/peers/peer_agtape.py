"""agtape: one plan per step. A step is forced to completion like every other peer's: pending values are evaluated, then waited for."""

import agtape as ag
from workloads import Run, Unsupported

VARIANTS = {"agtape": "tape"}


def init(device, threads):
    ag.set_default_device("cpu" if device == "cpu" else "gpu")
    a = ag.ones((64, 64))
    (a @ a).sum().item()


def make_loss(w):
    c = w.cfg
    if w.kind == "chain":

        def loss(P, x, y):
            h = x
            for _ in range(c["depth"]):
                h = ag.relu(h @ P["w"])
            return h.sum()
    elif w.kind == "elementwise":

        def loss(P, x, y):
            return ag.relu(P["x"] * P["y"] + P["x"]).sum()
    elif w.kind == "mlp":
        n = len(c["sizes"]) - 1

        def seg(h, lo, hi, *wb):
            for i in range(lo, hi):
                h = h @ wb[2 * (i - lo)] + wb[2 * (i - lo) + 1]
                if i < n - 1:
                    h = ag.relu(h)
            return h

        def loss(P, x, y):
            h, s = x, w.ckpt or n
            for lo in range(0, n, s):
                hi = min(lo + s, n)
                args = (h, lo, hi, *(P[f"l{i}.{k}"] for i in range(lo, hi) for k in "wb"))
                h = ag.checkpoint(seg, *args) if w.ckpt else seg(*args)
            return ag.nn.functional.cross_entropy(h, y) if c["loss"] == "ce" else ag.nn.functional.mse_loss(h, y)
    else:
        H, d, F = c["heads"], c["d"], ag.nn.functional
        names = [
            f"{k}.{s}"
            for k, ss in (("ln1", "gb"), ("qkv", "wb"), ("out", "wb"), ("ln2", "gb"), ("fc", "wb"), ("down", "wb"))
            for s in ss
        ]

        def block(h, *ps):
            p = dict(zip(names, ps))
            ln = lambda k, z: F.layer_norm(z, (d,), p[f"{k}.g"], p[f"{k}.b"])
            lin = lambda k, z: z @ p[f"{k}.w"] + p[f"{k}.b"]
            B, T, _ = h.shape
            z = lin("qkv", ln("ln1", h)).reshape(B, T, 3, H, d // H).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(z[0], z[1], z[2], is_causal=True).transpose(1, 2).reshape(B, T, d)
            h = h + lin("out", a)
            return h + lin("down", F.gelu(lin("fc", ln("ln2", h)), approximate="tanh"))

        def loss(P, x, y):
            h = F.embedding(x, P["wte"]) + P["wpe"]
            for i in range(c["layers"]):
                args = (h, *(P[f"h{i}.{k}"] for k in names))
                h = ag.checkpoint(block, *args) if w.ckpt else block(*args)
            h = F.layer_norm(h, (d,), P["lnf.g"], P["lnf.b"])
            return F.cross_entropy((h @ P["wte"].T).reshape(-1, c["V"]), y.reshape(-1))

    return loss


def build(w, params, batches, device, variant):
    if w.ckpt and not hasattr(ag, "checkpoint"):
        raise Unsupported("activation checkpointing comes with a later version")
    t = lambda a: None if a is None else ag.tensor(a)
    P = {k: ag.tensor(v, requires_grad=True) for k, v in params.items()}
    data, loss_fn = [(t(x), t(y)) for x, y in batches], make_loss(w)
    opt = None
    if w.opt:
        kind, lr, wd = w.opt
        opt = {
            "adam": lambda: ag.optim.Adam(list(P.values()), lr=lr),
            "adamw": lambda: ag.optim.AdamW(list(P.values()), lr=lr, weight_decay=wd),
            "sgd": lambda: ag.optim.SGD(list(P.values()), lr=lr),
        }[kind]()

    def step(i):
        x, y = data[i % len(data)]
        if not w.backward:
            return loss_fn(P, x, y)  # no tape: nothing is recorded
        if opt is None:
            for p in P.values():
                p.grad = None
        with ag.grad_tape():
            loss = loss_fn(P, x, y)
        loss.backward()
        if opt is not None:
            opt.step()
            opt.zero_grad()
        return loss

    def sync(r):
        ag.eval(r, *P.values(), *(p.grad for p in P.values() if p.grad is not None))
        ag.synchronize()

    return Run(
        step,
        sync=sync,
        item=lambda r: r.item(),
        grads=lambda: {k: p.grad.numpy() for k, p in P.items()},
        device_peak=lambda: ag.memory_stats(device if device == "cpu" else "gpu").peak,
        info=dict(version=ag.__version__, device=str(next(iter(P.values())).device)),
    )
