"""Draw the picture on the first page: top halves of test digits, completed by a model in several ways.

    python scripts/picture_of_completions.py docs/models/halves docs/images/completions.png

The first row is the data. In each of the others the bottom half, in blue, has the probabilities of its pixels given
one draw h ~ P(h | c); the top half is the context c.
"""

import sys

import jax
import numpy as np
from PIL import Image

import vimco
from vimco.models.pictures import completions
from vimco.runs.experiment import Experiment

INK, MODEL, LINE = np.array([28, 31, 41]), np.array([24, 86, 188]), np.array([214, 219, 228])  # red, green, blue
COLUMNS, ROWS, SCALE, GAP = 10, 4, 4, 3  # the gap in pixels of the digits
SEED = 3


def coloured(image: np.ndarray, *, is_completed: bool) -> np.ndarray:
    """Return a digit of shape (height, width) in colours: ink for data, blue for the model's half."""
    colours = np.broadcast_to(INK, (*image.shape, 3)).copy()
    if is_completed:
        colours[len(image) // 2 :] = MODEL
    return 255 + image[..., None] * (colours - 255)


def main(path: str, output: str) -> None:
    """Sample, and write the picture."""
    run = vimco.load(path)
    examples = Experiment(run.config, run.dataset()).examples("test")
    rows = completions(run.model("best-average"), jax.random.key(SEED), examples, COLUMNS, ROWS)
    height, width = run.image_shape
    picture = np.full(((ROWS + 1) * (height + GAP) + GAP, COLUMNS * (width + GAP) + GAP, 3), 255.0)
    for i, images in enumerate(rows.values()):
        top = GAP + i * (height + GAP)
        if i == 1:
            picture[top - GAP // 2 - 1, GAP:-GAP] = LINE
        for j, image in enumerate(images.reshape(-1, height, width)):
            left = GAP + j * (width + GAP)
            picture[top : top + height, left : left + width] = coloured(image, is_completed=i > 0)
    enlarged = picture.round().astype(np.uint8).repeat(SCALE, axis=0).repeat(SCALE, axis=1)
    Image.fromarray(enlarged).quantize(64).save(output, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
