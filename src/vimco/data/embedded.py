"""MNIST as it comes with the package: binarized once by this project, see `scripts/make_mnist.py`."""

from pathlib import Path

import numpy as np

from vimco.data.catalogue import BuiltIn, register_dataset
from vimco.data.dataset import Dataset, Splits
from vimco.data.packed import Identity, read_array, read_packed
from vimco.data.randomness import bernoulli
from vimco.errors import UsageError

MNIST = Identity(
    name="mnist",
    description="MNIST digits, binarized by this project; comes with the package",
    sizes=(50_000, 10_000, 10_000),
    image_shape=(28, 28),
    checksum="216a8937ddc896782fe272774cbaf4ad4b30645971732ff9aa802967c42f782c",
    note="This MNIST was binarized by this project, so its likelihoods are near, but not comparable with, the paper's.",
)
MNIST_FILE = Path(__file__).with_name("mnist.npy.xz")
LABELS_FILE = Path(__file__).with_name("mnist_labels.npy.xz")
BINARIZATION_SEED = 2016


def binarized_mnist_of(grey: np.ndarray) -> Dataset:
    """Return the embedded set from grey MNIST, (70000, 784) of 0..255: training images in order, then test images.

    Each pixel is drawn once, 1 with probability grey / 255; the last 10,000 training images are for validation.
    """
    return MNIST.dataset(bernoulli(np.random.PCG64(BINARIZATION_SEED), grey, white=255))


def embedded_mnist() -> Dataset:
    """Return the embedded set, checked against its checksum."""
    try:
        return read_packed(MNIST_FILE, MNIST)
    except UsageError as error:
        raise UsageError(f"{error} It came with the package: install vimco again.") from error


def embedded_labels() -> Splits:
    """Return the labels of its images, (N,) uint8 for each split. The checksum of a data set of them covers them."""
    try:
        return MNIST.cut(read_array(LABELS_FILE, 2**17))
    except Exception as error:
        raise UsageError(
            f"{LABELS_FILE} is damaged ({error}). It came with the package: install vimco again."
        ) from error


register_dataset(BuiltIn(MNIST, embedded_mnist, MNIST_FILE))
