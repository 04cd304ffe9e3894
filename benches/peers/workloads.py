"""Pure data definitions: sizes, initial weights (NumPy, fixed seed) and batches. No peer library is imported here.

Parameter names: ``*.w`` is a linear weight stored [in, out] (y = h @ w + b); ``*.b`` a bias or LayerNorm shift;
``*.g`` a LayerNorm gain; ``wte``/``wpe`` the token (tied with the output head) and position tables.
All data is float32; tokens and labels are int32.
"""

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Workload:
    name: str
    kind: str  # chain | mlp | gpt | elementwise
    cfg: dict
    opt: tuple = None  # (name, lr, weight_decay); betas 0.9/0.999 and eps 1e-8 are the defaults everywhere
    ckpt: int = 0  # layers per checkpointed segment (mlp) / blocks per segment (gpt); 0 = plain
    check: int = 5  # the losses of the first `check` steps, from the initial weights, are compared between peers
    tol: float = 2e-3  # relative tolerance of those; the first step's is always 2e-4 (elementwise: tol)
    gpu_only: bool = False
    backward: bool = True
    note: str = field(default="", compare=False)

    def params(self):
        r, c = np.random.default_rng(1234), self.cfg
        n = lambda s, *d: r.standard_normal(d, dtype=np.float32) * np.float32(s)
        if self.kind == "chain":
            w, h = n(math.sqrt(2 / c["d"]), c["d"], c["d"]), self.batches()[0][0]
            norm = np.linalg.norm(h)
            for _ in range(3):  # relu(h @ cW) = c relu(h @ W): scale W so that the chain neither dies nor blows up
                z = h
                for _ in range(c["depth"]):
                    z = np.maximum(z @ w, 0)
                w = (w * (norm / np.linalg.norm(z)) ** (1 / c["depth"])).astype(np.float32)
            return {"w": w}
        if self.kind == "elementwise":
            return {"x": n(1, c["n"]), "y": n(1, c["n"])}
        p = {}
        if self.kind == "mlp":
            for i, (a, b) in enumerate(zip(c["sizes"], c["sizes"][1:])):
                p[f"l{i}.w"], p[f"l{i}.b"] = n(math.sqrt(2 / a), a, b), np.zeros(b, np.float32)
            return p
        d, L = c["d"], c["layers"]
        one, zero = (lambda k: np.ones(k, np.float32)), (lambda k: np.zeros(k, np.float32))
        p["wte"], p["wpe"] = n(0.02, c["V"], d), n(0.02, c["T"], d)
        for i in range(L):
            p[f"h{i}.ln1.g"], p[f"h{i}.ln1.b"] = one(d), zero(d)
            p[f"h{i}.qkv.w"], p[f"h{i}.qkv.b"] = n(0.02, d, 3 * d), zero(3 * d)
            p[f"h{i}.out.w"], p[f"h{i}.out.b"] = n(0.02 / math.sqrt(2 * L), d, d), zero(d)
            p[f"h{i}.ln2.g"], p[f"h{i}.ln2.b"] = one(d), zero(d)
            p[f"h{i}.fc.w"], p[f"h{i}.fc.b"] = n(0.02, d, 4 * d), zero(4 * d)
            p[f"h{i}.down.w"], p[f"h{i}.down.b"] = n(0.02 / math.sqrt(2 * L), 4 * d, d), zero(d)
        p["lnf.g"], p["lnf.b"] = one(d), zero(d)
        return p

    def batches(self):
        """List of (x, y); step i uses entry i % len. The arrays are turned into the peer's tensors before timing."""
        r, c = np.random.default_rng(99), self.cfg
        if self.kind == "chain":
            return [(np.abs(r.standard_normal((c["batch"], c["d"]), dtype=np.float32)), None)]
        if self.kind == "elementwise":
            return [(None, None)]
        B = c["batch"]
        if c.get("data") == "digits":
            from sklearn.datasets import load_digits

            X, y = load_digits(return_X_y=True)
            X, y, o = (X / 16).astype(np.float32), y.astype(np.int32), r.permutation(len(y))
            return [(X[o[i : i + B]], y[o[i : i + B]]) for i in range(0, len(y) - B + 1, B)]
        if self.kind == "mlp":
            f = lambda d: r.standard_normal((B, d), dtype=np.float32)
            return [(f(c["sizes"][0]), f(c["sizes"][-1]))]
        out = []  # learnable pseudo-text: next = (31 * cur + 7 + noise in 0..3) mod V
        for _ in range(4):
            t = np.empty((B, c["T"] + 1), np.int64)
            t[:, 0] = r.integers(0, c["V"], B)
            for k in range(c["T"]):
                t[:, k + 1] = (t[:, k] * 31 + 7 + r.integers(0, 4, B)) % c["V"]
            out.append((t[:, :-1].astype(np.int32).copy(), t[:, 1:].astype(np.int32).copy()))
        return out


def _gpt(V, T, d, heads, layers, batch):
    return dict(V=V, T=T, d=d, heads=heads, layers=layers, batch=batch)


_ops = dict(depth=64, d=16, batch=16)
_deep = dict(sizes=[512] * 25, batch=512, loss="mse")
_nano, _10m = _gpt(64, 64, 128, 4, 4, 16), _gpt(256, 256, 384, 6, 6, 32)
_124m = _gpt(50304, 1024, 768, 12, 12, 8)
_adamw = ("adamw", 3e-4, 0.01)
ALL = [
    Workload("ops_fwd", "chain", _ops, check=3, backward=False, note="64 x relu(h @ W), then sum; no tape"),
    Workload("ops_fwdbwd", "chain", _ops, check=3, note="same, and the gradient of W"),
    Workload(
        "digits", "mlp", dict(sizes=[64, 128, 10], batch=64, loss="ce", data="digits"), ("adam", 1e-3, 0), check=28
    ),
    Workload("mlp_small", "mlp", dict(sizes=[128] * 4, batch=64, loss="mse"), ("adam", 1e-3, 0), check=20),
    Workload(
        "mlp_mid",
        "mlp",
        dict(sizes=[1024] * 6, batch=256, loss="mse"),
        ("adam", 1e-3, 0),
        check=6,
        tol=1e-2,
        note="input 1024, 4 hidden layers of 1024, output 1024",
    ),
    Workload("mlp_deep", "mlp", _deep, ("sgd", 0.1, 0), check=4, note="24 linear layers of 512"),
    Workload(
        "mlp_deep_ckpt", "mlp", _deep, ("sgd", 0.1, 0), ckpt=4, check=4, note="same, 6 checkpointed segments of 4"
    ),
    Workload("gpt_nano", "gpt", _nano, _adamw, check=5),
    Workload("gpt_nano_ckpt", "gpt", _nano, _adamw, ckpt=1, check=5),
    Workload("gpt_10M", "gpt", _10m, _adamw, check=5, gpu_only=True),
    Workload("gpt_10M_ckpt", "gpt", _10m, _adamw, ckpt=1, check=5, gpu_only=True),
    Workload("gpt_124M", "gpt", _124m, _adamw, check=3, gpu_only=True),
    Workload("gpt_124M_ckpt", "gpt", _124m, _adamw, ckpt=1, check=3, gpu_only=True),
    Workload(
        "elementwise_fwd",
        "elementwise",
        dict(n=1 << 24),
        check=3,
        tol=1e-3,
        backward=False,
        note="sum(relu(x*y + x)), 2^24 floats; no tape",
    ),
    Workload(
        "elementwise_fwdbwd", "elementwise", dict(n=1 << 24), check=3, tol=1e-3, note="same, gradients of x and y"
    ),
]
BY_NAME = {w.name: w for w in ALL}
GROUPS = {
    g: [w.name for w in ALL if w.name == g or w.name in (g + "_ckpt", g + "_fwd", g + "_fwdbwd")]
    for g in ("ops", "digits", "mlp_small", "mlp_mid", "mlp_deep", "gpt_nano", "gpt_10M", "gpt_124M", "elementwise")
}


class Unsupported(Exception):
    """Raised by a peer's build() for a workload that the library cannot express; the text says why."""


class Run:
    """What a peer's build() returns. step(i) does one whole training step; sync(r) waits until all its work is done."""

    def __init__(self, step, sync, item, grads=None, device_peak=None, info=None):
        self.step, self.sync, self.item = step, sync, item
        self.grads = grads  # () -> {name: ndarray} of the last step; chain and elementwise only
        self.device_peak = device_peak  # () -> bytes, where the library reports it
        self.info = info or {}  # versions, device actually used, ...
