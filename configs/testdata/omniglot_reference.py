"""Reference for the recipe omniglot_convnet: the same protocol in Python.

    python configs/testdata/omniglot_reference.py --root ../shared/data/omniglot \
        > configs/testdata/omniglot_reference.json

Needs torch, numpy, pillow and pytorch-metric-learning; the versions used are
in the output. Nothing of the program is used here, so agreement of the two
says something about both.

Protocol. Omniglot, background archive. Class: alphabet/character, sorted by
name; the first 80 % of the 964 classes (771) train, the rest (193) test.
28 x 28 grey (triangle filter), white ink on black, in [0, 1]. Four blocks of
convolution 3 x 3 (64), batch norm, ReLU, max-pool 2; linear to 64; L2-normalised.
PyTorch's default initialisation. Adam, 1e-3. ROADMAP loss, its defaults.
Batches of 32 classes x 4; 600 steps; no augmentation. Evaluation: every test
image is query and gallery, its own row excluded; batch norm in inference mode.

Seconds per step leave out the reading of the images, which happens before the
first. The stored ones are of an otherwise idle machine with two cores.
"""

import argparse
import io
import json
import platform
import statistics
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import PIL
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import nn

TAU, RHO, EPSILON = 0.01, 100.0, 0.01  # supap
ALPHA, BETA = 0.9, 0.6  # calibration
LAMBDA = 0.5  # roadmap
CLASSES, SAMPLES, LR = 32, 4, 1e-3


def load(root):
    """Images [n, 1, 28, 28] in [0, 1] and labels [n] of the background set."""
    with zipfile.ZipFile(Path(root) / "images_background.zip") as archive:
        names = sorted(n for n in archive.namelist() if n.endswith(".png"))
        class_of = ["/".join(n.split("/")[1:3]) for n in names]
        number = {c: i for i, c in enumerate(sorted(set(class_of)))}
        images = np.empty((len(names), 1, 28, 28), np.float32)
        for i, n in enumerate(names):
            drawing = Image.open(io.BytesIO(archive.read(n))).convert("L")
            small = drawing.resize((28, 28), Image.Resampling.BILINEAR)
            images[i, 0] = np.asarray(ImageOps.invert(small), np.float32) / 255
    labels = np.array([number[c] for c in class_of])
    assert len(number) == 964 and len(names) == 19280
    return torch.from_numpy(images), torch.from_numpy(labels)


class Convnet(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 1
        for _ in range(4):
            layers += [nn.Conv2d(channels, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
            channels = 64
        self.blocks = nn.Sequential(*layers)
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        return F.normalize(self.linear(self.blocks(x).flatten(1)))


def upper_bound(t):
    """H^- of ROADMAP eq. 4: at least the step function, with a gradient."""
    delta = TAU * np.log((1 - EPSILON) / EPSILON)
    sigma = torch.sigmoid(t / TAU)
    offset = 1 / (1 + np.exp(-delta / TAU)) + 0.5
    return torch.where(t < 0, sigma, torch.where(t <= delta, sigma + 0.5, RHO * (t - delta) + offset))


def roadmap(embeddings, labels):
    """(1 - lambda) supap + lambda calibration; the own entry excluded."""
    scores = (embeddings @ embeddings.T).clamp(-1, 1)
    own = torch.eye(len(labels), dtype=torch.bool)
    same = labels[:, None] == labels[None, :]
    positive, negative = same & ~own, ~same
    count = positive.sum(1)  # the same for every query of a full batch
    assert (count == count[0]).all() and count[0] > 0

    at = positive.nonzero()[:, 1].view(len(labels), -1)  # [q, p] columns of the positives
    t = scores[:, None, :] - scores.gather(1, at)[:, :, None]  # [q, p, g] s_j - s_k
    others = positive[:, None, :] & (torch.arange(len(labels)) != at[:, :, None])
    rank_plus = 1 + ((t >= 0) & others).sum(2)
    rank_minus = (upper_bound(t) * negative[:, None, :]).sum(2)
    supap = 1 - (rank_plus / (rank_plus + rank_minus)).mean()

    pull = (F.relu(ALPHA - scores) * positive).sum(1) / positive.sum(1)
    push = (F.relu(scores - BETA) * negative).sum(1) / negative.sum(1)
    return (1 - LAMBDA) * supap + LAMBDA * (pull + push).mean()


def batches(labels, steps, rng):
    """Classes in seeded permutations, one behind the other; images at random without repetition."""
    rows = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
    queue = np.empty(0, int)
    for _ in range(steps):
        if len(queue) < CLASSES:
            queue = rng.permutation(len(rows))
        chosen, queue = queue[:CLASSES], queue[CLASSES:]
        yield np.concatenate([rng.choice(rows[c], SAMPLES, replace=False) for c in chosen])


@torch.no_grad()
def evaluate(net, images, labels):
    net.eval()
    embeddings = torch.cat([net(part) for part in images.split(512)])
    net.train()
    scores = embeddings @ embeddings.T
    scores.fill_diagonal_(-2)
    order = scores.argsort(dim=1, descending=True, stable=True)[:, :-1]
    hit = labels[order] == labels[:, None]  # [q, g - 1] by rank
    result = {f"r@{k}": hit[:, :k].any(1).double().mean().item() for k in (1, 2, 4, 8)}
    relevant = hit.sum(1)
    rank = torch.arange(1, hit.shape[1] + 1)
    counted = hit & (rank <= relevant[:, None])
    precision = hit.cumsum(1) / rank
    result["map@r"] = ((precision * counted).sum(1).double() / relevant).mean().item()
    return result, embeddings


def peer(embeddings, labels):
    """The same figures by pytorch-metric-learning, as a check of evaluate."""
    calculator = AccuracyCalculator(include=("mean_average_precision_at_r", "precision_at_1"), k="max_bin_count")
    got = calculator.get_accuracy(embeddings, labels, embeddings, labels, ref_includes_query=True)
    return {"map@r": got["mean_average_precision_at_r"], "r@1": got["precision_at_1"]}


def run(seed, steps, train, test):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    net = Convnet()
    adam = torch.optim.Adam(net.parameters(), lr=LR)
    untrained, _ = evaluate(net, *test)
    losses, seconds = [], []
    images, labels = train
    for rows in batches(labels.numpy(), steps, rng):
        began = time.perf_counter()
        loss = roadmap(net(images[rows]), labels[rows])
        adam.zero_grad()
        loss.backward()
        adam.step()
        seconds.append(time.perf_counter() - began)
        losses.append(loss.item())
    trained, embeddings = evaluate(net, *test)
    check = peer(embeddings, test[1])
    assert abs(check["map@r"] - trained["map@r"]) < 1e-4 and abs(check["r@1"] - trained["r@1"]) < 1e-4, check
    print(f"seed {seed}: {trained}", file=sys.stderr)
    return {
        "seed": seed,
        "untrained": untrained,
        "trained": trained,
        "loss_first_20": statistics.mean(losses[:20]),
        "loss_last_20": statistics.mean(losses[-20:]),
        "seconds_per_step_median": statistics.median(seconds),
        "seconds_per_step_mean": statistics.mean(seconds),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of images_background.zip")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    images, labels = load(options.root)
    border = int(0.8 * 964)
    train = images[labels < border], labels[labels < border]
    test = images[labels >= border], labels[labels >= border] - border
    runs = [run(seed, options.steps, train, test) for seed in options.seeds]
    spread = {}
    for key in runs[0]["trained"]:
        values = [r["trained"][key] for r in runs]
        spread[key] = {"mean": statistics.mean(values), "sd": statistics.stdev(values) if len(values) > 1 else None}
    json.dump(
        {
            "protocol": "omniglot background80, 28x28, convnet 4x64, 64-d, roadmap, Adam 1e-3, 32x4",
            "command": "python configs/testdata/omniglot_reference.py --root ../shared/data/omniglot"
            f" --steps {options.steps} --seeds {' '.join(map(str, options.seeds))} --threads {options.threads}",
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
                "pillow": PIL.__version__,
                "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            },
            "images": {"train": len(train[1]), "test": len(test[1])},
            "steps": options.steps,
            "runs": runs,
            "summary": spread,
        },
        sys.stdout,
        indent=2,
    )
    print()


if __name__ == "__main__":
    main()
