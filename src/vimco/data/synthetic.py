"""A tiny data set for tests and first tries: noisy bars, 8 x 8 pixels."""

import numpy as np

from vimco.data.catalogue import BuiltIn, register_dataset
from vimco.data.dataset import Dataset
from vimco.data.packed import Identity
from vimco.data.randomness import uniforms

SYNTHETIC = Identity(
    name="synthetic",
    description="noisy bars, horizontal or vertical, for tests",
    sizes=(600, 200, 200),
    image_shape=(8, 8),
    checksum="c24b9b32001cab4c098a7394b18c18838ee0fae01ef9c5bc9cc1ddb308fd87f5",
)
SEED = 8


def synthetic_bars() -> Dataset:
    """Return images of horizontal or vertical bars, each present with probability 0.3; pixels flip with 0.02."""
    return SYNTHETIC.dataset(bars_and_directions()[0])


def bars_and_directions() -> tuple[np.ndarray, np.ndarray]:
    """Return the images, and 1 for each whose bars are vertical, else 0: both uint8."""
    side = SYNTHETIC.image_shape[0]
    draws = uniforms(np.random.PCG64(SEED), sum(SYNTHETIC.sizes), 1 + side + side**2)
    orientation, bars, noise = np.split(draws, [1, 1 + side], axis=1)
    vertical = np.broadcast_to((bars < 0.3)[:, None, :], (len(draws), side, side))
    upright = (orientation < 0.5)[:, :, None]
    images = np.where(upright, vertical, vertical.swapaxes(1, 2)).reshape(len(draws), -1)
    return (images ^ (noise < 0.02)).astype(np.uint8), upright[:, 0, 0].astype(np.uint8)


register_dataset(BuiltIn(SYNTHETIC, synthetic_bars))
