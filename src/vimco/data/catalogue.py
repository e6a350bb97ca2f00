"""Every data set by its name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vimco.data.arrays import SUFFIXES, load_arrays
from vimco.data.dataset import Dataset
from vimco.data.packed import Identity
from vimco.data.published import PublishedSet
from vimco.data.retrieval import DownloadHook, cached_file, data_folder, fetch_published, load_published
from vimco.errors import UsageError
from vimco.files import in_home
from vimco.registry import Names

Where = Literal["embedded", "generated", "cached", "in VIMCO_DATA", "not fetched"]


@dataclass(frozen=True)
class BuiltIn:
    """A data set that needs no download: its identity, the function that makes it, and its file, if any."""

    identity: Identity
    load: Callable[[], Dataset]
    file: Path | None = None


DATASETS: Names[BuiltIn | PublishedSet] = Names(
    "data set",
    f"Your own images are given as the path of a {' or '.join(SUFFIXES)} file; a set that your own code registers "
    "comes with --plugin FILE.",
)


def register_dataset(record: BuiltIn | PublishedSet) -> None:
    """Register a data set under the name in its identity."""
    DATASETS.add(record.identity.name, record)


@dataclass(frozen=True)
class Availability(Identity):
    """An entry of the list of data sets: its identity, and where it is."""

    where: Where = "not fetched"
    path: Path | None = None  # the file or folder that holds it, if there is one


def load_dataset(
    name: str, *, folder: Path | None = None, binarize: int | None = None, progress: DownloadHook | None = None
) -> Dataset:
    """Return the data set of this name, or the images in the `.npy` or `.npz` file of this path.

    `folder` holds the files of a published set; without it the set comes from the cache, which is filled from the
    folder in `VIMCO_DATA` or from the network. `binarize` is the seed for grey levels in the user's own file.
    """
    is_file = name not in DATASETS and Path(name).suffix in SUFFIXES
    if binarize is not None and not is_file:
        raise UsageError(f"{name} is not a file of grey levels, so there is nothing to binarize. Leave the seed out.")
    if binarize is not None and binarize < 0:
        raise UsageError(f"The seed for the binarization must not be negative; got {binarize}.")
    published = [name for name, record in DATASETS.items() if isinstance(record, PublishedSet)]
    if folder is not None and name not in published:
        raise UsageError(
            f"A folder of published files serves {' and '.join(published)} only, not {name}. Leave it out."
        )
    if is_file:
        return load_arrays(in_home(name), binarize)
    record = DATASETS[name]
    return record.load() if isinstance(record, BuiltIn) else load_published(record, folder, progress)


def fetch(name: str, folder: Path | None = None, progress: DownloadHook | None = None) -> Path:
    """Put a published data set into the cache, from a folder or from the network; return the file there."""
    published = [known for known, record in DATASETS.items() if isinstance(record, PublishedSet)]
    if name not in DATASETS:
        raise UsageError(f"There is no data set {name!r} to fetch; choose one of {', '.join(sorted(published))}.")
    record = DATASETS[name]
    if isinstance(record, BuiltIn):
        raise UsageError(f"{name} needs no download: there is nothing to fetch.")
    return fetch_published(record, folder, progress)


def available() -> list[Availability]:
    """Return every named data set, and where it is now: those that need no download first."""
    places = [(record.identity, *_place(record)) for record in DATASETS.values()]
    places.sort(key=lambda place: place[1] not in ("embedded", "generated"))
    return [Availability(**vars(identity), where=where, path=path) for identity, where, path in places]


def _place(record: BuiltIn | PublishedSet) -> tuple[Where, Path | None]:
    if isinstance(record, BuiltIn):
        return "embedded" if record.file else "generated", record.file
    cached, folder = cached_file(record), data_folder(record)
    if cached.exists():
        return "cached", cached
    return "in VIMCO_DATA" if folder else "not fetched", folder
