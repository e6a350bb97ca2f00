"""The outlines of Caltech-101, as a MATLAB file."""

import io
from collections.abc import Iterable

import numpy as np

from vimco.data.catalogue import register_dataset
from vimco.data.packed import Identity
from vimco.data.published import PublishedFile, PublishedSet
from vimco.errors import UsageError


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


register_dataset(
    PublishedSet(
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
)
