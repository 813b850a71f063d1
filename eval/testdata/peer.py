"""What people use otherwise: pytorch-metric-learning's AccuracyCalculator over
faiss-cpu's flat index, on embeddings [N, d] as their own gallery.

    python peer.py EMBEDDINGS.npy LABELS.npy K

prints one JSON object: r@1, rp and map@r, seconds (reading the files left out),
the peak of memory in bytes, and the seconds of two bare matrix products of the
same size, the floors of any such evaluation. K is the number of neighbours looked up; 0 is as many as the
largest class needs.
"""

import json
import resource
import sys
import time

import faiss
import numpy as np
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

x, y, k = np.load(sys.argv[1]), np.load(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(min(torch.get_num_threads(), 64))
calculator = AccuracyCalculator(
    include=("precision_at_1", "r_precision", "mean_average_precision_at_r"),
    k=k or "max_bin_count",
    device=torch.device("cpu"),
)
begin = time.perf_counter()
found = calculator.get_accuracy(torch.from_numpy(x), torch.from_numpy(y))
seconds = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def product(dtype):
    a = torch.from_numpy(x).to(dtype)
    out = torch.empty(2048, len(x), dtype=dtype)
    begin = time.perf_counter()
    for i in range(0, len(a), 2048):
        torch.mm(a[i : i + 2048], a.t(), out=out[: len(a[i : i + 2048])])
    return time.perf_counter() - begin


print(json.dumps({
    "r@1": found["precision_at_1"],
    "rp": found["r_precision"],
    "map@r": found["mean_average_precision_at_r"],
    "seconds": seconds,
    "peak_bytes": peak,
    "product_float32": product(torch.float32),
    "product_bfloat16": product(torch.bfloat16),
    "faiss": faiss.__version__,
}))
