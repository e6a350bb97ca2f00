"""One record for every data set: three splits of binary images, one byte a pixel; and labels, where there are some."""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vimco.errors import UsageError

NUM_LABELS = 10
LARGEST_IMAGE = 2**26  # pixels
Splits = tuple[np.ndarray, np.ndarray, np.ndarray]  # train, validation, test


@dataclass(frozen=True, eq=False)
class Scenes:
    """How images with labels are shown: each at a random place of a larger canvas, drawn anew whenever it is seen.

    Beside it lie `pieces` of other images of its split, squares of `piece_size` pixels: clutter.
    """

    image_shape: tuple[int, int]  # of the images; the data set's own is that of the canvas
    labels: Splits  # (N,) uint8 each, from 0 to 9
    pieces: int = 0
    piece_size: int = 0

    @property
    def words(self) -> str:
        """What tells two kinds of scenes apart."""
        return f"{self.image_shape[0]} x {self.image_shape[1]}, {self.pieces} pieces of {self.piece_size} pixels"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Binary images in three splits.

    Pixels stay bytes: 50,000 images of MNIST take 39 MB, and 157 MB as floats.
    """

    name: str
    train: np.ndarray  # (N, D) uint8, 0 or 1; an image's rows one after the other
    validation: np.ndarray  # (N', D) uint8
    test: np.ndarray  # (N'', D) uint8
    image_shape: tuple[int, int]  # (H, W), H W = D, for pictures, and for the halves of an image
    note: str = ""  # one sentence to print beside likelihoods, or ""
    scenes: Scenes | None = None  # labels, and how a canvas of H x W pixels is made of a smaller image

    def __post_init__(self) -> None:
        height, width = self.image_shape if self.scenes is None else self.scenes.image_shape
        if max(height * width, math.prod(self.image_shape)) > LARGEST_IMAGE:
            raise UsageError(f"The images of {self.name} have more than {LARGEST_IMAGE:,} pixels: make them smaller.")
        for split, images in self.splits.items():
            if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != height * width:
                raise UsageError(
                    f"The {split} images of {self.name} are {images.dtype} of shape {images.shape}; "
                    f"a data set holds uint8 of shape (number, {height * width}), one byte for each of "
                    f"{height} x {width} pixels."
                )
            if images.size == 0:
                raise UsageError(f"The {split} split of {self.name} is empty; each split needs an image or more.")
            if images.max() > 1:
                raise UsageError(f"The {split} images of {self.name} hold values other than 0 and 1.")
        if self.scenes is not None:
            self._check_scenes(self.scenes)

    def _check_scenes(self, scenes: Scenes) -> None:
        if any(inner > outer for inner, outer in zip(scenes.image_shape, self.image_shape, strict=True)):
            raise UsageError(f"The images of {self.name} are larger than the canvas that they are put on.")
        if scenes.pieces < 0 or scenes.piece_size > min(scenes.image_shape):
            raise UsageError(
                f"The pieces of other images in {self.name} are larger than an image, or their number is negative."
            )
        for images, labels in zip(self.splits.values(), scenes.labels, strict=True):
            if labels.dtype != np.uint8 or labels.shape != images.shape[:1] or labels.max() >= NUM_LABELS:
                raise UsageError(
                    f"The labels of {self.name} are {labels.dtype} of shape {labels.shape}; a label is a uint8 from 0 "
                    f"to {NUM_LABELS - 1}, one for each of {len(images)} images."
                )

    @property
    def splits(self) -> dict[str, np.ndarray]:
        """The three splits by name, always in the same order."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def training_mean(self) -> np.ndarray:
        """x̄, the mean of each pixel over the training images: (D,) float64, computed from exact counts.

        Of scenes: the mean of each pixel of the canvas over all places, without clutter, then the share of each label.
        """
        mean = self.train.mean(axis=0, dtype=np.float64)
        if self.scenes is None:
            return mean
        shares = np.bincount(self.scenes.labels[0], minlength=NUM_LABELS) / len(self.train)
        rows, columns = map(_share_of_places, self.image_shape, self.scenes.image_shape)
        canvas = rows @ mean.reshape(self.scenes.image_shape) @ columns.T
        return np.concatenate([canvas.reshape(-1), shares])

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the values: for each split its shape, as text, and its pixels, eight to a byte, row by row.

        It depends on values and shapes alone, so it is the same for every source of the set.
        """
        digest = hashlib.sha256()
        for images in self.splits.values():
            digest.update(f"{len(images)} x {self.image_shape[0]} x {self.image_shape[1]}\n".encode())
            digest.update(np.packbits(images, axis=1).tobytes())
        if self.scenes is not None:
            digest.update(f"{self.scenes.words}\n".encode())
            digest.update(np.concatenate(self.scenes.labels).tobytes())
        return digest.hexdigest()


def _share_of_places(outer: int, inner: int) -> np.ndarray:
    """Return the probability that each row of an image lies on each row of the canvas: (outer, inner)."""
    offset = np.arange(outer)[:, None] - np.arange(inner)
    return ((offset >= 0) & (offset <= outer - inner)) / (outer - inner + 1)


def image_and_label(scenes: np.ndarray, image_shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the canvas of each scene (context) and its one-hot label (observation): (..., D + 10) -> both."""
    pixels = image_shape[0] * image_shape[1]
    return scenes[..., :pixels], scenes[..., pixels:]


def halves(images: np.ndarray, image_shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return top halves (context) and bottom halves (observation) of images: (..., D) -> (..., C), (..., D - C).

    With an odd number of rows the middle one belongs to the bottom.
    """
    height, width = image_shape
    if images.shape[-1] != height * width:
        raise UsageError(f"Images of {images.shape[-1]} pixels are not {height} x {width}.")
    if height < 2:
        raise UsageError(
            f"Images of {height} x {width} pixels have no top and bottom half. Give them with their rows, as an array "
            "of shape (number, height, width)."
        )
    middle = (height // 2) * width
    return images[..., :middle], images[..., middle:]
