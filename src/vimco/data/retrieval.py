"""Fetching a published data set once, and caching it as packed bits.

Files come from a folder that the user names, from the folder in `VIMCO_DATA`, or from the mirrors, in this order. The
cache is the folder in `VIMCO_CACHE`, or else the usual place for caches on the system.
"""

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from vimco.data.dataset import Dataset
from vimco.data.packed import read_packed, write_packed
from vimco.data.published import PublishedFile, PublishedSet, read_published
from vimco.errors import UsageError
from vimco.files import in_home

DownloadHook = Callable[[str, int, int], None]
"""Called during a download with the file's name, the bytes that have come, and the bytes in all."""

CONNECT_TIMEOUT, READ_TIMEOUT = 10, 60  # seconds; a silent mirror must not delay the next one


def cached_file(published: PublishedSet) -> Path:
    """Return the path of this set in the cache, which names its files if no checksum of its values is known."""
    folder = os.environ.get("VIMCO_CACHE")
    if not folder:
        import pooch  # slow to import

        folder = pooch.os_cache("vimco")
    name = published.identity.name
    if published.identity.checksum is None:
        name += "-" + hashlib.sha256("".join(file.sha256 for file in published.files).encode()).hexdigest()[:12]
    return in_home(folder) / f"{name}.npy.xz"


def data_folder(published: PublishedSet) -> Path | None:
    """Return the folder in `VIMCO_DATA`, if it holds a file of this set; None otherwise."""
    folder = os.environ.get("VIMCO_DATA")
    if not folder:
        return None
    path = in_home(folder)
    if not path.is_dir():
        raise UsageError(f"The variable VIMCO_DATA names {path}, which is not a folder.")
    return path if any((path / file.name).exists() for file in published.files) else None


def load_published(published: PublishedSet, folder: Path | None, progress: DownloadHook | None = None) -> Dataset:
    """Return the set, from the folder if one is given, else from the cache, which is filled if necessary."""
    if folder is not None:
        return read_published(published, folder)
    return _read_cache(published) or _fetch(published, None, progress)


def fetch_published(published: PublishedSet, folder: Path | None, progress: DownloadHook | None = None) -> Path:
    """Fill the cache with the set; a given folder is read in any case."""
    if folder is not None or _read_cache(published) is None:
        _fetch(published, folder, progress)
    return cached_file(published)


def _read_cache(published: PublishedSet) -> Dataset | None:
    path = cached_file(published)
    if not path.exists():
        return None
    try:
        return read_packed(path, published.identity)
    except UsageError as error:
        warnings.warn(f"{error} It is replaced.", stacklevel=2)
        return None


def _fetch(published: PublishedSet, folder: Path | None, progress: DownloadHook | None) -> Dataset:
    path = cached_file(published)
    source = folder or data_folder(published)
    try:
        if source is not None:
            dataset = read_published(published, source)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            # The temporary folder is beside the cache, because the system's may be too small; only a kill leaves it.
            with tempfile.TemporaryDirectory(dir=path.parent, prefix="download-") as downloads:
                for file in published.files:
                    _download(published, file, Path(downloads), progress)
                dataset = read_published(published, Path(downloads))
        write_packed(path, dataset)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}. Fix this, or name another folder for the cache in "
            "the variable VIMCO_CACHE."
        ) from error
    return dataset


def _download(published: PublishedSet, file: PublishedFile, folder: Path, progress: DownloadHook | None) -> None:
    """Download one file from the first mirror that has it as published."""
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
    """A progress bar for pooch that calls a plain function.

    Pooch counts whole chunks, and takes `total` from a header that may count compressed bytes, so both are adjusted.
    """

    def __init__(self, file: PublishedFile, progress: DownloadHook) -> None:
        self.file = file
        self.progress = progress
        self.total = 0
        self.done = 0

    def update(self, number: int) -> None:
        self.done = min(self.done + number, self.file.size)
        self.progress(self.file.name, self.done, self.file.size)

    def reset(self) -> None:
        """Ignore the reset that pooch makes just before it closes the bar, which would flicker."""

    def close(self) -> None:
        self.progress(self.file.name, self.file.size, self.file.size)
