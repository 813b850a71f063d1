"""Times losses of pytorch-metric-learning and torch for BenchmarkPeers, which
starts this program and asks it in turn with its own measurements, so that both
see the same machine at the same moment:

    request   NAME B         on standard input
    answer    MILLISECONDS   of forward and backward, the best of a few; or - if memory would not do

The embeddings are float32, 512 dimensions, four of a class, as in bench_test.go;
losses with proxies have one a class.
"""

import sys
import time

import torch
from pytorch_metric_learning import distances, losses, miners


class Linear(torch.nn.Module):
    """The softmax cross-entropy of a linear classifier."""

    def __init__(self, classes):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(classes, 512))

    def forward(self, x, labels, _):
        return torch.nn.functional.cross_entropy(x @ self.weight.T, labels)


torch.set_num_threads(int(sys.argv[1]))
cosine = distances.CosineSimilarity()
# What is called with the number of classes; the miner; the largest batch.
PEERS = {
    "smoothap": (lambda _: losses.SmoothAPLoss(temperature=0.01), None, 384),  # the largest that 20 GiB hold
    "fastap": (lambda _: losses.FastAPLoss(num_bins=10), None, 4096),
    "contrastive": (lambda _: losses.ContrastiveLoss(pos_margin=1, neg_margin=0.5, distance=cosine), None, 4096),
    "triplet": (lambda _: losses.TripletMarginLoss(margin=0.1, distance=cosine), None, 4096),
    "multisimilarity": (lambda _: losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5), miners.MultiSimilarityMiner(epsilon=0.1, distance=cosine), 4096),
    "proxynca++": (lambda classes: losses.ProxyNCALoss(classes, 512, softmax_scale=9), None, 4096),
    "normsoftmax": (lambda classes: losses.NormalizedSoftmaxLoss(classes, 512, temperature=0.05), None, 4096),
    "crossentropy": (Linear, None, 4096),
}


def batch(b):
    torch.manual_seed(b)
    labels = torch.arange(b) // 4
    return (torch.randn(b // 4 + 1, 512)[labels] + torch.randn(b, 512)).requires_grad_(), labels


def measure(name, b):
    make, miner, most = PEERS[name]
    if b > most:
        return "-"
    x, labels = batch(b)
    loss = make(b // 4)
    best, spent = float("inf"), 0.0
    while spent < 0.5:
        begin = time.perf_counter()
        pairs = miner(x, labels) if miner else None
        loss(x, labels, pairs).backward()
        took = time.perf_counter() - begin
        x.grad = None
        for proxies in loss.parameters():
            proxies.grad = None
        best, spent = min(best, took), spent + took
    return f"{best * 1e3:.4f}"


print("ready", flush=True)
for line in sys.stdin:
    name, b = line.split()
    print(measure(name, int(b)), flush=True)
