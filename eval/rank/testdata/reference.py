"""Writes reference.json: metrics by pytorch-metric-learning's
AccuracyCalculator, whose policies coincide with --lone skip, on embeddings
without ties.

    python reference.py

Made with pytorch-metric-learning 2.9.0, torch 2.11.0, numpy 2.4.6, faiss-cpu
1.15.1 (CPython 3.11).

Neighbours are found by squared Euclidean distance in float32. The smallest
relative gap between two distances of one query is checked to be far above
float32's rounding, so the order is that of exact arithmetic.
"""

import json
import pathlib

import numpy as np
import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN

random = np.random.default_rng(7)


def points(n):
    return np.round(random.normal(size=(n, 6)), 3)


def check_gaps(queries, gallery, same):
    d = ((queries[:, None].astype(np.float64) - gallery[None]) ** 2).sum(-1)
    if same:
        np.fill_diagonal(d, np.inf)
    d.sort(axis=1)
    d = d[:, :-1] if same else d
    gap = (np.diff(d, axis=1) / d[:, 1:]).min()
    assert gap > 2e-6, gap


def measure(queries, query_labels, gallery, gallery_labels, same):
    check_gaps(queries, gallery, same)
    calculator = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_average_precision", "mean_reciprocal_rank"),
        k=len(gallery) - same,
        device=torch.device("cpu"),
        knn_func=CustomKNN(LpDistance(normalize_embeddings=False, power=2)),
    )
    t = lambda x, dtype: torch.tensor(x, dtype=dtype)
    found = calculator.get_accuracy(
        t(queries, torch.float32), t(query_labels, torch.int64),
        t(gallery, torch.float32), t(gallery_labels, torch.int64), ref_includes_query=same)
    return {
        "r@1": found["precision_at_1"],
        "rp": found["r_precision"],
        "map@r": found["mean_average_precision_at_r"],
        "map": found["mean_average_precision"],
        "mrr": found["mean_reciprocal_rank"],
    }


def case(n, classes, m=0):
    """n gallery points; m queries, or the gallery itself."""
    while True:  # until no two distances of a query are close
        gallery, labels = points(n), random.integers(0, classes, n)
        queries, query_labels = (points(m), random.integers(0, classes, m)) if m else (gallery, labels)
        try:
            metrics = measure(queries, query_labels, gallery, labels, m == 0)
        except AssertionError:
            continue
        out = {"gallery": gallery.tolist(), "labels": labels.tolist(), "metrics": {k: float(v) for k, v in metrics.items()}}
        if m:
            out |= {"queries": queries.tolist(), "query_labels": query_labels.tolist()}
        return out


cases = {
    "same set": case(40, 8),
    "same set, lone queries": case(30, 20),
    "same set, one class": case(12, 1),
    "query and gallery": case(40, 6, 15),
    "query and gallery, lone queries": case(20, 15, 25),
}
path = pathlib.Path(__file__).parent / "reference.json"
path.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items()) + "\n}\n")
