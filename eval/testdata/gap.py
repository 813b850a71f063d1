"""The decomposability gap of average precision and its bounds, equations 6, 8
and 9 of ROADMAP (Ramzi et al., NeurIPS 2021), written term by term from the
paper in plain Python and float64. Eq. 6 averages over the batches that hold a
positive of the query.

    python gap.py > gap.json

writes embeddings of a few classes, batches of different sizes, and each query's
AP, AP within batches and bounds; worst8 and worst9 are the largest values of
the two bounds over all orders of the batches. Scores are far from each other and
from alpha and beta, so that float32 decides nothing otherwise.
"""

import itertools
import json
import math
import random
import sys


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def average_precision(ranking):
    """ranking: relevance, best first."""
    hits, total = 0, 0.0
    for place, relevant in enumerate(ranking, 1):
        if relevant:
            hits += 1
            total += hits / place
    return total / hits


def ranked(scores, relevant, members):
    return [relevant[j] for j in sorted(members, key=lambda j: -scores[j])]


def equation8(P, N):
    """P[b], N[b]: numbers of positives and negatives in batch b."""
    total = 0.0
    for b in range(len(P)):
        for j in range(1, P[b] + 1):
            total += (j + sum(P[:b])) / (j + sum(P[:b]) + sum(N[:b]))
    return 1 - total / sum(P)


def equation9(P, N, G, E):
    """G[b]: positives at alpha or above; E[b]: negatives above beta."""
    total = 0.0
    for b in range(len(P)):
        for j in range(1, G[b] + 1):
            total += (j + sum(G[:b])) / (j + sum(G[:b]) + sum(E[:b]))
        for j in range(1, P[b] - G[b] + 1):
            total += (j + G[b] + sum(P[:b])) / (j + G[b] + sum(P[:b]) + sum(N[:b]))
    return 1 - total / sum(P)


def query(i, rows, labels, batches, alpha, beta):
    scores = [cosine(rows[i], row) for row in rows]
    relevant = [label == labels[i] for label in labels]
    others = [j for j in range(len(rows)) if j != i]
    if not any(relevant[j] for j in others):
        return None
    members = [[j for j in batch if j != i] for batch in batches]
    within = [average_precision(ranked(scores, relevant, m)) for m in members if any(relevant[j] for j in m)]
    P = [sum(relevant[j] for j in m) for m in members]
    N = [sum(not relevant[j] for j in m) for m in members]
    G = [sum(relevant[j] and scores[j] >= alpha for j in m) for m in members]
    E = [sum(not relevant[j] and scores[j] > beta for j in m) for m in members]
    assert all(abs(scores[j] - bound) > 1e-4 for j in others for bound in (alpha, beta)), "a score at a bound"
    assert all(b - a > 1e-6 for a, b in itertools.pairwise(sorted(scores[j] for j in others))), "a tie"
    orders = [[list(part) for part in zip(*order)] for order in itertools.permutations(list(zip(P, N, G, E)))]
    return {
        "ap": average_precision(ranked(scores, relevant, others)),
        "in_batch": sum(within) / len(within),
        "bound8": equation8(P, N),
        "bound9": equation9(P, N, G, E),
        "worst8": max(equation8(P, N) for P, N, _, _ in orders),
        "worst9": max(equation9(*order) for order in orders),
        "good": sum(G),
        "other": sum(P) - sum(G),
    }


def case(seed, classes, size, sizes, dim, spread, alpha, beta):
    draw = random.Random(seed)
    while True:
        centres = [[draw.gauss(0, 1) for _ in range(dim)] for _ in range(classes)]
        labels = [c for c in range(classes) for _ in range(size)] + [classes]  # the last row is alone
        labels = labels[: sum(sizes) - 1] + [classes]
        rows = [[round(v + draw.gauss(0, spread), 4) for v in centres[c % classes]] for c in labels]
        order = draw.sample(range(len(rows)), len(rows))
        batches, at = [], 0
        for n in sizes:
            batches.append(sorted(order[at : at + n]))
            at += n
        try:
            queries = [query(i, rows, labels, batches, alpha, beta) for i in range(len(rows))]
        except AssertionError:
            continue
        return {"rows": rows, "labels": labels, "batches": batches, "alpha": alpha, "beta": beta, "queries": queries}


cases = [
    case(1, 3, 7, [6, 6, 6, 3], 4, 0.35, 0.9, 0.6),
    case(2, 4, 6, [5, 8, 4, 5, 3], 3, 0.5, 0.8, 0.3),
    case(3, 2, 10, [5, 5, 5, 5], 5, 0.6, 0.7, 0.5),
]
for c in cases:
    print(len(c["rows"]), sum(q["good"] for q in c["queries"] if q), sum(q["other"] for q in c["queries"] if q), file=sys.stderr)
print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
