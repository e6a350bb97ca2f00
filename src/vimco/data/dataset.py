"""One record for every data set: three splits of binary images, one byte a pixel."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vimco.errors import UsageError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Binary images in three splits.

    ============  =====================  ==========================================
    field         shape, type            what
    ============  =====================  ==========================================
    train         (N, D) uint8           0 or 1; an image's rows one after the other
    validation    (N', D) uint8
    test          (N'', D) uint8
    image_shape   (H, W), H W = D        for pictures, and for the halves of an image
    note          str                    one sentence to print beside likelihoods, or ""
    ============  =====================  ==========================================

    Pixels stay bytes: 50,000 images of MNIST take 39 MB, and 157 MB as floats.
    """

    name: str
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    image_shape: tuple[int, int]
    note: str = ""

    def __post_init__(self) -> None:
        height, width = self.image_shape
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

    @property
    def splits(self) -> dict[str, np.ndarray]:
        """The three splits by name, always in the same order."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def training_mean(self) -> np.ndarray:
        """x̄, the mean of each pixel over the training images: (D,) float64, computed from exact counts."""
        return self.train.mean(axis=0, dtype=np.float64)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the values: for each split its shape, as text, and its pixels, eight to a byte, row by row.

        It depends on values and shapes alone, so it is the same for every source of the set.
        """
        digest = hashlib.sha256()
        for images in self.splits.values():
            digest.update(f"{len(images)} x {self.image_shape[0]} x {self.image_shape[1]}\n".encode())
            digest.update(np.packbits(images, axis=1).tobytes())
        return digest.hexdigest()


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
