"""Fetching a published data set once, and keeping it as packed bits in a cache.

Files come from a folder that the user names, from the folder in `VIMCO_DATA`, or from the mirrors, in this order. The
cache is the folder in `VIMCO_CACHE`, or else the usual place for caches on the system.
"""

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from vimco.data.dataset import Dataset
from vimco.data.packed import read_packed, write_packed
from vimco.data.published import PublishedFile, PublishedSet, read_published
from vimco.errors import UsageError

Progress = Callable[[str, int, int], None]
"""Called during a download with the file's name, the bytes that have come, and the bytes in all."""

CONNECT_TIMEOUT, READ_TIMEOUT = 10, 60  # seconds; a silent mirror must not hold up the next one


def cached_file(published: PublishedSet) -> Path:
    """Where the cache holds this set, or will."""
    folder = os.environ.get("VIMCO_CACHE")
    if not folder:
        import pooch  # slow to import

        folder = pooch.os_cache("vimco")
    return Path(folder).expanduser() / f"{published.identity.name}.npy.xz"


def data_folder(published: PublishedSet) -> Path | None:
    """The folder in `VIMCO_DATA`, if it holds a file of this set (it may be meant for another)."""
    folder = os.environ.get("VIMCO_DATA")
    if not folder:
        return None
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UsageError(f"The variable VIMCO_DATA names {path}, which is not a folder.")
    return path if any((path / file.name).exists() for file in published.files) else None


def load_published(published: PublishedSet, folder: Path | None, progress: Progress | None = None) -> Dataset:
    """The set, from the folder if one is given, else from the cache, which is filled if need be."""
    if folder is not None:
        return read_published(published, folder)
    return _cached(published) or _fetched(published, None, progress)


def fetch_published(published: PublishedSet, folder: Path | None, progress: Progress | None = None) -> Path:
    """Makes sure that the cache holds the set; a folder, where one is given, is read in any case."""
    if folder is not None or _cached(published) is None:
        _fetched(published, folder, progress)
    return cached_file(published)


def _cached(published: PublishedSet) -> Dataset | None:
    path = cached_file(published)
    if not path.exists():
        return None
    try:
        return read_packed(path, published.identity)
    except UsageError as error:
        warnings.warn(f"{error} It is made anew.", stacklevel=2)
        return None


def _fetched(published: PublishedSet, folder: Path | None, progress: Progress | None) -> Dataset:
    path = cached_file(published)
    source = folder or data_folder(published)
    try:
        if source is not None:
            dataset = read_published(published, source)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Beside the cache, because the system's temporary folder may be too small; it goes whatever happens.
            with tempfile.TemporaryDirectory(dir=path.parent, prefix="download-") as downloads:
                for file in published.files:
                    _download(published, file, Path(downloads), progress)
                dataset = read_published(published, Path(downloads))
        write_packed(path, dataset)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}. Mend this, or name another folder for the cache in "
            "the variable VIMCO_CACHE."
        ) from error
    return dataset


def _download(published: PublishedSet, file: PublishedFile, folder: Path, progress: Progress | None) -> None:
    """Downloads one file from the first mirror that has it as published."""
    import pooch
    from requests.exceptions import RequestException  # pooch depends on requests

    pooch.get_logger().setLevel("ERROR")
    failures = []
    for mirror in published.mirrors:
        downloader = pooch.HTTPDownloader(
            progressbar=_ProgressBar(file, progress) if progress else False,
            chunk_size=2**18,
            timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
        )
        try:
            pooch.retrieve(mirror + file.name, f"sha256:{file.sha256}", file.name, folder, downloader=downloader)
            return
        except RequestException as error:
            status = f" {error.response.status_code}" if error.response is not None else ""
            failures.append(f"{mirror}: {type(error).__name__}{status}")
        except ValueError:  # this is how pooch reports a wrong SHA-256
            failures.append(f"{mirror}: the file there is not the published one")
    names = ", ".join(file.name for file in published.files)
    raise UsageError(
        f"{file.name} cannot be downloaded ({'; '.join(failures)}). Without a network, put the published files "
        f"({names}) into a folder and run `vimco data fetch {published.identity.name} --from FOLDER`, or name it in "
        "the variable VIMCO_DATA."
    )


class _ProgressBar:
    """What pooch expects of a progress bar, turned into calls of a plain function.

    Pooch counts whole chunks, and `total` from a header that may count compressed bytes, so neither is taken literally.
    """

    def __init__(self, file: PublishedFile, progress: Progress) -> None:
        self.file = file
        self.progress = progress
        self.total = 0
        self.done = 0

    def update(self, number: int) -> None:
        self.done = min(self.done + number, self.file.size)
        self.progress(self.file.name, self.done, self.file.size)

    def reset(self) -> None:
        """Pooch does this just before it closes the bar; going back to nothing would only flicker."""

    def close(self) -> None:
        self.progress(self.file.name, self.file.size, self.file.size)
