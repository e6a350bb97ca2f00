"""Labelled images on a larger canvas: each at a random place, drawn anew whenever it is seen."""

import dataclasses

from vimco.data.catalogue import BuiltIn, register_dataset
from vimco.data.dataset import Dataset, Scenes, Splits
from vimco.data.embedded import MNIST, embedded_labels, embedded_mnist
from vimco.data.packed import Identity
from vimco.data.synthetic import SYNTHETIC, bars_and_directions

NOTE = (
    "The digits are those of this project's binarized MNIST, so errors are near, but not comparable with, those of "
    "grey ones."
)
TRANSLATED_MNIST = Identity(
    name="translated-mnist",
    description="labelled digits of mnist, each at a random place of the canvas",
    sizes=MNIST.sizes,
    image_shape=(60, 60),
    checksum="fa438b7cbcda878a14dac55c77cbe8b3597066bc472eebd9f5ff928a03d5e717",
    note=NOTE,
)
CLUTTERED_MNIST = dataclasses.replace(
    TRANSLATED_MNIST,
    name="cluttered-mnist",
    description="the same among four pieces of other digits",
    checksum="758916d922b1a6ff877eca409977e0a9480bf75e8e06d78e3d3a2e3712156edf",
)
TRANSLATED_BARS = Identity(
    name="translated-bars",
    description="the bars of synthetic, labelled by their direction, for tests",
    sizes=SYNTHETIC.sizes,
    image_shape=(16, 16),
    checksum="006e6e83467b2e3bbb4c9b5f773f3a723198c145037b527a273e8a1d549623a1",
)


def translated_mnist() -> Dataset:
    """Return digits, each at a random place of 60 x 60 pixels (Mnih et al., 2014)."""
    return _scenes(TRANSLATED_MNIST, embedded_mnist(), embedded_labels())


def cluttered_mnist() -> Dataset:
    """Return the same with four pieces, 8 x 8 pixels, of other digits at random places."""
    return _scenes(CLUTTERED_MNIST, embedded_mnist(), embedded_labels(), pieces=4, piece_size=8)


def translated_bars() -> Dataset:
    """Return bars of 8 x 8 pixels at a random place of 16 x 16."""
    images, directions = bars_and_directions()
    return _scenes(TRANSLATED_BARS, SYNTHETIC.dataset(images), SYNTHETIC.cut(directions))


def _scenes(identity: Identity, source: Dataset, labels: Splits, pieces: int = 0, piece_size: int = 0) -> Dataset:
    scenes = Scenes(source.image_shape, labels, pieces, piece_size)
    splits = (source.train, source.validation, source.test)
    return identity.checked(Dataset(identity.name, *splits, identity.image_shape, identity.note, scenes))


register_dataset(BuiltIn(TRANSLATED_MNIST, translated_mnist))
register_dataset(BuiltIn(CLUTTERED_MNIST, cluttered_mnist))
register_dataset(BuiltIn(TRANSLATED_BARS, translated_bars))
