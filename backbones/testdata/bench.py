"""The settings of bench_test.go, timed in PyTorch eager.

    python bench.py VERB PATTERN [SECONDS]     VERB: Step or Embed

prints lines as `go test -bench` does, for the settings whose name contains
PATTERN, each run for about SECONDS (default 1, at least one pass).
"""

import os
import resource
import sys
import time

import torch
import torch.nn.functional as F

from reference import Net, draw

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 2)))

STEP = [
    ("convnet", 128, 28, "float32", "rows"),
    ("convnet", 128, 28, "float32", "channels_last"),
    ("resnet18", 64, 224, "float32", "rows"),
    ("resnet18", 64, 224, "float32", "channels_last"),
    ("resnet18", 64, 224, "bfloat16", "channels_last"),
    ("resnet50", 32, 224, "float32", "rows"),
    ("resnet50", 32, 224, "float32", "channels_last"),
    ("resnet50", 32, 224, "bfloat16", "rows"),
    ("resnet50", 32, 224, "bfloat16", "channels_last"),
    ("deit_small_patch16_224", 32, 224, "float32", "rows"),
    ("deit_small_patch16_224", 32, 224, "bfloat16", "rows"),
]
EMBED = [
    ("convnet", 128, 28, "float32", "rows"),
    ("convnet", 128, 28, "float32", "channels_last"),
    ("resnet50", 64, 224, "float32", "rows"),
    ("resnet50", 64, 224, "float32", "channels_last"),
    ("resnet50", 64, 224, "float32", "optimize_for_inference"),
    ("resnet50", 64, 224, "bfloat16", "channels_last"),
    ("resnet50", 64, 224, "bfloat16", "optimize_for_inference"),
    ("deit_small_patch16_224", 64, 224, "float32", "rows"),
    ("deit_small_patch16_224", 64, 224, "bfloat16", "rows"),
]


def build(name, batch, size, layout):
    net = Net(name, size, "cls" if "vit" in name or "deit" in name else "avg", 0, 64)
    x = torch.from_numpy(draw("images", batch, 1 if name == "convnet" else 3, size, size)).float()
    if layout == "channels_last":
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return net, x


def step(name, batch, size, dtype, layout):
    net, x = build(name, batch, size, layout)
    optimizer = torch.optim.Adam(net.parameters(), fused=True)

    def run():
        with torch.autocast("cpu", dtype=getattr(torch, dtype), enabled=dtype != "float32"):
            y = net(x)
        optimizer.zero_grad()
        y = y.float()
        (y @ y.T).square().mean().backward()
        optimizer.step()

    return run


def embed(name, batch, size, dtype, layout):
    """Eager under autocast; optimize_for_inference: traced, and in bfloat16 channels last."""
    traced = layout == "optimize_for_inference"
    net, x = build(name, batch, size, "channels_last" if traced and dtype != "float32" else layout)
    net.eval()
    auto = torch.autocast("cpu", dtype=getattr(torch, dtype), enabled=dtype != "float32", cache_enabled=not traced)
    if traced:
        with auto, torch.no_grad():
            net = torch.jit.optimize_for_inference(torch.jit.trace(net, x))
            net(x)
            net(x)

    def run():
        with torch.inference_mode(), auto:
            net(x).float().numpy()

    return run


def main(verb, pattern, seconds="1"):
    for c in {"Step": STEP, "Embed": EMBED}[verb]:
        name = "/".join(map(str, c))
        if pattern not in name:
            continue
        run = {"Step": step, "Embed": embed}[verb](*c)
        run()
        n, start, cpu = 0, time.perf_counter(), time.process_time()
        while n == 0 or time.perf_counter() - start < float(seconds):
            run()
            n += 1
        clock, cpu = time.perf_counter() - start, time.process_time() - cpu
        print(f"Benchmark{verb}/{name}-python {n} {clock / n * 1e9:.0f} ns/op {cpu / n * 1e9:.0f} cpu-ns/op "
              f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6:.0f} peak-MB", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
