"""PyTorch. Variants: eager (default optimizer arguments), fused (eager, fused optimizer), compile (torch.compile + fused)."""

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from workloads import Run, Unsupported

VARIANTS = {"torch": "eager", "torch_fused": "fused", "torch_compile": "compile"}


def init(device, threads):
    if device == "cpu":
        torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    a = torch.ones(64, 64, device=device, requires_grad=True)
    for o in (torch.optim.Adam, torch.optim.SGD):  # pulls in torch's lazy imports (150 MB) before memory is measured
        (a @ a).sum().backward()
        o([a], lr=0.0).step()


def make_loss(w):
    c = w.cfg
    if w.kind == "chain":

        def loss(P, x, y):
            h = x
            for _ in range(c["depth"]):
                h = torch.relu(h @ P["w"])
            return h.sum()
    elif w.kind == "elementwise":

        def loss(P, x, y):
            return torch.relu(P["x"] * P["y"] + P["x"]).sum()
    elif w.kind == "mlp":
        n = len(c["sizes"]) - 1

        def seg(P, h, lo, hi):
            for i in range(lo, hi):
                h = F.linear(h, P[f"l{i}.w"], P[f"l{i}.b"])
                if i < n - 1:
                    h = torch.relu(h)
            return h

        def loss(P, x, y):
            h = x
            for lo in range(0, n, w.ckpt or n):
                hi = min(lo + (w.ckpt or n), n)
                h = checkpoint(seg, P, h, lo, hi, use_reentrant=False) if w.ckpt else seg(P, h, lo, hi)
            return F.cross_entropy(h, y) if c["loss"] == "ce" else F.mse_loss(h, y)
    else:
        H, d = c["heads"], c["d"]

        def block(P, h, i):
            p = lambda k: (P[f"h{i}.{k}.w"], P[f"h{i}.{k}.b"])
            ln = lambda k, z: F.layer_norm(z, (d,), P[f"h{i}.{k}.g"], P[f"h{i}.{k}.b"])
            B, T, _ = h.shape
            q, k, v = F.linear(ln("ln1", h), *p("qkv")).view(B, T, 3, H, d // H).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, d)
            h = h + F.linear(a, *p("out"))
            return h + F.linear(F.gelu(F.linear(ln("ln2", h), *p("fc")), approximate="tanh"), *p("down"))

        def loss(P, x, y):
            h = F.embedding(x, P["wte"]) + P["wpe"]
            for i in range(c["layers"]):
                h = checkpoint(block, P, h, i, use_reentrant=False) if w.ckpt else block(P, h, i)
            h = F.layer_norm(h, (d,), P["lnf.g"], P["lnf.b"])
            return F.cross_entropy(F.linear(h, P["wte"]).view(-1, c["V"]), y.view(-1))

    return loss


def cpu_peak(step, P, opt, w):  # one more step under the profiler: live bytes of torch's own CPU allocator
    from torch.profiler import ProfilerActivity, profile

    state = {id(p): p.nbytes for p in P.values()}
    for s in opt.state.values() if opt else ():
        state.update({id(t): t.nbytes for t in s.values() if torch.is_tensor(t)})
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        step(0)
    live = top = 0
    for e in sorted(
        (e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
    ):
        live += e.nbytes()
        top = max(top, live)
    # .grad of the step before: the profiler does not see it freed, and it is gone before anything is allocated
    old = sum(p.nbytes for p in P.values()) if w.backward else 0
    return sum(state.values()) + max(top, old)


def build(w, params, batches, device, variant):
    if variant == "fused" and (w.opt or [""])[0] not in ("adam", "adamw"):
        raise Unsupported("no Adam in it: same as torch")
    t = lambda a: (
        None if a is None else torch.tensor(a, device=device, dtype=torch.int64 if a.dtype.kind == "i" else None)
    )
    P = {
        k: torch.tensor(v.T.copy() if k.endswith(".w") else v, device=device, requires_grad=True)
        for k, v in params.items()
    }
    data, loss_fn = [(t(x), t(y)) for x, y in batches], make_loss(w)
    if variant == "compile":
        loss_fn = torch.compile(loss_fn, mode="reduce-overhead" if device == "cuda" else None)
    opt = None
    if w.opt:
        kind, lr, wd = w.opt
        fused = None if variant == "eager" else True
        make = {
            "adam": lambda: torch.optim.Adam(P.values(), lr=lr, fused=fused),
            "adamw": lambda: torch.optim.AdamW(P.values(), lr=lr, weight_decay=wd, fused=fused),
            "sgd": lambda: torch.optim.SGD(P.values(), lr=lr, fused=fused),
        }
        opt = make[kind]()

    def step(i):
        if variant == "compile" and device == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        x, y = data[i % len(data)]
        if not w.backward:
            with torch.no_grad():
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
        return l.detach()

    cuda = device == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    assert all(p.device.type == device for p in P.values())
    return Run(
        step,
        sync=(lambda r: torch.cuda.synchronize()) if cuda else (lambda r: None),
        item=lambda r: r.item(),
        grads=lambda: {k: p.grad.cpu().numpy() for k, p in P.items()},
        device_peak=torch.cuda.max_memory_allocated if cuda else lambda: cpu_peak(step, P, opt, w),
        info=dict(
            version=torch.__version__, device=str(next(iter(P.values())).device), threads=torch.get_num_threads()
        ),
    )
