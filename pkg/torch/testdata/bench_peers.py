"""Python's torch on what BenchmarkSmallAdd measures, in the same format.

    python pkg/torch/testdata/bench_peers.py

One addition of four float32 elements, chained 100 times; the least of 7
repetitions, as noise only adds time.
"""
import timeit

import torch

ADDS = 100
ROUNDS = 500


def chain(x, y):
    for _ in range(ADDS):
        y = y.add(x)


for name, grad in (("nograd", False), ("grad", True)):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=grad)
    start = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=grad)
    least = min(timeit.repeat(lambda: chain(x, start), number=ROUNDS, repeat=7)) / ROUNDS
    print(f"BenchmarkPythonSmallAdd/{name} \t{ROUNDS}\t{least * 1e9:.0f} ns/op\t{least * 1e9 / ADDS:.1f} ns/add")
