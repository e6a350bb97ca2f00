"""The files of a run directory: JSON records, lines of metrics, and trees of arrays in safetensors files.

Files are written atomically, checked when read, and never executed.
"""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from vimco.errors import UsageError
from vimco.files import replace_file

T = TypeVar("T")


class DamagedFileError(UsageError):
    """A file whose content is not what was written."""


def write_atomically(path: Path, content: bytes, previous: Path | None = None) -> None:
    """`files.replace_file`, with a full disk and its like told in a sentence."""
    try:
        replace_file(path, content, previous)
    except OSError as error:
        raise UsageError(
            f"{path} could not be written: {error.strerror or error}. What was there before is intact; mend this "
            "(a full disk needs room), then try again or go on with --resume."
        ) from error


def write_tree(path: Path, tree: Any, facts: dict[str, Any], previous: Path | None = None) -> None:
    """Writes the arrays of a tree, and a few facts beside them, with a checksum over both; see `write_atomically`."""
    arrays = {name: np.asarray(leaf) for name, leaf in named_arrays(tree).items()}
    text = json.dumps(facts, sort_keys=True)
    metadata = {"facts": text, "sha256": _checksum(arrays, text)}
    write_atomically(path, safetensors.numpy.save(arrays, metadata), previous)


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the facts in a file of `write_tree`. A file that is not whole raises `DamagedFileError`."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}.") from None
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise DamagedFileError(f"{path} is truncated or damaged ({error}).") from error
    text = metadata.get("facts", "")
    if metadata.get("sha256") != _checksum(arrays, text):
        raise DamagedFileError(f"{path} is damaged: its content does not match its checksum.")
    return arrays, json.loads(text)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts in a file of `write_tree`, without its arrays: they stand in its first few bytes."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return json.loads((file.metadata() or {})["facts"])
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}.") from None
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise DamagedFileError(f"{path} is truncated or damaged ({error}).") from error


def filled(template: T, arrays: dict[str, np.ndarray], path: Path) -> T:
    """The template with its arrays replaced by those of the same names, which must be of the same shapes."""
    names = named_arrays(template)
    if set(names) != set(arrays):
        name = sorted(set(names) ^ set(arrays))[0]
        raise UsageError(f"{path} is of another model: it and the configuration do not agree about {name!r}.")
    for name, leaf in names.items():
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise UsageError(
                f"{path} is of another model: {name!r} is {arrays[name].dtype} {arrays[name].shape} there, "
                f"and {leaf.dtype} {leaf.shape} here."
            )
    return jax.tree_util.tree_map_with_path(
        lambda location, leaf: jnp.asarray(arrays[_name(location)]) if eqx.is_array(leaf) else leaf, template
    )


def _name(location: Any) -> str:
    return jax.tree_util.keystr(location, simple=True, separator=".")


def named_arrays(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by the names that files have for them: `prior.layers.0.bias`, say."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(location): leaf for location, leaf in leaves if eqx.is_array(leaf)}


def _checksum(arrays: dict[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a metrics file."""
    return metrics_and_damage(path)[0]


def metrics_and_damage(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The whole lines of a metrics file, and how many are damaged. One that a crash cut off at the end is neither."""
    lines, damaged = [], 0
    for text in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if fits(line, {"update": int}) and fits(list(line.values()), [(float, None)]):
            lines.append(line)
        else:
            damaged += 1
    return lines, damaged


def fits(value: Any, kind: Any) -> bool:
    """Whether a value from JSON is of a kind: a type, None, one of a tuple, a list of one kind, a record with fields.

    Numbers are finite and fit into 64 bits.
    """
    if isinstance(kind, tuple):
        return any(fits(value, alternative) for alternative in kind)
    if isinstance(kind, list):
        return isinstance(value, list) and all(fits(item, kind[0]) for item in value)
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(fits(value.get(name), kind[name]) for name in kind)
    if kind is None or isinstance(value, bool):
        return value is None
    if kind in (int, float) and isinstance(value, int):
        return abs(value) < 2**63
    return isinstance(value, kind) and (kind is not float or math.isfinite(value))


def append_metrics(path: Path, line: dict[str, Any]) -> None:
    """Adds a line to a metrics file, on disk before this returns: no checkpoint may be ahead of its metrics.

    JSON has no infinity: a sum that overflows becomes null.
    """
    line = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in line.items()
    }
    try:
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(
            f"{path} could not be written: {error.strerror}. The last checkpoint is intact; make room, then go on with "
            "--resume."
        ) from error


def truncate_metrics(path: Path, update: int) -> None:
    """Drops the lines after an update, which are about to be written again."""
    kept = [line for line in read_metrics(path) if line["update"] <= update]
    write_atomically(path, "".join(json.dumps(line) + "\n" for line in kept).encode())


def read_json(path: Path) -> dict[str, Any]:
    """The record in a JSON file."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    if not isinstance(record, dict):
        raise UsageError(f"{path} is not a JSON record.")
    return record


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Writes a record as JSON that people can read."""
    write_atomically(path, (json.dumps(record, indent=2) + "\n").encode())


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Waits for other processes that are changing a record of this folder, and lets none in meanwhile.

    The system lets go of the folder when the process ends, however that happens.
    """
    import fcntl  # not on Windows, where the library can be used but not the program

    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"{folder} cannot be opened: {error.strerror}.") from error
    try:
        # A file system without locks is no reason to lose a result.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
