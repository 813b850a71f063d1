"""Loads what TestConformance wrote into a folder with NumPy, safetensors and
PyTorch (weights_only=True), and compares it with the same numbers made here.

    python conformance.py FOLDER
"""

import pathlib
import sys

import numpy as np
import safetensors.torch
import torch

folder = pathlib.Path(sys.argv[1])
count = torch.arange(24)
flat = {
    "bool": count % 3 == 0,
    "uint8": count.to(torch.uint8),
    "int8": (count - 12).to(torch.int8),
    "int16": (count * 1000 - 12000).to(torch.int16),
    "int32": (count * 100_000_000 - 1_200_000_000).to(torch.int32),
    "int64": (count - 12) * 2**58,
    "float32": (count.to(torch.float32) - 12) / 8,
    "float64": (count.to(torch.float64) - 12) / 1024,
    "float16": ((count - 12) / 8).to(torch.float16),
    "bfloat16": ((count - 12) / 8).to(torch.bfloat16),
}
expected = {
    f"{dtype}/{'x'.join(map(str, shape))}": values.reshape(shape)
    for shape in ((24,), (2, 3, 4), (1, 24, 1, 1))
    for dtype, values in flat.items()
}
expected["scalar"] = torch.tensor(0.125)
expected["empty"] = torch.zeros(0, 3)
expected["näme \"x\"\n"] = torch.tensor([1.0])


def same(where, got, want):
    assert got.dtype == want.dtype, f"{where}: {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{where}: {tuple(got.shape)}, not {tuple(want.shape)}"
    assert torch.equal(got, want), f"{where}: {got}, not {want}"


for name, mmap in (("all.pth", False), ("all.pth", True)):
    loaded = torch.load(folder / name, weights_only=True, mmap=mmap)
    assert list(loaded) == sorted(expected), f"{name}: {list(loaded)}"
    for key, want in expected.items():
        same(f"{name}: {key}", loaded[key], want)
loaded = safetensors.torch.load_file(folder / "all.safetensors")
assert set(loaded) == set(expected)
for key, want in expected.items():
    same(f"all.safetensors: {key}", loaded[key], want)
with safetensors.safe_open(folder / "all.safetensors", "pt") as f:
    assert f.metadata() == {"made by": "a test", "é": "\u2028"}, f.metadata()
for key, want in expected.items():
    if want.dtype == torch.bfloat16:
        continue
    array = np.load(folder / f"{sorted(expected).index(key)}.npy", allow_pickle=False)
    same(f"npy: {key}", torch.from_numpy(array), want)
net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
net.load_state_dict(torch.load(folder / "net.pth", weights_only=True), strict=True)
net.load_state_dict(safetensors.torch.load_file(folder / "net.safetensors"), strict=True)
assert net[0].weight.flatten().tolist() == list(range(18))
print(f"{len(expected)} tensors agree")
