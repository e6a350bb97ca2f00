"""Every data set by its name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vimco.data import scenes
from vimco.data.arrays import SUFFIXES, load_arrays
from vimco.data.dataset import Dataset
from vimco.data.embedded import MNIST, MNIST_FILE, embedded_mnist
from vimco.data.packed import Identity
from vimco.data.published import PUBLISHED, PublishedSet
from vimco.data.retrieval import Progress, cached_file, data_folder, fetch_published, load_published
from vimco.data.synthetic import SYNTHETIC, synthetic_bars
from vimco.errors import UsageError
from vimco.files import in_home

Where = Literal["embedded", "generated", "cached", "in VIMCO_DATA", "not fetched"]


@dataclass(frozen=True)
class BuiltIn:
    """A data set that needs no download: its identity, the function that makes it, and its file, if any."""

    identity: Identity
    load: Callable[[], Dataset]
    file: Path | None = None


BUILT_IN: dict[str, BuiltIn] = {}


def register_dataset(record: BuiltIn | PublishedSet) -> None:
    """Register a data set under the name in its identity."""
    name = record.identity.name
    if name in names():
        raise UsageError(f"There are two data sets {name!r}: give one of them another name.")
    if isinstance(record, BuiltIn):
        BUILT_IN[name] = record
    else:
        PUBLISHED[name] = record


def names() -> tuple[str, ...]:
    """Return the names of all data sets."""
    return (*BUILT_IN, *PUBLISHED)


register_dataset(BuiltIn(MNIST, embedded_mnist, MNIST_FILE))
register_dataset(BuiltIn(SYNTHETIC, synthetic_bars))
register_dataset(BuiltIn(scenes.TRANSLATED_MNIST, scenes.translated_mnist))
register_dataset(BuiltIn(scenes.CLUTTERED_MNIST, scenes.cluttered_mnist))
register_dataset(BuiltIn(scenes.TRANSLATED_BARS, scenes.translated_bars))


@dataclass(frozen=True)
class Availability(Identity):
    """An entry of the list of data sets: its identity, and where it is."""

    where: Where = "not fetched"
    path: Path | None = None  # the file or folder that holds it, if there is one


def load_dataset(
    name: str, *, folder: Path | None = None, binarize: int | None = None, progress: Progress | None = None
) -> Dataset:
    """Return the data set of this name, or the images in the `.npy` or `.npz` file of this path.

    `folder` holds the files of a published set; without it the set comes from the cache, which is filled from the
    folder in `VIMCO_DATA` or from the network. `binarize` is the seed for grey levels in the user's own file.
    """
    is_file = name not in names() and Path(name).suffix in SUFFIXES
    if binarize is not None and not is_file:
        raise UsageError(f"{name} is not a file of grey levels, so there is nothing to binarize. Leave the seed out.")
    if binarize is not None and binarize < 0:
        raise UsageError(f"The seed for the binarization must not be negative; got {binarize}.")
    if folder is not None and name not in PUBLISHED:
        raise UsageError(
            f"A folder of published files serves {' and '.join(PUBLISHED)} only, not {name}. Leave it out."
        )
    if name in BUILT_IN:
        return BUILT_IN[name].load()
    if name in PUBLISHED:
        return load_published(PUBLISHED[name], folder, progress)
    if is_file:
        return load_arrays(in_home(name), binarize)
    raise _unknown(name)


def fetch(name: str, folder: Path | None = None, progress: Progress | None = None) -> Path:
    """Put a published data set into the cache, from a folder or from the network; return the file there."""
    if name in BUILT_IN:
        raise UsageError(f"{name} needs no download: there is nothing to fetch.")
    if name not in PUBLISHED:
        raise _unknown(name)
    return fetch_published(PUBLISHED[name], folder, progress)


def available() -> list[Availability]:
    """Return every named data set, and where it is now."""
    places: list[tuple[Identity, Where, Path | None]] = []
    for built_in in BUILT_IN.values():
        places.append((built_in.identity, "embedded" if built_in.file else "generated", built_in.file))
    for published in PUBLISHED.values():
        cached, folder = cached_file(published), data_folder(published)
        if cached.exists():
            places.append((published.identity, "cached", cached))
        else:
            places.append((published.identity, "in VIMCO_DATA" if folder else "not fetched", folder))
    return [Availability(**vars(identity), where=where, path=path) for identity, where, path in places]


def _unknown(name: str) -> UsageError:
    return UsageError(
        f"There is no data set {name!r}. The names are {', '.join(names())}; your own images are given as the path of "
        f"a {' or '.join(SUFFIXES)} file. A set that your own code registers comes with --plugin FILE."
    )
