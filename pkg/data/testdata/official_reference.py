"""Writes small files in the formats of official annotations, as the programs
that made those write them: cars_annos.mat (SciPy's savemat, compressed and
not), retrieval-SfM-120k.pkl (pickle).

    python official_reference.py       # numpy 2.4.6, scipy 1.17.1, Python 3.11
"""

import pathlib
import pickle

import numpy as np
import scipy.io

here = pathlib.Path(__file__).parent
fields = ["relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test"]
rows = [
    ("car_ims/000001.jpg", 112, 7, 853, 717, 1, 0),
    ("car_ims/000002.jpg", 48, 24, 441, 202, 1, 1),
    ("car_ims/000003.jpg", 7, 4, 277, 180, 99, 0),
    ("car_ims/000004.jpg", 33, 50, 197, 300, 2, 1),
]
annotations = np.zeros((1, len(rows)), dtype=[(f, object) for f in fields])
for i, row in enumerate(rows):
    for f, v in zip(fields, row):
        annotations[0, i][f] = v if isinstance(v, str) else np.array([[v]], dtype=np.uint8 if f in ("class", "test") else np.uint16)
class_names = np.empty((1, 2), dtype=object)
class_names[0, 0], class_names[0, 1] = "AM General Hummer SUV 2000", "Škoda Octavia 2012"
for name, compressed in [("cars_annos.mat", True), ("cars_annos_plain.mat", False)]:
    scipy.io.savemat(here / name, {"annotations": annotations, "class_names": class_names, "x": np.array([[1.5, -2.0]])}, do_compression=compressed)

part = lambda cids, cluster: {"cids": cids, "cluster": cluster, "qidxs": [0], "pidxs": [1]}
db = {
    "train": part(["0123456789abcdef", "ffffffffff000102", "ffffffffff000103"], [4, 4, 9]),
    "val": part(["0a0b0c0d0e0f1011"], [4]),
}
with open(here / "sfm.pkl", "wb") as f:
    pickle.dump(db, f, protocol=2)
