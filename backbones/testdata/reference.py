"""The backbones' numbers, computed by torchvision and timm.

    python reference.py golden OUT.safetensors      the committed file, golden.safetensors
    python reference.py script OUT.pt               the committed module, script.pt
    python reference.py awkward OUT.pt              the committed module, awkward.pt
    python reference.py weights NAME OUT.pth        a state_dict with random values
    python reference.py module resnet18 HOW OUT.pt  torchvision's network in TorchScript; HOW: script or trace
    python reference.py cases FOLDER NAME/SIZE/IMAGES/MODE/POOL/LAYER_NORM/DIM/DTYPE...
                                                    one file a case, 0.safetensors and so on, whole gradients in it
    python reference.py check NAME FILE.pth FILE.safetensors WANT.pth
                                                    what we saved loads with strict=True and is bit-equal

Made with torch 2.11.0 (CPU), torchvision 0.26.0, timm 1.0.31, safetensors 0.8.0.

Weights and images are not stored: both sides draw them from the names, by the
rule in `draw` (in Go: package backbonetest), which is exact in float64. Networks are
made for images of SIZE pixels and given images of IMAGES pixels. A case holds the embeddings of two images and, for every tensor of the state_dict in
its order, two numbers: the dot product with a vector drawn from its name, and
the Euclidean norm; of the gradient for a parameter that is trained, of the value after the pass
for the rest. The loss is the embeddings' dot product with a drawn vector.
MODE is eval, train, or a way to freeze: frozen (the statistics of batch norms, the position embeddings)
or affine (batch norms altogether). 16 bits are autocast. ResNets run with channels last. In training batch statistics of two
images magnify the rounding of a different order of summation to 1e-4 of a
gradient and more: what is committed of that is computed in float64.
"""

import sys

import numpy as np
import timm
import torch
import torch.nn.functional as F
import torchvision
from safetensors.torch import load_file, save_file

torch.set_num_threads(2)
MASK = (1 << 64) - 1


def draw(name, *shape):
    """Uniform in [-1, 1), 24 bits: splitmix64 from the name's FNV-1a hash."""
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & MASK
    n = int(np.prod(shape)) if shape else 1
    with np.errstate(over="ignore"):
        z = np.uint64(h) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.float64) / 2**23 - 1).reshape(shape)


def value(name, shape):
    """The value of a weight: variances stay near 1 through the network."""
    u = draw(name, *shape)
    if name.endswith("running_mean") or name.endswith("bias"):
        return 0.1 * u
    if name.endswith("running_var"):
        return 1 + 0.5 * u
    if len(shape) == 1:
        return 0.5 + 0.1 * u
    if len(shape) == 3:
        return 0.5 * u
    return np.sqrt(3 / np.prod(shape[1:])) * u


def fill(model):
    for name, t in model.state_dict().items():
        if t.is_floating_point():
            t.copy_(torch.from_numpy(np.asarray(value(name, tuple(t.shape)), dtype=np.float32)))


class ConvNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList()
        for i in range(4):
            block = torch.nn.Module()
            block.conv = torch.nn.Conv2d(64 if i else 1, 64, 3, padding=1)
            block.norm = torch.nn.BatchNorm2d(64)
            self.blocks.append(block)

    def forward(self, x):
        for b in self.blocks:
            x = F.max_pool2d(F.relu(b.norm(b.conv(x))), 2)
        return x


def backbone(name, size, classes=0):
    if name == "convnet":
        return ConvNet()
    if name.startswith("resnet"):
        model = torchvision.models.get_model(name, num_classes=max(classes, 1))
        if not classes:
            model.fc = torch.nn.Identity()
        return model
    return timm.create_model(name, num_classes=classes, img_size=size, dynamic_img_size=True)


class Net(torch.nn.Module):
    """Our head, with our names, on a backbone of theirs."""

    def __init__(self, name, size, pool, layer_norm, dim):
        super().__init__()
        self.net, self.pool, self.layer_norm = backbone(name, size), pool, layer_norm
        self.tokens = not name.startswith("resnet") and name != "convnet"
        width = 64 if name == "convnet" else 512 if name in ("resnet18", "resnet34") else 2048 if name.startswith("resnet") else self.net.embed_dim
        self.head = torch.nn.Module()
        if pool == "gem":
            self.head.pool = torch.nn.Module()
            self.head.pool.p = torch.nn.Parameter(torch.full((1,), 3.0))
        if dim:
            self.head.projection = torch.nn.Linear(width, dim)
        self.dim = dim

    def features(self, x):
        n = self.net
        if isinstance(n, torchvision.models.ResNet):
            x = n.maxpool(n.relu(n.bn1(n.conv1(x))))
            return n.layer4(n.layer3(n.layer2(n.layer1(x))))
        return n.forward_features(x) if self.tokens else n(x)

    def forward(self, x):
        x = self.features(x)
        if self.tokens:
            k = self.net.num_prefix_tokens
            if self.pool == "cls":
                x = self.net.forward_head(x, pre_logits=True)
            elif self.pool == "avg":
                x = x[:, k:].mean(1)
            else:
                x = x[:, k:].amax(1)
        elif self.pool == "avg":
            x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        elif self.pool == "max":
            x = F.adaptive_max_pool2d(x, 1).flatten(1)
        else:
            p = self.head.pool.p
            x = F.avg_pool2d(x.clamp(min=1e-6).pow(p), x.shape[-2:]).pow(1 / p).flatten(1)
        if self.layer_norm:
            x = F.layer_norm(x, x.shape[-1:])
        if self.dim:
            x = self.head.projection(x)
        return F.normalize(x.float() if x.dtype.itemsize == 2 else x)

    def named(self):
        """(our name, tensor, whether it is a parameter), in state_dict order."""
        parameters = dict(self.named_parameters())
        for name, t in self.state_dict(keep_vars=True).items():
            yield name.removeprefix("net."), t, name in parameters


def case(name, size, images, mode, pool, layer_norm, dim, dtype, whole=False):
    net = Net(name, size, pool, layer_norm, dim)
    with torch.no_grad():
        for ours, t, _ in net.named():
            if t.is_floating_point():
                t.copy_(torch.from_numpy(np.asarray(value(ours, tuple(t.shape)), dtype=np.float32)))
    auto = torch.autocast("cpu", dtype=getattr(torch, dtype) if "16" in dtype else torch.bfloat16, enabled="16" in dtype)
    full = torch.float32 if "16" in dtype else getattr(torch, dtype)
    net.to(full).train(mode != "eval")
    if mode in ("frozen", "affine"):
        freeze(net, mode)
    channels = 1 if name == "convnet" else 3
    x = torch.from_numpy(draw("images", 2, channels, images, images)).to(full)
    if name.startswith("resnet"):  # as ours are by default; another order of summation is another rounding
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    with auto:
        y = net(x)
    (y * torch.from_numpy(draw("loss", *y.shape)).to(y.dtype)).sum().backward()
    rows, each = [], {}
    for ours, t, parameter in net.named():
        from_ = (t.grad if parameter and t.requires_grad else t).detach()
        v = from_.double().numpy()
        rows.append(((v * draw("check." + ours, *v.shape)).sum(), np.sqrt((v * v).sum())))
        if whole:
            each["each/" + ours] = from_.contiguous()
    return {"embeddings": y.detach(), "tensors": torch.tensor(rows, dtype=torch.float64), **each}


def freeze(net, mode):
    for m in net.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.eval()
            m.requires_grad_(mode == "frozen")
        elif hasattr(m, "pos_embed"):
            m.pos_embed.requires_grad_(False)


# What is committed: every family, head and mode, on images small enough.
GOLDEN = [
    ("convnet", 28, 28, "eval", "avg", 0, 64, "float32"),
    ("convnet", 28, 28, "train", "avg", 0, 64, "float64"),
    ("resnet18", 64, 80, "eval", "avg", 0, 0, "float32"),
    ("resnet18", 64, 64, "train", "avg", 0, 128, "float64"),
    ("resnet34", 64, 64, "train", "gem", 0, 128, "float64"),
    ("resnet50", 64, 64, "eval", "max", 1, 512, "float32"),
    ("resnet50", 96, 96, "train", "max", 1, 512, "float64"),
    ("vit_small_patch16_224", 224, 224, "train", "cls", 0, 0, "float32"),
    ("deit_small_patch16_224", 64, 64, "eval", "avg", 1, 64, "float32"),
    ("deit_small_distilled_patch16_224", 96, 96, "eval", "cls", 0, 384, "float32"),
    ("deit_small_distilled_patch16_224", 96, 128, "eval", "max", 0, 0, "float32"),
]


class Tiny(torch.nn.Module):
    """What script_test.go builds again from our layers: maps [n, 5, h, w]."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.last = torch.nn.Conv2d(4, 5, 1)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.conv(x))))


class Awkward(torch.nn.Module):
    """A head of its own, one weight under two names, and a batch norm that is traced in training."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3)
        self.first = torch.nn.Linear(3, 3, bias=False)
        self.second = torch.nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.second(torch.tanh(self.first(self.norm(x).amax((2, 3))))))


def write(path, cases):
    save_file({"/".join(map(str, c)) + "/" + key: t for c in cases for key, t in case(*c).items()}, path)


def main(verb, *args):
    if verb == "golden":
        write(args[0], GOLDEN)
    elif verb == "cases":
        for i, c in enumerate(args[1:]):
            w = c.split("/")
            save_file(case(w[0], int(w[1]), int(w[2]), w[3], w[4], int(w[5]), int(w[6]), w[7], whole=True), f"{args[0]}/{i}.safetensors")
    elif verb == "module":
        model = backbone(args[0], 224).to(memory_format=torch.channels_last)
        torch.jit.save(torch.jit.script(model) if args[1] == "script" else torch.jit.trace(model.eval(), torch.zeros(2, 3, 224, 224)), args[2])
    elif verb == "script":
        torch.manual_seed(0)
        torch.jit.save(torch.jit.script(Tiny()), args[0])
    elif verb == "awkward":
        torch.manual_seed(0)
        torch.jit.save(torch.jit.trace(Awkward(), torch.rand(2, 3, 6, 6), check_trace=False), args[0])
    elif verb == "weights":
        torch.manual_seed(0)
        model = backbone(args[0], 224, classes=10)
        with torch.no_grad():
            for t in model.state_dict().values():
                if t.is_floating_point():
                    t.normal_()
        torch.save(model.state_dict(), args[1])
    elif verb == "check":
        want = torch.load(args[3])
        for got in (torch.load(args[1]), load_file(args[2])):
            model = backbone(args[0], 224)
            model.load_state_dict(got, strict=True)
            for name, t in model.state_dict().items():
                assert t.dtype == want[name].dtype and torch.equal(t, want[name]), name


if __name__ == "__main__":
    main(*sys.argv[1:])
