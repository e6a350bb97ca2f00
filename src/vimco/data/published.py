"""Data sets that others publish: the record of one, and the check of its files."""

import hashlib
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
