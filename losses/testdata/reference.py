"""Golden values of every loss: a float64 NumPy program, written from the papers
and independent of the Go and C++ code that is tested against them.

    .venv/bin/python losses/testdata/reference.py            # writes reference.json
    .venv/bin/python losses/testdata/reference.py --peers    # and compares with pytorch-metric-learning

Every loss is written out query by query from its definition. Gradients are by
the complex step: a function of real numbers that is evaluated at x + ih has its
derivative in the imaginary part of the result, to the last digit, since nothing
is subtracted. Comparisons look at real parts. The blackbox losses define their
gradient themselves.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

H = 1e-30  # the complex step


# ---- scores -------------------------------------------------------------------------------------


def unit(x):
    return x / np.sqrt((x * x).sum(1, keepdims=True))


def sigma(z):
    """The logistic function, without overflow."""
    z = np.asarray(z, dtype=complex)
    e = np.exp(np.where(z.real >= 0, -z, z))
    return np.where(z.real >= 0, 1 / (1 + e), e / (1 + e))


def relu(z):
    return np.where(z.real > 0, z, 0)


class Problem:
    """Scores with, for each query, the columns of its positives and negatives."""

    def __init__(self, scores, positives, negatives):
        self.s = scores
        self.p = [np.array(p, dtype=int) for p in positives]
        self.n = [np.array(n, dtype=int) for n in negatives]
        self.queries = len(self.p)
        self.ranked = [i for i in range(self.queries) if len(self.p[i])]

    def pairs(self, i):
        return self.s[i, self.p[i]], self.s[i, self.n[i]]


def embedding_problem(query, labels, gallery, gallery_labels, normalize, self_entry, pair_loss):
    q = unit(query) if normalize else query
    own = gallery is None
    g = q if own else (unit(gallery) if normalize else gallery)
    glabels = labels if own else gallery_labels
    s = (q @ g.T).astype(complex)
    positives, negatives = [], []
    for i, y in enumerate(labels):
        never = {i} if own and (self_entry == "exclude" or pair_loss) else set()
        if normalize:  # a query's own row scores exactly 1, wherever it stands
            s[i, [j for j in range(len(g)) if np.array_equal(q[i], g[j])]] = 1
        positives.append([j for j, z in enumerate(glabels) if z == y and j not in never])
        negatives.append([j for j, z in enumerate(glabels) if z != y])
    return Problem(s, positives, negatives)


def score_problem(s, relevance, flatten):
    if flatten:
        s, relevance = s.reshape(1, -1), relevance.reshape(1, -1)
    rows = range(len(s))
    return Problem(s.astype(complex), [np.flatnonzero(relevance[i] == 1) for i in rows], [np.flatnonzero(relevance[i] == 0) for i in rows])


def mean(values, of):
    return sum(values) / len(of) if len(of) else 0j


# ---- rank losses --------------------------------------------------------------------------------


def ap_of(p, n, plus, minus):
    """1/|P| sum of rank+ / (rank+ + rank-), rank functions of a positive's index."""
    total = 0
    for k in range(len(p)):
        a, b = plus(p, k), minus(p, n, k)
        total += a / (a + b)
    return total / len(p)


def others(p, k):
    return np.delete(p, k)


def hard_plus(p, k):
    return 1 + np.count_nonzero(others(p, k).real >= p[k].real)


def ap(x):
    minus = lambda p, n, k: np.count_nonzero(n.real >= p[k].real)
    return mean([1 - ap_of(*x.pairs(i), hard_plus, minus) for i in x.ranked], x.ranked)


def smoothap(x, tau=0.01):
    plus = lambda p, k: 1 + sigma((others(p, k) - p[k]) / tau).sum()
    minus = lambda p, n, k: sigma((n - p[k]) / tau).sum()
    return mean([1 - ap_of(*x.pairs(i), plus, minus) for i in x.ranked], x.ranked)


def supap(x, tau=0.01, rho=100.0, epsilon=0.01, delta=None, start=0.5, offset=None, variant="paper"):
    released = variant == "released"
    if delta is None:
        delta = 0.05 if released else tau * np.log((1 - epsilon) / epsilon)
    if offset is None:
        offset = 1.44 if released else (1 / (1 + np.exp(-delta / tau)) + start)

    def h(t):
        if t.real < 0 or (released and t.real == 0):
            return sigma(t / tau)[()]
        if t.real <= delta:
            return sigma(t / tau)[()] + start
        return rho * (t - delta) + offset

    minus = lambda p, n, k: sum(h(t) for t in n - p[k])
    return mean([1 - ap_of(*x.pairs(i), hard_plus, minus) for i in x.ranked], x.ranked)


def calibration(x, alpha=0.9, beta=0.6, reduction="query"):
    if reduction == "nonzero":
        return hinges(x, alpha, beta, 0)
    total = 0
    for i in range(x.queries):
        p, n = x.pairs(i)
        total += relu(alpha - p).mean() if len(p) else 0
        total += relu(n - beta).mean() if len(n) else 0
    return total / x.queries


def hinges(x, floor, ceiling, least):
    pull = np.concatenate([relu(floor - x.pairs(i)[0]) for i in range(x.queries)])
    push = np.concatenate([relu(x.pairs(i)[1] - ceiling) for i in range(x.queries)])
    pull, push = pull[pull.real > least], push[push.real > least]
    return (pull.mean() if len(pull) else 0) + (push.mean() if len(push) else 0)


def roadmap(x, **o):
    weight = o.pop("lambda", 0.5)
    cal = {k: o.pop(k) for k in ("alpha", "beta", "reduction") if k in o}
    return (1 - weight) * supap(x, **o) + weight * calibration(x, **cal)


def roadmap_released(x, supap_weight=1.0, calibration_weight=1.0, alpha=0.9, beta=0.6, reduction="nonzero", variant="released", **o):
    return supap_weight * supap(x, variant=variant, **o) + calibration_weight * calibration(x, alpha, beta, reduction)


def triangle(z, centre, width):
    u = abs(z.real - centre) / width
    return np.where(u < 1, 1 - np.where(z.real > centre, 1, -1) * (z - centre) / width, 0)


def histogram_ap(x, place, centres, width):
    losses = []
    for i in x.ranked:
        p, n = (place(v) for v in x.pairs(i))
        both = np.concatenate([p, n])
        big, plus, total = 0, 0, 0
        for c in centres:
            h, hp = triangle(both, c, width).sum(), triangle(p, c, width).sum()
            big, plus = big + h, plus + hp
            total += plus * hp / big if big.real > 0 else 0
        losses.append(1 - total / len(p))
    return mean(losses, x.ranked)


def fastap(x, bins=10):
    return histogram_ap(x, lambda s: 2 - 2 * s, [l * 4 / bins for l in range(bins + 1)], 4 / bins)


def softbinap(x, bins=20):
    width = 2 / (bins - 1)
    clip = lambda s: np.where(s.real > 1, 1, np.where(s.real < -1, -1, s))  # flat beyond the outermost centres
    return histogram_ap(x, lambda s: -clip(s), [-1 + b * width for b in range(bins)], width)


def recallk(x, k=(1, 2, 4, 8, 16), tau=0.01, tau_rank=1.0, variant="paper"):
    losses = []
    for i in x.ranked:
        p, n = x.pairs(i)
        recall = 0
        for length in k:
            inside = 0
            for j in range(len(p)):
                rank = 1 + sigma((others(p, j) - p[j]) / tau).sum() + sigma((n - p[j]) / tau).sum()
                inside += sigma((length - rank) / tau_rank)[()]
            if variant == "released":
                recall += (inside if inside.real <= length else length) / min(length, len(p))
            else:
                recall += inside / len(p)
        losses.append(1 - recall / len(k))
    return mean(losses, x.ranked)


def ranks(s):
    """Descending ranks from 1, equal scores in the order of their indices."""
    r = np.empty(len(s))
    r[np.argsort(-s, kind="stable")] = np.arange(1, len(s) + 1)
    return r


def blackbox(x, lam, margin, each):
    """RaMBO, algorithm 1. each maps rk and rk+ to a positive's loss and its derivative by rk."""
    total, first_order = 0, 0
    for i in x.ranked:
        columns = np.sort(np.concatenate([x.p[i], x.n[i]]))
        positive = np.isin(columns, x.p[i])
        n = len(columns)
        s = x.s[i, columns].real + np.where(positive, -margin / 2, margin / 2)
        rk, plus = ranks(s), ranks(s[positive])
        loss, slope = each(rk[positive], plus)
        total += loss.mean() / len(x.ranked)
        g = np.zeros(n)
        g[positive] = n * slope / positive.sum() / len(x.ranked)
        ds = -(rk / n - ranks(s + lam * g) / n) / lam
        first_order += (ds * (x.s[i, columns] - x.s[i, columns].real)).sum()  # carries the gradient, adds nothing to the value
    return total + first_order


def blackboxap(x, margin=0.02, **o):
    return blackbox(x, o.get("lambda", 4.0), margin, lambda rk, plus: (1 - plus / rk, plus / rk**2))


def blackboxrecall(x, margin=0.02, weight="log", **o):
    def each(rk, plus):
        r = rk - plus
        if weight == "log":
            return np.log1p(r), 1 / (1 + r)
        return np.log1p(np.log1p(r)), 1 / (1 + np.log1p(r)) / (1 + r)

    return blackbox(x, o.get("lambda", 4.0), margin, each)


# ---- pairs and triplets -------------------------------------------------------------------------


def contrastive(x, positive_margin=1.0, negative_margin=0.5):
    return hinges(x, positive_margin, negative_margin, 1e-6)


def triplet(x, margin=0.1, mining="all"):
    terms = []
    for i in range(x.queries):
        p, n = x.pairs(i)
        if mining in ("hard", "easy_positive_hardest_negative") and len(p) and len(n):
            p = p[[np.argmin(p.real) if mining == "hard" else np.argmax(p.real)]]
            n = n[[np.argmax(n.real)]]
        for a in p:
            for b in n:
                if mining == "semihard" and not 0 < (a - b).real < margin:
                    continue
                if (b - a + margin).real > 0:
                    terms.append(b - a + margin)
    return mean(terms, terms)


def multisimilarity(x, alpha=2.0, beta=50.0, base=0.5, epsilon=0.1):
    total = 0
    for i in range(x.queries):
        p, n = x.pairs(i)
        if len(p) == 0 or len(n) == 0:
            continue
        hard_p, hard_n = p[p.real - epsilon < n.real.max()], n[n.real + epsilon > p.real.min()]
        total += np.log(1 + np.exp(-alpha * (hard_p - base)).sum()) / alpha + np.log(1 + np.exp(beta * (hard_n - base)).sum()) / beta
    return total / x.queries


# ---- proxies ------------------------------------------------------------------------------------


def softmax_loss(x, logits, over_others=False):
    total = 0
    for i in range(x.queries):
        own = logits(x.s[i, x.p[i][0]])
        all_ = logits(x.s[i, x.n[i]]) if over_others else logits(x.s[i])
        top = all_.real.max()
        total += top + np.log(np.exp(all_ - top).sum()) - own
    return total / x.queries


def proxynca(x, scale=1.0):
    return softmax_loss(x, lambda s: -scale * (2 - 2 * s), over_others=True)


def proxyncaplus(x, temperature=1 / 9):
    return softmax_loss(x, lambda s: -(2 - 2 * s) / temperature)


def normsoftmax(x, temperature=0.05):
    return softmax_loss(x, lambda s: s / temperature)


LOSSES = {f.__name__: f for f in (ap, smoothap, supap, calibration, roadmap, roadmap_released, fastap, softbinap, recallk, blackboxap, blackboxrecall, contrastive, triplet, multisimilarity, proxynca, normsoftmax)}
LOSSES["proxynca++"] = proxyncaplus
LOSSES["crossentropy"] = lambda x, temperature=1.0: softmax_loss(x, lambda s: s / temperature)
PAIRS = {"contrastive", "triplet", "multisimilarity"}
PROXIES = {"proxynca", "proxynca++", "normsoftmax", "crossentropy"}


# ---- cases --------------------------------------------------------------------------------------


def inputs():
    rng = np.random.default_rng(20210111)
    labels = np.repeat([3, -1, 2**62, 7, 11, 12], [5, 4, 4, 3, 1, 1])
    centres = rng.normal(size=(6, 6))
    random = centres[np.repeat(np.arange(6), [5, 4, 4, 3, 1, 1])] + 0.9 * rng.normal(size=(18, 6))
    order = rng.permutation(18)
    random, labels = random[order] * rng.uniform(0.2, 5, size=(18, 1)), labels[order]
    gallery = centres[np.repeat(np.arange(6), 4)[:22]] + 0.9 * rng.normal(size=(22, 6))
    gallery_labels = np.array([3, -1, 2**62, 7, 11, 99])[np.repeat(np.arange(6), 4)[:22]]
    ties = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 0], [1, 1, 0], [-1, 0, 0]], dtype=float)
    tied_labels = np.array([0, 0, 0, 1, 1, 1, 2, 2, 3, 4])
    proxies = centres + 0.5 * rng.normal(size=(6, 6))
    scores = rng.normal(size=(4, 12)) * 0.4
    scores[0, 3] = scores[0, 5] = scores[0, 8]
    relevance = (rng.uniform(size=(4, 12)) < 0.3).astype(int)
    relevance[3] = 0
    return {
        "random": {"query": random, "query_labels": labels},
        "gallery": {"query": random[:9], "query_labels": labels[:9], "gallery": gallery, "gallery_labels": gallery_labels},
        "ties": {"query": ties, "query_labels": tied_labels},
        "one_class": {"query": random[:6], "query_labels": np.zeros(6, dtype=int)},
        "all_lone": {"query": random[:6], "query_labels": np.arange(6)},
        "proxies": {"query": random, "query_labels": labels, "gallery": proxies, "gallery_labels": np.array([3, -1, 2**62, 7, 11, 12])},
        "scores": {"scores": scores, "relevance": relevance},
    }


# What each loss is evaluated with besides its defaults.
SETTINGS = {
    "smoothap": [{"tau": 0.1}],
    "supap": [
        {"tau": 0.05, "rho": 10, "epsilon": 0.1},
        {"delta": 0.2, "offset": 1.2, "tau": 0.03},
        {"variant": "released"},
        {"variant": "released", "delta": 0.1},
        {"start": 0.0, "offset": 1.0},
    ],
    "calibration": [{"alpha": 0.7, "beta": 0.2}, {"reduction": "nonzero"}],
    "roadmap": [{"lambda": 0.3, "tau": 0.1, "alpha": 0.8}],
    "fastap": [{"bins": 4}, {"bins": 25}],
    "softbinap": [{"bins": 7}],
    "recallk": [{"k": [1, 3], "tau": 0.1}, {"variant": "released", "tau": 0.1, "tau_rank": 0.5}],
    "blackboxap": [{"lambda": 0.5, "margin": 0.1}],
    "blackboxrecall": [{"weight": "loglog"}, {"lambda": 20, "margin": 0}],
    "contrastive": [{"positive_margin": 0.8, "negative_margin": 0.1}],
    "triplet": [{"mining": m, "margin": 0.2} for m in ("all", "semihard", "hard", "easy_positive_hardest_negative")],
    "multisimilarity": [{"alpha": 3, "beta": 20, "base": 0.4, "epsilon": 0.3}],
    "proxynca": [{"scale": 3}],
    "proxynca++": [{"temperature": 0.5}],
    "normsoftmax": [{"temperature": 0.3}],
    "crossentropy": [{"temperature": 2.5}, {"normalize": True}],
}


def evaluate(name, data, settings):
    """The value and the gradients of one case."""
    o = dict(settings)
    normalize = o.pop("normalize", name != "crossentropy")
    self_entry = o.pop("self", "include" if name == "roadmap_released" else "exclude")
    flatten = o.pop("flatten", False)

    def problem(q, g):
        if "scores" in data:
            return score_problem(q, data["relevance"], flatten)
        return embedding_problem(q, data["query_labels"], g, data.get("gallery_labels"), normalize, self_entry, name in PAIRS)

    def value(q, g):
        return LOSSES[name](problem(q, g), **o)

    def gradient(at, f):
        out = np.zeros(at.shape)
        for index in np.ndindex(at.shape):
            moved = at.astype(complex)
            moved[index] += 1j * H
            out[index] = np.imag(f(moved)) / H
        return out

    q = data["scores"] if "scores" in data else data["query"]
    g = data.get("gallery")
    x = problem(q, g)
    case = {
        "value": float(np.real(value(q, g))),
        "queries": x.queries,
        "lone": x.queries - len(x.ranked),
        "positives": int(sum(len(p) for p in x.p)),
    }
    if name != "ap":
        case["grad"] = gradient(q, lambda v: value(v, g)).tolist()
        if g is not None:
            case["grad_gallery"] = gradient(g, lambda v: value(q, v)).tolist()
    return case


# Inputs with exact ties sit on the kinks of these losses, where a derivative is
# a convention: their values are compared there and not their gradients.
KINKS = {"fastap", "softbinap", "supap", "roadmap", "roadmap_released", "calibration", "contrastive", "triplet", "multisimilarity"}


def cases(data):
    out = []
    for name in LOSSES:
        for settings in [{}] + SETTINGS.get(name, []):
            if name in PROXIES:
                where = ["proxies"]
            else:
                where = ["random", "gallery", "ties", "one_class", "all_lone", "scores"]
            for at in where:
                variants = [settings]
                if at in ("random", "ties") and name not in PAIRS and settings == {} and name != "roadmap_released":
                    variants.append({"self": "include"})
                if at == "scores":
                    variants.append({**settings, "flatten": True})
                for o in variants:
                    case = evaluate(name, data[at], o)
                    if at == "ties" and name in KINKS:
                        case.pop("grad", None)
                    out.append({"loss": name, "set": o, "input": at, **case})
    return out


# ---- peers --------------------------------------------------------------------------------------


def peers(data):
    """Values of pytorch-metric-learning where its definition is ours."""
    import torch
    from pytorch_metric_learning import distances, losses, miners

    torch.set_default_dtype(torch.float64)
    cosine = distances.CosineSimilarity()
    q, labels = torch.tensor(data["random"]["query"]), torch.tensor(data["random"]["query_labels"])
    trip = losses.TripletMarginLoss(margin=0.2, distance=cosine)
    mined = lambda miner, loss: loss(q, labels, miner(q, labels))
    theirs = {
        ("contrastive", ()): losses.ContrastiveLoss(pos_margin=1, neg_margin=0.5, distance=cosine)(q, labels),
        ("triplet", (("mining", "all"), ("margin", 0.2))): trip(q, labels),
        ("triplet", (("mining", "semihard"), ("margin", 0.2))): mined(miners.TripletMarginMiner(margin=0.2, distance=cosine, type_of_triplets="semihard"), trip),
        ("triplet", (("mining", "hard"), ("margin", 0.2))): mined(miners.BatchHardMiner(distance=cosine), trip),
        ("triplet", (("mining", "easy_positive_hardest_negative"), ("margin", 0.2))): mined(
            miners.BatchEasyHardMiner(pos_strategy="easy", neg_strategy="hard", distance=cosine), trip
        ),
        ("multisimilarity", ()): losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5)(q, labels, miners.MultiSimilarityMiner(epsilon=0.1, distance=cosine)(q, labels)),
        ("fastap", ()): losses.FastAPLoss(num_bins=10)(q, labels),
    }
    p = data["proxies"]
    dense = {int(y): i for i, y in enumerate(p["gallery_labels"])}
    targets = torch.tensor([dense[int(y)] for y in p["query_labels"]])
    soft = losses.NormalizedSoftmaxLoss(num_classes=6, embedding_size=6, temperature=0.05)
    soft.W.data = torch.tensor(p["gallery"]).T.contiguous()
    theirs["normsoftmax", ()] = soft(torch.nn.functional.normalize(q), targets)
    plus = losses.ProxyNCALoss(num_classes=6, embedding_size=6, softmax_scale=9)
    plus.proxies.data = torch.tensor(p["gallery"])
    theirs["proxynca++", ()] = plus(q, targets)
    return {key: float(v.detach()) for key, v in theirs.items()}


def compare(document, found):
    worst = 0.0
    for (name, settings), theirs in found.items():
        at = "proxies" if name in PROXIES else "random"
        ours = [c for c in document["cases"] if c["loss"] == name and c["input"] == at and c["set"] == dict(settings)]
        assert len(ours) == 1, (name, settings)
        gap = abs(ours[0]["value"] - theirs)
        worst = max(worst, gap)
        print(f"{name:16} {dict(settings)!s:60} ours {ours[0]['value']:.15f} theirs {theirs:.15f} apart {gap:.1e}")
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", action="store_true")
    args = parser.parse_args()
    data = inputs()
    document = {
        "made_by": f"reference.py, Python {sys.version.split()[0]}, NumPy {np.__version__}",
        "inputs": {name: {k: v.tolist() for k, v in d.items()} for name, d in data.items()},
        "cases": cases(data),
    }
    out = pathlib.Path(__file__).with_name("reference.json")
    if args.peers:
        worst = compare(document, peers(data))
        if worst > 1e-9:
            sys.exit(f"a peer is {worst:g} away")
        return
    out.write_text(json.dumps(document, separators=(",", ":")).replace('{"loss"', '\n{"loss"') + "\n")
    print(f"{len(document['cases'])} cases in {out.name}")


if __name__ == "__main__":
    main()
