"""Binary images in a file, eight pixels to a byte: an xz-compressed `.npy` array of the three splits in a row."""

import io
import lzma
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vimco.data.dataset import Dataset, Splits
from vimco.errors import UsageError
from vimco.files import read_file, replace_file


@dataclass(frozen=True)
class Identity:
    """The known facts of a data set, checked for every source: its sizes, and the checksum of its values."""

    name: str
    description: str
    sizes: tuple[int, int, int]  # train, validation, test
    image_shape: tuple[int, int]
    checksum: str | None  # Dataset.checksum; None: not known
    note: str = ""

    def dataset(self, images: np.ndarray) -> Dataset:
        """Return the data set of all images, (N + N' + N'', D), cut into its splits and checked."""
        if len(images) != sum(self.sizes):
            raise UsageError(f"{self.name} has {sum(self.sizes)} images, not {len(images)}.")
        return self.checked(Dataset(self.name, *self.cut(images), self.image_shape, self.note))

    def cut(self, values: np.ndarray) -> Splits:
        """Return what belongs to all images, one after the other, cut into the three splits."""
        train, validation, test = np.split(values, np.cumsum(self.sizes[:2]))
        return train, validation, test

    def checked(self, dataset: Dataset) -> Dataset:
        """Return the data set, if its values are the known ones."""
        if self.checksum is not None and dataset.checksum != self.checksum:
            raise UsageError(f"The pixels of {self.name} are not the known ones (checksum {dataset.checksum}).")
        return dataset


def read_array(path: Path, largest: int) -> np.ndarray:
    """Return the array in an xz-compressed `.npy` file of at most so many bytes, also when expanded."""
    decompressor = lzma.LZMADecompressor()
    content = decompressor.decompress(read_file(path, largest), max_length=largest)
    array = np.load(io.BytesIO(content), allow_pickle=False)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("it is cut off, or longer than it was")
    return array


def read_packed(path: Path, identity: Identity) -> Dataset:
    """Read a packed file, and check that it holds the known data set, to the last pixel."""
    try:
        pixels = math.prod(identity.image_shape)
        packed = read_array(path, sum(identity.sizes) * pixels + 2**16)  # more than it can hold
        return identity.dataset(np.unpackbits(packed, axis=1, count=pixels))
    except Exception as error:  # a damaged header makes NumPy raise nearly anything
        raise UsageError(f"{path} cannot be read or is damaged ({error}).") from error


def write_packed(path: Path, dataset: Dataset, preset: int = 1) -> None:
    """Write a packed file in one step: at any moment the path holds the old file, the new one, or none."""
    content = compressed(np.packbits(np.concatenate(list(dataset.splits.values())), axis=1), preset)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content)


def compressed(array: np.ndarray, preset: int) -> bytes:
    """Return an xz-compressed `.npy` file."""
    file = io.BytesIO()
    np.save(file, array)
    return lzma.compress(file.getvalue(), preset=preset)
