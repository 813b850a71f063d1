"""Writes testdata/golden: files as NumPy, safetensors and PyTorch write them,
and expected.json, which says what every tensor in them is.

    python make_goldens.py

Made with numpy 2.4.6, safetensors 0.8.0 and torch 2.11.0 (CPython 3.11). Run
it only to add files: the committed ones are what the reader must go on reading.
"""

import argparse
import collections
import json
import pathlib
import pickle

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

here = pathlib.Path(__file__).parent
golden = here / "golden"
golden.mkdir(exist_ok=True)
expected = {}


def describe(x):
    """dtype, shape and the little-endian row-major bytes in hexadecimal."""
    if isinstance(x, torch.Tensor):
        x = x.detach().contiguous()
        name = str(x.dtype).removeprefix("torch.")
        raw = bytes(x.reshape(-1).view(torch.uint8).numpy()) if x.numel() else b""
        return {"dtype": name, "shape": list(x.shape), "bytes": raw.hex()}
    little = np.asarray(x)
    little = little.astype(little.dtype.newbyteorder("<"), order="C")
    return {"dtype": little.dtype.name, "shape": list(little.shape), "bytes": little.tobytes().hex()}


def expect(name, tensors):
    expected[name] = {k: describe(v) for k, v in tensors.items()}


def npy(name, array, version=None):
    with open(golden / name, "wb") as f:
        np.lib.format.write_array(f, array, version=version)
    expect(name, {"tensor": array})


grid = np.arange(12).reshape(3, 4)
for code in "b1 u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8".split():
    npy(f"c_{code}.npy", (grid - (0 if code[0] in "bu" else 6)).astype(code))
for code in ">f2 >f4 >f8 >i2 >i8".split():
    npy(f"big_{code[1:]}.npy", grid.astype(code))
npy("fortran_2d.npy", np.asfortranarray(grid.astype("f4")))
npy("fortran_3d.npy", np.asfortranarray(np.arange(24).reshape(2, 3, 4).astype("i2")))
npy("fortran_big.npy", np.asfortranarray(grid.astype(">f8")))
npy("scalar.npy", np.array(1.5))
npy("vector.npy", np.arange(5))
npy("empty.npy", np.zeros((0, 4), "f4"))
npy("version2.npy", grid.astype("f4"), (2, 0))
npy("version3.npy", grid.astype("f4"), (3, 0))

torch.manual_seed(0)
every = {
    "bool": torch.tensor([True, False, True]),
    "u8": torch.arange(3, dtype=torch.uint8),
    "i8": torch.arange(-1, 2, dtype=torch.int8),
    "i16": torch.arange(-1, 2, dtype=torch.int16),
    "i32": torch.arange(-1, 2, dtype=torch.int32),
    "i64": torch.arange(-1, 2) * 2**40,
    "f16": torch.tensor([0.1, -65504.0, 6e-8, float("inf")], dtype=torch.float16),
    "bf16": torch.tensor([0.1, -3e38, 1e-40, float("-inf")], dtype=torch.bfloat16),
    "f32": torch.randn(2, 3, 4, 5),
    "f64": torch.randn(2, 3, dtype=torch.float64),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
}
unsigned = {
    "u16": torch.arange(3).to(torch.uint16),
    "u32": torch.arange(3).to(torch.uint32),
    "u64": torch.arange(3).to(torch.uint64),
}


def stfile(name, tensors, metadata):
    (golden / name).write_bytes(safetensors.torch.save(tensors, metadata))
    expect(name, tensors)


stfile("every.safetensors", every | unsigned, {"format": "pt"})
stfile("names.safetensors", {'quote"\\ \n\té\u2028<&>': torch.ones(1), "": torch.zeros(2)}, None)
stfile("none.safetensors", {}, None)
(golden / "embeddings.safetensors").write_bytes(
    safetensors.numpy.save({"embeddings": grid.astype("f2"), "labels": np.array([7, -1, 7])}))
expect("embeddings.safetensors", {"embeddings": grid.astype("f2"), "labels": np.array([7, -1, 7])})
stfile("float8.safetensors", {"x": torch.ones(4).to(torch.float8_e4m3fn)}, None)


def pth(name, value, tensors, **options):
    torch.save(value, golden / name, **options)
    expect(name, tensors)


pth("every.pth", collections.OrderedDict(every), every)
pth("unsigned.pth", dict(unsigned), unsigned)
pth("protocol4.pth", dict(every), every, pickle_protocol=4)
pth("bare.pth", every["f32"], {"tensor": every["f32"]})
pth("tuple.pth", (every["f32"], [every["i64"]]), {"0": every["f32"], "1.0": every["i64"]})

base = torch.arange(24.0).reshape(4, 6)
views = {
    "whole": base,
    "transposed": base.t(),
    "row": base[2],
    "column": base[:, 3],
    "window": base[1:3, 2:5],
    "steps": base[::2, ::3],
    "permuted": torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
    "expanded": torch.tensor([1.0, 2.0]).reshape(2, 1).expand(2, 3),
}
pth("views.pth", views, views)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 3, bias=False)
        self.norm = torch.nn.BatchNorm2d(2)
        self.sizes = [1, 2]

    def forward(self, x):
        return self.norm(self.conv(x)) + self.sizes[0]


net = Net().eval()
net.conv.weight.data.normal_()
state = net.state_dict()
pth("state_dict.pth", state, state)
checkpoint = {
    "epoch": 3,
    "arguments": argparse.Namespace(lr=0.1, name="x", nothing=None, nested={"a": (1, 2.5)}),
    "net": state,
    "optimizer": {"state": {0: {"step": 5, "exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]},
    "parameter": torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)),
    "best": np.float64(0.25),
    "random": torch.get_rng_state()[:8].clone(),
    "when": {1, 2},
    "huge": 2**100,
}
flat = {"net." + k: v for k, v in state.items()} | {
    "optimizer.state.0.exp_avg": torch.ones(2),
    "parameter": checkpoint["parameter"],
    "random": checkpoint["random"],
}
pth("checkpoint.pth", {k: v for k, v in checkpoint.items()}, flat)
torch.save(net, golden / "module.pth")
expect("module.pth", state)
torch.save({"x": torch.ones(2, dtype=torch.complex64), "y": torch.ones(1)}, golden / "complex.pth")
expected["complex.pth"] = {"y": describe(torch.ones(1))}
pth("legacy.pth", state, state, _use_new_zipfile_serialization=False)
torch.jit.script(net).save(golden / "script.pt")
expect("script.pt", state)
torch.jit.trace(net, torch.zeros(1, 1, 5, 5)).save(golden / "trace.pt")
expect("trace.pt", state)

plain = {
    "none": None, "yes": True, "no": False, "small": 5, "byte": 255, "word": 65535, "int": -70000, "long": -(2**40), "big": 2**70,
    "minus": -(2**70), "float": 0.1, "text": "héllo", "bytes": b"\x00\xff", "tuple": (1, (2,), (3, 4), (5, 6, 7, 8), ()),
    "list": [1, [2, [3]]], "dict": {1: "a", "b": {}}, "set": {4}, "shared": None,
}
plain["shared"] = [plain["list"], plain["list"]]
for protocol in range(6):
    value = dict(plain)
    if protocol == 0:  # writes text with escapes, which the reader leaves alone
        value["text"] = "hello"
        del value["bytes"]
    (golden / f"protocol{protocol}.pkl").write_bytes(pickle.dumps(value, protocol))

(golden / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
