"""The data sets: binary images as bytes, in three splits, each set known by a checksum of its values.

`mnist` comes with the package, `binarized-mnist` and `caltech-silhouettes` are fetched once and cached, `synthetic` is
made on the fly, and a path to a `.npy` or `.npz` file loads the user's own images. The sets with labels (`Scenes`) are
`translated-mnist`, `cluttered-mnist` and `translated-bars`. Nothing here touches JAX.

Every file of this folder is imported, and registers its data sets.
"""

from vimco.data.catalogue import Availability, BuiltIn, available, fetch, load_dataset, register_dataset
from vimco.data.dataset import Dataset, Scenes, halves, image_and_label
from vimco.data.packed import Identity
from vimco.data.retrieval import DownloadHook
from vimco.registry import import_modules

__all__ = [
    "Availability",
    "BuiltIn",
    "Dataset",
    "DownloadHook",
    "Identity",
    "Scenes",
    "available",
    "fetch",
    "halves",
    "image_and_label",
    "load_dataset",
    "register_dataset",
]

import_modules(__name__)
