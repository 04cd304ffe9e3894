"""ferrotensor (Rust + wgpu): eager. It has AdamW only (weight_decay=0 is Adam) and no NumPy path, so arrays go in
and out through safetensors files, outside the timed steps."""

import json
import struct
import tempfile

import ferrotensor as ft
import ferrotensor.nn.functional as F
import numpy as np
from workloads import Run, Unsupported

VARIANTS = {"ferrotensor": "eager"}


def to_ft(arrays, device):
    head, off = {}, 0
    for k, v in arrays.items():
        head[k] = dict(dtype="F32", shape=list(v.shape), data_offsets=[off, off + v.size * 4])
        off += v.size * 4
    h = json.dumps(head).encode()
    h += b" " * (-len(h) % 8)
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for v in arrays.values():
            f.write(np.ascontiguousarray(v, np.float32))
        f.flush()
        return ft.load(f.name, device=device)


def to_np(tensors):
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as f:
        ft.save({k: v.detach() for k, v in tensors.items()}, f.name)
        raw = open(f.name, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    return {
        k: np.frombuffer(
            raw,
            np.float32,
            offset=8 + n + m["data_offsets"][0],
            count=(m["data_offsets"][1] - m["data_offsets"][0]) // 4,
        ).reshape(m["shape"])
        for k, m in json.loads(raw[8 : 8 + n]).items()
        if k != "__metadata__"
    }


def init(device, threads):
    a = ft.ones(64, 64, device="cpu" if device == "cpu" else "gpu")
    (a @ a).sum().item()


def make_loss(w, dev, P):
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
                h = F.linear(h, P[f"l{i}.w"], P[f"l{i}.b"])
                if i < n - 1:
                    h = h.relu()
            return F.cross_entropy(h, y) if c["loss"] == "ce" else F.mse_loss(h, y)
    else:
        H, d = c["heads"], c["d"]
        emb = ft.nn.Embedding(c["V"], d, device=dev)
        emb.weight.copy_(P["wte"])
        P["wte"] = emb.weight  # the lookup exists only as a layer

        def loss(P, x, y):
            ln = lambda k, z: F.layer_norm(z, P[f"{k}.g"], P[f"{k}.b"])
            lin = lambda k, z: F.linear(z, P[f"{k}.w"], P[f"{k}.b"])
            B, T = x.shape
            h = emb(x) + P["wpe"]
            for i in range(c["layers"]):
                z = lin(f"h{i}.qkv", ln(f"h{i}.ln1", h)).reshape(B, T, 3, H, d // H).permute(2, 0, 3, 1, 4)
                a = F.scaled_dot_product_attention(z[0], z[1], z[2], is_causal=True).transpose(1, 2).reshape(B, T, d)
                h = h + lin(f"h{i}.out", a)
                h = h + lin(f"h{i}.down", lin(f"h{i}.fc", ln(f"h{i}.ln2", h)).gelu())
            return F.cross_entropy((ln("lnf", h) @ P["wte"].T).reshape(-1, c["V"]), y.reshape(-1))

    return loss


def build(w, params, batches, device, variant):
    if w.ckpt:
        raise Unsupported("no activation checkpointing in ferrotensor 0.3.0")
    dev = ft.Device("cpu" if device == "cpu" else "gpu")
    if dev.is_gpu and "llvmpipe" in dev.name:
        raise Unsupported(f"its gpu is {dev.name}, a software rasteriser")
    P = to_ft(params, dev)
    data = []
    for x, y in batches:
        d = to_ft({k: v for k, v in (("x", x), ("y", y)) if v is not None}, dev) if x is not None else {}
        data.append((d.get("x"), d.get("y")))
    loss_fn = make_loss(w, dev, P)
    for p in P.values():
        p.requires_grad_()
    opt = None
    if w.opt:
        kind, lr, wd = w.opt
        opt = (
            ft.optim.SGD(list(P.values()), lr=lr)
            if kind == "sgd"
            else ft.optim.AdamW(list(P.values()), lr=lr, weight_decay=wd)
        )

    def step(i):
        x, y = data[i % len(data)]
        if not w.backward:
            with ft.no_grad():
                return loss_fn(P, x, y)
        if opt is None:
            for p in P.values():
                p.grad = None
        else:
            opt.zero_grad()
        l = loss_fn(P, x, y)
        l.backward()
        if opt is not None:
            opt.step()
        return l

    return Run(
        step,
        sync=(lambda r: None) if dev.is_cpu else (lambda r: r.item()),
        item=lambda r: r.item(),
        grads=lambda: to_np({k: p.grad for k, p in P.items()}),
        info=dict(
            version="0.3.0", device=dev.name, backend=dev.backend, sync="none (eager)" if dev.is_cpu else "loss.item()"
        ),
    )
