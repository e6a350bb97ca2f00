"""The published data sets: their files, addresses and formats."""

import hashlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vimco.data.dataset import Dataset
from vimco.data.packed import Identity
from vimco.errors import UsageError
from vimco.files import read_file

LARGEST_FILE = 2**28  # bytes


@dataclass(frozen=True)
class PublishedFile:
    """A published file, identified to the byte."""

    name: str
    size: int  # bytes
    sha256: str


@dataclass(frozen=True)
class PublishedSet:
    """A data set that others publish: its files, the addresses that hold copies of all of them, and their format."""

    identity: Identity
    files: tuple[PublishedFile, ...]
    mirrors: tuple[str, ...]  # tried in this order; a file's name is appended
    images: Callable[[Iterable[bytes]], np.ndarray]  # the files' contents, one by one -> (N + N' + N'', D)


def read_published(published: PublishedSet, folder: Path) -> Dataset:
    """Read the published files from a folder, after checking each against its SHA-256."""
    return published.identity.dataset(published.images(_content(file, folder) for file in published.files))


def _content(file: PublishedFile, folder: Path) -> bytes:
    path = folder / file.name
    try:
        content = read_file(path, LARGEST_FILE)
    except OSError as error:
        reason = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise UsageError(f"{path} {reason}. The folder must hold the file as published, under this name.") from error
    if len(content) != file.size:
        raise UsageError(
            f"{path} has {len(content):,} bytes and the published file {file.size:,}: it is truncated or another one. "
            "Get it again."
        )
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise UsageError(
            f"{path} is not the published file, though it has the same size: its SHA-256 differs. Get it again."
        )
    return content


def images_of_amat(contents: Iterable[bytes]) -> np.ndarray:
    """Read `.amat` text: a line an image, digits 0 and 1 with one space between them.

    Every second byte is a digit, so 110 MB of text need no parser.
    """
    pixels = []
    for content in contents:
        line_length = content.find(b"\n") + 1
        if line_length == 0 or line_length % 2 or len(content) % line_length:
            raise UsageError("The .amat text is damaged: its lines are not of one length.")
        text = np.frombuffer(content, np.uint8).reshape(-1, line_length)
        pixels.append(text[:, ::2] - np.uint8(ord("0")))
        separators = np.frombuffer(b" " * (line_length // 2 - 1) + b"\n", np.uint8)
        if pixels[-1].max() > 1 or (text[:, 1::2] != separators).any() or len(separators) != pixels[0].shape[1]:
            raise UsageError("The .amat text is damaged: not all its lines are as many digits 0 and 1, and spaces.")
    return np.concatenate(pixels)


def images_of_silhouettes(contents: Iterable[bytes]) -> np.ndarray:
    """Read the MATLAB file, in which pixels run down the columns and 1 is background; here 1 is the figure."""
    from scipy.io import loadmat  # slow to import and rarely needed

    (content,) = contents
    names = ["train_data", "val_data", "test_data"]
    try:
        splits = loadmat(io.BytesIO(content), variable_names=names)
        columns = np.concatenate([splits[name] for name in names])
        upright = columns.reshape(-1, 28, 28).swapaxes(1, 2).reshape(-1, 784)
        return (1 - upright).astype(np.uint8)
    except Exception as error:  # the library promises no kind of error for a damaged file
        raise UsageError(f"The MATLAB file is damaged ({type(error).__name__}: {error}).") from error


BINARIZED_MNIST = PublishedSet(
    Identity(
        name="binarized-mnist",
        description="MNIST digits in the fixed binarization of Salakhutdinov & Murray (2008), the paper's data",
        sizes=(50_000, 10_000, 10_000),
        image_shape=(28, 28),
        checksum="6710edc569725c96e55b1cf869f0e3b0d66cc88340689c449c43926ff10f06cc",
    ),
    files=(
        PublishedFile(
            "binarized_mnist_train.amat", 78_400_000, "ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d"
        ),
        PublishedFile(
            "binarized_mnist_valid.amat", 15_680_000, "1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2"
        ),
        PublishedFile(
            "binarized_mnist_test.amat", 15_680_000, "e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c"
        ),
    ),
    mirrors=(
        "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/",
        "https://raw.githubusercontent.com/riannevdberg/sylvester-flows/HEAD/data/MNIST_static/",
        "https://raw.githubusercontent.com/rtqichen/ffjord/HEAD/data/MNIST_static/",
    ),
    images=images_of_amat,
)

CALTECH_SILHOUETTES = PublishedSet(
    Identity(
        name="caltech-silhouettes",
        description="Caltech-101 Silhouettes, 28 x 28, split 1 (Marlin et al., 2010)",
        sizes=(4_100, 2_264, 2_307),
        image_shape=(28, 28),
        checksum="f9487fde6087b61dc0aff2a96441957b38b49caa1f7111c74b0e52f25b27863e",
    ),
    files=(
        PublishedFile(
            "caltech101_silhouettes_28_split1.mat",
            872_124,
            "eb6735e8d84b1850fabc5590124aab1755e90c9fd28123585324398405e1e42a",
        ),
    ),
    mirrors=("https://people.cs.umass.edu/~marlin/data/",),
    images=images_of_silhouettes,
)

PUBLISHED = {published.identity.name: published for published in (BINARIZED_MNIST, CALTECH_SILHOUETTES)}
