"""Steps of PyTorch's optimisers, for optim_test.go.

    python reference.py     writes reference.json

Made with torch 2.11.0. Two parameters go five steps along given gradients, the
second without one in the third; learning rates of 24 steps of the schedules;
gradients clipped; a moving average of weights; a scaled loss whose gradient
overflows now and then.
"""

import json

import torch

W = [[0.5, -1.25, 2.0, 0.125], [1.0, -0.75]]
GRADS = [[0.1 * (i + 1) * (-1) ** i, -0.3 / (i + 1), 0.7 - 0.2 * i, 0.01] for i in range(5)]
GRADS2 = [[0.2 - 0.1 * i, 0.4 * (-1) ** i] for i in range(5)]
FACTORS = [1, 1, 0.5, 0.5, 0.1]

CASES = {
    "adam": (torch.optim.Adam, dict(lr=0.1)),
    "adam weight_decay=0.1 eps=0.001 beta1=0.8 beta2=0.99": (torch.optim.Adam, dict(lr=0.1, weight_decay=0.1, eps=0.001, betas=(0.8, 0.99))),
    "adam amsgrad=true": (torch.optim.Adam, dict(lr=0.1, amsgrad=True)),
    "adamw": (torch.optim.AdamW, dict(lr=0.1, weight_decay=0.01)),
    "adamw weight_decay=0.3": (torch.optim.AdamW, dict(lr=0.1, weight_decay=0.3)),
    "sgd": (torch.optim.SGD, dict(lr=0.1)),
    "sgd momentum=0.9 weight_decay=0.05": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.05)),
    "sgd momentum=0.9 nesterov=true": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
}


def steps(cls, options):
    params = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in W]
    opt = cls([{"params": params[:1]}, {"params": params[1:], "lr": options["lr"] * 2, "weight_decay": 0}], **options)
    rates = [g["lr"] for g in opt.param_groups]
    out = []
    for i in range(5):
        params[0].grad = torch.tensor(GRADS[i], dtype=torch.float64)
        params[1].grad = None if i == 2 else torch.tensor(GRADS2[i], dtype=torch.float64)
        for g, lr in zip(opt.param_groups, rates):
            g["lr"] = lr * FACTORS[i]
        opt.step()
        out.append([p.tolist() for p in params])
    return out


def schedule(make, n):
    opt = torch.optim.SGD([torch.zeros(1)], lr=1)
    s = make(opt)
    out = []
    for _ in range(n):
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        s.step()
    return out


def warm(opt):
    """Four steps: 1/5, 2/5, 3/5, 4/5, then 1."""
    return torch.optim.lr_scheduler.LinearLR(opt, start_factor=0.2, total_iters=4)


def clipped(max_norm):
    params = [torch.zeros(len(w), dtype=torch.float64, requires_grad=True) for w in W]
    for p, g in zip(params, (GRADS[0], GRADS2[0])):
        p.grad = torch.tensor(g, dtype=torch.float64)
    norm = torch.nn.utils.clip_grad_norm_(params, max_norm)
    return {"max": max_norm, "norm": norm.item(), "gradients": [p.grad.tolist() for p in params]}


def average(decay):
    """A weight and a buffer that move, and the average after each move."""
    net = torch.nn.Module()
    net.weight = torch.nn.Parameter(torch.tensor(W[0], dtype=torch.float64))
    net.register_buffer("seen", torch.tensor(0.0, dtype=torch.float64))
    mean = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(decay))
    mean.update_parameters(net)  # the first one copies
    out = []
    for g in GRADS:
        with torch.no_grad():
            net.weight += torch.tensor(g, dtype=torch.float64)
            net.seen += 1
        mean.update_parameters(net)
        out.append(mean.module.weight.tolist() + [mean.module.seen.item()])
    return {"decay": decay, "steps": out}


OVERFLOWS = [3, 4, 1500]


def scaler(n):
    """SGD on slope·w; the scale and the weight after each of n steps in runs of equal scale."""
    w = torch.ones(1, requires_grad=True)
    opt, scaler = torch.optim.SGD([w], lr=2**-12), torch.amp.GradScaler("cpu")
    out = []
    for i in range(n):
        opt.zero_grad()
        scaler.scale((w * (float("inf") if i in OVERFLOWS else 3.0)).sum()).backward()
        scaler.step(opt)
        scaler.update()
        if i in OVERFLOWS or i in (0, 2, 5) or i >= n - 20 or i % 500 == 0:
            out.append([i, scaler.get_scale(), w.item()])
    return {"overflows": OVERFLOWS, "steps": n, "seen": out}


json.dump(
    {
        "torch": torch.__version__,
        "start": W,
        "gradients": [GRADS, GRADS2],
        "factors": FACTORS,
        "steps": {name: steps(*c) for name, c in CASES.items()},
        "schedules": {
            "multistep 2,5": schedule(lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [6, 15]), 24),
            "cosine": schedule(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 24, eta_min=0.1), 24),
            "constant": schedule(lambda o: torch.optim.lr_scheduler.ConstantLR(o, 1), 24),
            "constant warm": schedule(warm, 24),
            "multistep warm": schedule(
                lambda o: torch.optim.lr_scheduler.ChainedScheduler([warm(o), torch.optim.lr_scheduler.MultiStepLR(o, [6, 15])]), 24),
            "cosine warm": schedule(
                lambda o: torch.optim.lr_scheduler.SequentialLR(o, [warm(o), torch.optim.lr_scheduler.CosineAnnealingLR(o, 20)], [4]), 24),
        },
        "clipped": [clipped(m) for m in (0.1, 0.5, 100.0)],
        "average": average(0.9),
        "scaler": scaler(4000),
    },
    open("reference.json", "w"),
    indent=1,
)
