"""The user's own images, from a `.npy` or `.npz` file."""

import math
from pathlib import Path

import numpy as np

from vimco.data.dataset import Dataset
from vimco.data.randomness import bernoulli, shuffled_indices
from vimco.errors import UsageError
from vimco.files import open_regular

SUFFIXES = (".npy", ".npz")
SPLIT_NAMES = {"train": ("train",), "validation": ("validation", "valid", "val"), "test": ("test",)}
KNOWN_NAMES = {name for names in SPLIT_NAMES.values() for name in names}
LARGEST_FILE = 2**33  # bytes, also when expanded
SHUFFLE_SEED = 0
SHARE = 7  # a single array is split 5/7, 1/7, 1/7, as MNIST is


def load_arrays(path: Path, binarize: int | None = None) -> Dataset:
    """Read images, (number, pixels) or (number, height, width), of 0 and 1, or of grey levels to be binarized.

    A file with one array is shuffled, always in the same way, and split 5/7, 1/7, 1/7. Grey levels are integers from
    0 to 255 or fractions from 0 to 1; with a seed, `binarize`, each pixel is drawn once, 1 with probability its level.
    """
    arrays = _splits(path, _arrays(path))
    image_shapes = {split: _image_shape(path, split, images) for split, images in arrays.items()}
    if len(set(image_shapes.values())) > 1:
        sizes = ", ".join(f"{split} {height} x {width}" for split, (height, width) in image_shapes.items())
        raise UsageError(f"The splits of {path} differ in the size of their images: {sizes}.")
    flat = {split: images.reshape(len(images), -1) for split, images in arrays.items()}
    for split, images in flat.items():
        _check_values(path, split, images)
    binary = all(((images == 0) | (images == 1)).all() for images in flat.values())
    if binary:
        pixels = {split: images.astype(np.uint8) for split, images in flat.items()}
    elif binarize is None:
        raise UsageError(
            f"{path} holds grey levels, and the models are of binary images. Binarize them: `vimco train "
            "--binarize SEED` (from Python, binarize=SEED) draws each pixel once, 1 with probability its grey level. A "
            "study needs a file of zeros and ones."
        )
    else:
        bits, white = np.random.PCG64(binarize), _white_levels(flat)
        pixels = {split: bernoulli(bits, images, white[split]) for split, images in flat.items()}
    if len(pixels) == 1:
        pixels = _shuffled_splits(path, pixels["images"])
    note = "" if binary else f"The images were binarized with seed {binarize}; likelihoods depend on that draw."
    train, validation, test = (pixels[split] for split in SPLIT_NAMES)
    return Dataset(path.name, train, validation, test, next(iter(image_shapes.values())), note)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the array of a `.npy` file, or the only array or the splits of an archive; others are not expanded."""
    try:
        with open_regular(path, LARGEST_FILE) as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"images": loaded}
            sizes = {info.filename: info.file_size for info in loaded.zip.infolist()}
            names = [name for name in loaded.files if f"{name}.npy" in sizes]  # other members are not arrays
            wanted = names if len(names) == 1 else [name for name in names if name in KNOWN_NAMES]
            if sum(sizes[f"{name}.npy"] for name in wanted) > LARGEST_FILE:
                raise ValueError(f"it expands to more than {LARGEST_FILE:,} bytes")
            arrays = {name: loaded[name] if name in wanted else np.empty(0) for name in names}
            return {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    except FileNotFoundError as error:
        raise UsageError(f"There is no file {path}.") from error
    # Numpy has no single error for unreadable files: one damaged byte may give a TokenError or a MemoryError.
    except Exception as error:
        raise UsageError(
            f"{path} cannot be read as a {path.suffix} file of numbers: it is damaged, or of another format, or holds "
            f"Python objects, which are never loaded. ({error})"
        ) from error


def _splits(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if len(arrays) == 1:
        return {"images": next(iter(arrays.values()))}
    splits = {}
    for split, names in SPLIT_NAMES.items():
        found = [name for name in names if name in arrays]
        if len(found) != 1:
            raise UsageError(
                f"{path} holds the arrays {', '.join(arrays) or '(none)'}; it needs train, validation (or valid, val) "
                "and test, each once, or a single array to be split."
            )
        splits[split] = arrays[found[0]]
    return splits


def _image_shape(path: Path, split: str, images: np.ndarray) -> tuple[int, int]:
    if images.ndim not in (2, 3):
        kinds = "(number, pixels) or (number, height, width)"
        raise UsageError(f"The array {split} of {path} has shape {images.shape}; images are {kinds}.")
    if images.size == 0:
        raise UsageError(f"The array {split} of {path} is empty: its shape is {images.shape}.")
    if images.ndim == 3:
        return images.shape[1], images.shape[2]
    side = math.isqrt(images.shape[1])
    return (side, side) if side**2 == images.shape[1] else (1, images.shape[1])


def _check_values(path: Path, split: str, images: np.ndarray) -> None:
    advice = "Pixels are 0 or 1, or grey levels: integers from 0 to 255, or fractions from 0 to 1."
    if images.dtype.kind not in "buif":
        raise UsageError(f"The array {split} of {path} has type {images.dtype}. {advice}")
    if not np.isfinite(images).all():
        raise UsageError(f"The array {split} of {path} holds values that are not numbers (NaN or infinity). {advice}")
    low, high = images.min(), images.max()
    if low < 0 or high > (255 if images.dtype.kind in "ui" else 1):
        raise UsageError(f"The array {split} of {path} holds values from {low} to {high}. {advice}")


def _white_levels(arrays: dict[str, np.ndarray]) -> dict[str, int]:
    """Return the value of white in each split: 255 for integers if any exceeds 1, otherwise 1."""
    beyond_one = any(images.max() > 1 for images in arrays.values())  # fractions are not: `_check_values`
    return {split: 255 if beyond_one and images.dtype.kind in "ui" else 1 for split, images in arrays.items()}


def _shuffled_splits(path: Path, images: np.ndarray) -> dict[str, np.ndarray]:
    share = len(images) // SHARE
    if share == 0:
        raise UsageError(f"{path} holds {len(images)} images, too few to be split in three; {SHARE} is the least.")
    order = shuffled_indices(np.random.PCG64(SHUFFLE_SEED), len(images))
    test, validation, train = np.split(images[order], [share, 2 * share])
    return {"train": train, "validation": validation, "test": test}
