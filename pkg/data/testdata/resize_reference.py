"""Foreign numbers for the transform's test: Pillow's triangle filter and
torchvision's resize and centre crop, on pictures made by a formula.

    python pkg/data/testdata/resize_reference.py > pkg/data/testdata/resize_reference.json

Needs pillow, numpy and torchvision; the versions used are in the output.
"""

import json
import sys

import numpy as np
import PIL
import torchvision
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, Resize


def picture(width, height, channels):
    """The test computes the same: integers only."""
    y, x, c = np.mgrid[:height, :width, :channels]
    v = (x * x * 3 + y * 29 + x * y * (c + 1) + 40 * c) % 256
    return Image.fromarray(v[..., 0].astype(np.uint8) if channels == 1 else v.astype(np.uint8))


def case(width, height, channels, resize, crop):
    size = resize if crop else (resize, resize)
    steps = [Resize(size)] if resize else []
    steps += [CenterCrop(crop)] if crop else []
    out = np.asarray(Compose(steps)(picture(width, height, channels)))
    return {
        "width": width, "height": height, "channels": channels, "resize": resize, "crop": crop,
        "pixels": out.reshape(-1).tolist(),
    }


def main():
    cases = [
        case(105, 105, 1, 28, 0),  # Omniglot's sizes
        case(37, 23, 3, 16, 0),
        case(9, 7, 3, 14, 0),  # larger
        case(50, 33, 3, 24, 20),  # landscape: 24 high, 36 wide; even margins
        case(33, 50, 3, 25, 20),  # portrait; odd margins
        case(31, 31, 1, 0, 20),  # crop alone; odd margins
        case(33, 33, 1, 0, 20),
    ]
    json.dump(
        {
            "command": "python pkg/data/testdata/resize_reference.py",
            "versions": {"pillow": PIL.__version__, "torchvision": torchvision.__version__},
            "cases": cases,
        },
        sys.stdout,
    )
    print()


if __name__ == "__main__":
    main()
