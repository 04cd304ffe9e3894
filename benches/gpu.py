"""Owns the figures of one GPU beside torch's: products, bandwidth of chains and rows, the cost of a launch and of a read, and flat memory.

Run on a machine with an adapter: `python benches/gpu.py [--device gpu]`. Torch is measured beside if it is there and sees the same GPU.
Every figure is a median over repetitions after a warm-up; times include waiting for the device.
"""

import argparse
import time

import agtape as ag
import numpy as np

try:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch = torch if torch.cuda.is_available() else None
except ImportError:
    torch = None


def median_ms(run, repeat=9, warm=3):
    """The median time of a call."""
    for _ in range(warm):
        run()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    return sorted(times)[repeat // 2]


def each_ms(call, wait, count, repeat=9, warm_ms=0.0):
    """The time of one of `count` calls that are waited for together, after calls for so long: clocks take time to rise."""

    def run():
        for _ in range(count):
            call()
        wait()

    begin = time.perf_counter()
    while (time.perf_counter() - begin) * 1e3 < warm_ms:
        run()
    return median_ms(run, repeat) / count


def beside(name, unit, amount, ours, theirs, count=10):
    """One row: ours and torch's in ms and in `amount` of a unit per ms."""
    ms = each_ms(lambda: ag.eval(ours()), ag.synchronize, count)
    row = f"{name:34} {ms:9.4f} ms {amount / ms:9.1f} {unit}"
    if torch:
        other = each_ms(theirs, torch.cuda.synchronize, count)
        row += f"   torch {other:9.4f} ms {amount / other:9.1f} {unit}   ratio {ms / other:.2f}"
    print(row, flush=True)


def filled(device, *shape):
    """The same kind of values on both sides: ours, torch's."""
    ours = ag.rand(*shape, device=device)
    ag.eval(ours)
    return ours, torch.rand(*shape, device="cuda") if torch else None


def products(device):
    """Products of f32 in TFLOP/s, every layout of the operands."""
    for n in (512, 1024, 2048, 4096, 8192):
        (a, p), (b, q) = filled(device, n, n), filled(device, n, n)
        count, work = (20, 2 * n**3 / 1e9) if n < 4096 else (5, 2 * n**3 / 1e9)
        beside(f"matmul {n} NN", "TFLOP/s", work, lambda a=a, b=b: a @ b, lambda p=p, q=q: p @ q, count)
        beside(f"matmul {n} NT", "TFLOP/s", work, lambda a=a, b=b: a @ b.T, lambda p=p, q=q: p @ q.T, count)
        beside(f"matmul {n} TN", "TFLOP/s", work, lambda a=a, b=b: a.T @ b, lambda p=p, q=q: p.T @ q, count)


def parts_of(make, repeat=5):
    """Where the device's time for a product goes, by shader, where its dispatches are timed (AGTAPE_TIME_DISPATCHES=1)."""
    with ag.profile() as p:
        for _ in range(repeat):
            ag.eval(make())
    apart = p.rows[0]["dispatches"]
    return ", ".join(f"{shader} {ms / repeat:.4f}" for shader, ms in apart.items())


SIZES, LAYOUTS = (512, 1024, 2048, 4096, 8192), ("NN", "NT", "TN")


def precisions(device, rows=64, sizes=SIZES, layouts=LAYOUTS):
    """Products of f32 in TFLOP/s in both precisions and of 16-bit floats, with the error of some rows: relative Frobenius norm, and the
    largest error of an element relative to the product of magnitudes; then where the device's time goes."""
    rng = np.random.default_rng(0)
    for n in sizes:
        x, y = (rng.standard_normal((n, n), np.float32) for _ in range(2))
        chosen = rng.choice(n, rows, replace=False)
        for name in ("highest", "high", "float16", "bfloat16"):
            dtype = name if "float" in name else "float32"
            a, b = (ag.tensor(z, device=device).astype(dtype) for z in (x, y))
            at, bt = (ag.tensor(np.ascontiguousarray(z.T), device=device).astype(dtype).T for z in (x, y))
            p, q = (z.numpy().astype(np.float64) for z in (a, b))
            exact, magnitude = p[chosen] @ q, np.abs(p[chosen]) @ np.abs(q)
            sides = {"NN": (a, b), "NT": (a, bt), "TN": (at, b), "TT": (at, bt)}
            for layout in layouts:
                left, right = sides[layout]
                with ag.options(matmul_precision="highest" if dtype == name else name):
                    ms = each_ms(
                        lambda p=left, q=right: ag.eval(p @ q), ag.synchronize, 20 if n < 4096 else 5, 11, warm_ms=50
                    )
                    error = (left @ right).numpy()[chosen] - exact
                    parts = parts_of(lambda p=left, q=right: p @ q)
                norm, most = np.linalg.norm(error) / np.linalg.norm(exact), np.max(np.abs(error) / magnitude)
                print(
                    f"matmul {n} {layout} {name:8} {ms:9.4f} ms {2 * n**3 / 1e9 / ms:7.1f} TFLOP/s   "
                    f"error {norm:.1e}, of an element {most:.1e}   {parts}",
                    flush=True,
                )


def bandwidth(device, n=1 << 27):
    """Chains and rows in GB/s of what must be read and written."""
    (x, p), (y, q) = filled(device, n), filled(device, n)
    beside("add 2^27", "GB/s", 12 * n / 1e6, lambda: x + y, lambda: p + q)
    beside(
        "relu(x*y+x).sum() 2^27",
        "GB/s",
        8 * n / 1e6,
        lambda: ag.relu(x * y + x).sum(),
        lambda: torch.relu(p * q + p).sum(),
    )
    for rows, width in ((1 << 17, 1024), (1 << 20, 64), (8192, 4096), (4096, 32768)):
        z, r = filled(device, rows, width)
        w, v = ag.ones(width, device=device), torch and torch.ones(width, device="cuda")
        moved = 8 * rows * width / 1e6
        beside(f"softmax {rows}x{width}", "GB/s", moved, lambda: ag.softmax(z, -1), lambda: torch.softmax(r, -1))
        beside(
            f"layer_norm {rows}x{width}",
            "GB/s",
            moved,
            lambda: ag.nn.functional.layer_norm(z, (width,), w, w),
            lambda: torch.nn.functional.layer_norm(r, (width,), v, v),
        )
        row_losses(z, r, w, v, moved)
        for axis in (0, 1):
            beside(
                f"sum of axis {axis} {rows}x{width}",
                "GB/s",
                moved / 2,
                lambda a=axis: z.sum(axis=a),
                lambda a=axis: r.sum(a),
            )


def row_losses(z, r, w, v, moved):
    """Rows with their gradients: bandwidth of reading rows for the loss, and again for the gradient, which is written."""
    rows, width = z.shape
    F, G = ag.nn.functional, torch and torch.nn.functional
    k = ag.arange(rows, device=z.device) % width
    ag.eval(k)
    q = torch and torch.arange(rows, device="cuda") % width
    # Gradients of outputs other than a constant: what multiplies them is a tensor.
    s = torch and r.detach().requires_grad_()

    def ours(loss):
        x = z.detach()
        x.requires_grad = True
        with ag.grad_tape():
            total = loss(x)
        total.backward()
        return x.grad

    def theirs(loss):
        s.grad = None
        loss(s).backward()

    beside(
        f"cross_entropy {rows}x{width}", "GB/s", moved / 2, lambda: F.cross_entropy(z, k), lambda: G.cross_entropy(r, q)
    )
    beside(
        f"cross_entropy and gradient {rows}x{width}",
        "GB/s",
        1.5 * moved,
        lambda: ours(lambda x: F.cross_entropy(x, k)),
        lambda: theirs(lambda x: G.cross_entropy(x, q)),
    )
    beside(
        f"layer_norm and gradient {rows}x{width}",
        "GB/s",
        2.5 * moved,
        lambda: ours(lambda x: (F.layer_norm(x, (width,), w, w) * z).sum()),
        lambda: theirs(lambda x: (G.layer_norm(x, (width,), v, v) * r).sum()),
    )


def launches(device, count=2000):
    """The cost of a launch in a cached plan, and of submitting and reading a scalar."""
    (h, _), (w, _), (s, _) = filled(device, 16, 16), filled(device, 16, 16), filled(device, 1)
    returned, done = [], []
    for _ in range(9):
        q = h
        for _ in range(count):
            q = ag.relu(q @ w)
        begin = time.perf_counter()
        ag.eval(q)
        returned.append((time.perf_counter() - begin) / count * 1e6)
        ag.synchronize()
        done.append((time.perf_counter() - begin) / count * 1e6)
    middle = [sorted(each)[4] for each in (returned, done)]
    print(f"a launch of relu(q @ w) in a cached plan: recorded after {middle[0]:.2f} us, done after {middle[1]:.2f} us")
    for depth in (500, count):
        encoding(h, w, depth)
    print(f"submit and read a scalar: {median_ms(lambda: (s + 1).item(), 200) * 1e3:.1f} us")


def encoding(h, w, count, repeat=9):
    """What the host does for a launch of a cached plan, apart from handing it over and from waiting for the device."""
    stages = {"bind": [], "encode": [], "submit": [], "wait": []}
    for nth in range(repeat + 2):
        q = h
        for _ in range(count):
            q = ag.relu(q @ w)
        ag.synchronize()
        with ag.profile(kernels=False) as p:
            ag.eval(q)
        ag.synchronize()
        if nth >= 2 and p.cache_hits == p.evaluations == 1:
            for stage, times in stages.items():
                times.append(p.stages.get(stage, 0.0) / ag.last_plan().kernels * 1e3)
    told = ", ".join(f"{stage} {sorted(times)[len(times) // 2]:.2f} us" for stage, times in stages.items() if times)
    print(f"of a launch in a cached plan of {count}, one dispatch: {told}", flush=True)


def flat_memory(device, steps=10_000):
    """Pool bytes and transfers over many steps of a small network."""
    nn, opt = ag.nn, ag.optim
    with ag.device(device):
        model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))
        x, y = ag.rand(64, 128), ag.rand(64, 128)
    adam = opt.Adam(model.parameters())

    def step():
        with ag.grad_tape():
            loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        adam.step()
        adam.zero_grad()

    for _ in range(1000):
        step()
    ag.synchronize()
    before = ag.memory_stats(device).to_dict()
    with ag.transfers() as moved:
        for _ in range(steps):
            step()
        ag.synchronize()
    is_flat = before == ag.memory_stats(device).to_dict()
    print(f"{steps} steps: pools {'unchanged' if is_flat else 'CHANGED'}, {moved.to_host_bytes} bytes downloaded")


def main():
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--only", choices=["launches", "products", "precisions", "bandwidth", "flat_memory"])
    parser.add_argument(
        "--sizes", type=lambda text: [int(n) for n in text.split(",")], default=SIZES, help="of precisions"
    )
    parser.add_argument(
        "--layouts", type=lambda text: text.split(","), default=LAYOUTS, help="of precisions: NN,NT,TN,TT"
    )
    given = parser.parse_args()
    device = given.device
    print(next(a for a in ag.adapters() if a.device == device))
    if given.only == "precisions":
        precisions(device, sizes=given.sizes, layouts=given.layouts)
        return
    if given.only:
        globals()[given.only](device)
        return
    launches(device)
    products(device)
    precisions(device)
    bandwidth(device)
    flat_memory(device)


if __name__ == "__main__":
    main()
