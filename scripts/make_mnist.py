"""Make the MNIST that comes with the package (mnist.npy.xz and mnist_labels.npy.xz in src/vimco/data) from grey MNIST.

    python scripts/make_mnist.py SOURCE [--output FILE]

SOURCE is a folder with images and labels, as the original idx files (train-images-idx3-ubyte, train-labels-idx1-ubyte
and the two of t10k, as they are or gzipped) or as text (mnist_train.csv, mnist_test.csv: a line of names, then lines of
label and 784 grey levels). Both give the same pixels and labels, and the script checks that these are MNIST's.

The draw uses raw output of a PCG64 generator with a recorded seed, which numpy guarantees, so the pixels are the same
everywhere, and their checksum must be the one that the package expects. The compressed file is the same byte for byte
with liblzma 5.4; if another version compresses the same pixels differently, the script says so.
"""

import argparse
import gzip
import hashlib
from pathlib import Path

import numpy as np

from vimco.data.embedded import LABELS_FILE, MNIST_FILE, binarized_mnist_of
from vimco.data.packed import compressed, write_packed

SMALLEST = 9 | (1 << 31)  # lzma.PRESET_EXTREME
FILE_SHA256 = "4d8ed6ea22084dfad5ebbce57206992c2ea66acad1449984287a1d4de453da4a"
GREY_SHA256 = {  # of the grey levels alone, one byte each, for any file format
    "train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    "test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
}
LABELS_SHA256 = {
    "train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
    "test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
}


def grey_levels(source: Path, split: str) -> np.ndarray:
    """Return the grey levels of a split, (N, 784) uint8, checked."""
    grey, path = _bytes(source, split, "images-idx3-ubyte", range(1, 785), header=16)
    if hashlib.sha256(grey.tobytes()).hexdigest() != GREY_SHA256[split]:
        raise SystemExit(f"{path} does not hold the images of MNIST.")
    return grey.reshape(-1, 784)


def labels_of(source: Path, split: str) -> np.ndarray:
    """Return the labels of a split in the order of its images, (N,) uint8, checked."""
    labels, path = _bytes(source, split, "labels-idx1-ubyte", range(1), header=8)
    if hashlib.sha256(labels.tobytes()).hexdigest() != LABELS_SHA256[split]:
        raise SystemExit(f"{path} does not hold the labels of MNIST.")
    return labels


def _bytes(source: Path, split: str, kind: str, columns: range, header: int) -> tuple[np.ndarray, Path]:
    idx = f"{'t10k' if split == 'test' else split}-{kind}"
    names = (idx, f"{idx}.gz", f"mnist_{split}.csv")
    path = next((source / name for name in names if (source / name).exists()), None)
    if path is None:
        raise SystemExit(f"{source} holds none of {', '.join(names)}.")
    if path.suffix == ".csv":
        return np.loadtxt(path, np.uint8, delimiter=",", skiprows=1, usecols=columns).reshape(-1), path
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return np.frombuffer(content, np.uint8, offset=header), path


def main() -> None:
    """Make the file, and compare its checksums with the known ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="SOURCE")
    parser.add_argument("--output", type=Path, default=MNIST_FILE, metavar="FILE", help="labels are put beside it")
    arguments = parser.parse_args()
    grey = np.concatenate([grey_levels(arguments.source, split) for split in ("train", "test")])
    dataset = binarized_mnist_of(grey)
    write_packed(arguments.output, dataset, SMALLEST)
    content = arguments.output.read_bytes()
    print(f"{arguments.output}: {len(content):,} bytes, checksum of the pixels {dataset.checksum} as expected")
    labels = np.concatenate([labels_of(arguments.source, split) for split in ("train", "test")])
    arguments.output.with_name(LABELS_FILE.name).write_bytes(compressed(labels, SMALLEST))
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 == FILE_SHA256:
        print(f"SHA-256 of the file {sha256} as expected")
    else:
        print(f"SHA-256 of the file {sha256}, not {FILE_SHA256}: the same pixels, compressed in another way")


if __name__ == "__main__":
    main()
