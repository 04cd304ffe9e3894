"""tinygrad: TinyJit over the whole training step. CPU needs a `clang` on PATH (or CC=...)."""

from tinygrad import Context, Device, GlobalCounters, Tensor, TinyJit, nn
from workloads import Run, Unsupported

VARIANTS = {"tinygrad": "jit"}


def init(device, threads):
    a = Tensor.ones(64, 64).contiguous().realize()
    (a @ a).sum().item()


def make_loss(w):
    c = w.cfg
    if w.kind == "chain":

        def loss(P, x, y):
            h = x
            for _ in range(c["depth"]):
                h = (h @ P["w"]).relu()
            return h.sum()
    elif w.kind == "elementwise":

        def loss(P, x, y):
            return (P["x"] * P["y"] + P["x"]).relu().sum()
    elif w.kind == "mlp":
        n = len(c["sizes"]) - 1

        def loss(P, x, y):
            h = x
            for i in range(n):
                h = h @ P[f"l{i}.w"] + P[f"l{i}.b"]
                if i < n - 1:
                    h = h.relu()
            return h.sparse_categorical_crossentropy(y) if c["loss"] == "ce" else ((h - y) ** 2).mean()
    else:
        H, d = c["heads"], c["d"]

        def loss(P, x, y):
            ln = lambda k, z: z.layernorm(eps=1e-5) * P[f"{k}.g"] + P[f"{k}.b"]
            lin = lambda k, z: z @ P[f"{k}.w"] + P[f"{k}.b"]
            B, T = x.shape
            emb = nn.Embedding.__new__(nn.Embedding)
            emb.weight = P["wte"]
            h = emb(x) + P["wpe"]
            for i in range(c["layers"]):
                z = lin(f"h{i}.qkv", ln(f"h{i}.ln1", h)).reshape(B, T, 3, H, d // H).permute(2, 0, 3, 1, 4)
                a = z[0].scaled_dot_product_attention(z[1], z[2], is_causal=True).transpose(1, 2).reshape(B, T, d)
                h = h + lin(f"h{i}.out", a)
                h = h + lin(f"h{i}.down", lin(f"h{i}.fc", ln(f"h{i}.ln2", h)).gelu())
            return (ln("lnf", h) @ P["wte"].T).reshape(-1, c["V"]).sparse_categorical_crossentropy(y.reshape(-1))

    return loss


def build(w, params, batches, device, variant):
    if w.ckpt:
        raise Unsupported("no activation checkpointing in tinygrad 0.14")
    t = lambda a: None if a is None else Tensor(a).clone().realize()
    P = {k: Tensor(v).clone().realize() for k, v in params.items()}
    data, loss_fn, G = [(t(x), t(y)) for x, y in batches], make_loss(w), {}
    opt = None
    if w.opt:
        kind, lr, wd = w.opt
        opt = {
            "adam": lambda: nn.optim.Adam(list(P.values()), lr=lr),
            "adamw": lambda: nn.optim.AdamW(list(P.values()), lr=lr, weight_decay=wd),
            "sgd": lambda: nn.optim.SGD(list(P.values()), lr=lr),
        }[kind]()

    def train(x, y):
        l = loss_fn(P, x, y)
        if not w.backward:
            return l.realize()
        gs = l.gradient(*P.values())
        if opt is None:
            Tensor.realize(l, *gs)
            return l, *gs
        for p, g in zip(P.values(), gs):
            p.grad = g
        Tensor.realize(l, *opt.schedule_step())
        opt.zero_grad()
        return l

    jit = TinyJit(train) if w.kind != "elementwise" else TinyJit(lambda: train(None, None))

    def step(i):
        with Context(TRAINING=1):
            r = jit(*data[i % len(data)]) if w.kind != "elementwise" else jit()
        if isinstance(r, tuple):
            G.update(zip(P, r[1:]))
            r = r[0]
        return r

    dev = Device[Device.DEFAULT]
    assert Device.DEFAULT == {"cpu": "CPU", "cuda": "CUDA"}[device], Device.DEFAULT
    return Run(
        step,
        sync=lambda r: dev.synchronize(),
        item=lambda r: r.item(),
        grads=lambda: {k: v.numpy() for k, v in G.items()},
        info=dict(
            version="0.14.0",
            device=Device.DEFAULT,
            renderer=type(dev.renderer).__name__,
            mem_used_mb=GlobalCounters.mem_used / 1e6,
        ),
    )
