"""The paper's data: MNIST in a fixed binarization, as text."""

from collections.abc import Iterable

import numpy as np

from vimco.data.catalogue import register_dataset
from vimco.data.packed import Identity
from vimco.data.published import PublishedFile, PublishedSet
from vimco.errors import UsageError


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
register_dataset(BINARIZED_MNIST)
