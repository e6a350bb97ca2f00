"""The records of a run directory: JSON, lines of JSON, trees of arrays in safetensors files.

Files are written atomically, checked when read, and never executed. Only regular files are read, never through a link.
"""

import contextlib
import hashlib
import io
import json
import math
import sys
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
from vimco.files import append_to_file, open_regular, read_file, write_file

T = TypeVar("T")

# The largest files that are read, in bytes. Python needs up to twenty times as much for JSON.
LARGEST_RECORD, LARGEST_METRICS, LARGEST_HEADER, LARGEST_TREE = 2**24, 2**28, 2**24, 2**33
MOST_LINES, MOST_FIELDS = 2**21, 64  # of metrics, and of each line
MOST_LOGGED = 2**19  # lines that a run writes: they fit with room to spare
DEEPEST = 20  # levels of a record; what is deeper may be read and then not be written
LARGEST_NUMBER = 1e100  # the sum of two and the square of one are finite


class DamagedFileError(UsageError):
    """A file whose content has changed since it was written."""


# Trees of arrays


def write_tree(path: Path, tree: Any, facts: dict[str, Any], previous: Path | None = None) -> None:
    """Write the arrays of a tree, and a few facts beside them, with a checksum over both; see `files.write_file`."""
    arrays = {name: np.asarray(leaf) for name, leaf in named_arrays(tree).items()}
    text = json.dumps(facts, sort_keys=True)
    metadata = {"facts": text, "sha256": _checksum(arrays, text)}
    write_file(path, safetensors.numpy.save(arrays, metadata), previous)


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the facts in a file of `write_tree`; raise `DamagedFileError` if it is damaged."""
    with _as_damaged_file_error(path):
        content = read_file(path, LARGEST_TREE, follow=False)
        header = content[8 : 8 + _size_of_header(content[:8])]
        arrays, metadata = safetensors.numpy.load(content), _metadata(header)
        if metadata.get("sha256") != _checksum(arrays, metadata["facts"]):
            raise ValueError("its content does not match its checksum")
        return arrays, _record(metadata["facts"])


def read_facts(path: Path) -> dict[str, Any]:
    """Return the facts in a file of `write_tree`, from its first few bytes, without reading its arrays."""
    with _as_damaged_file_error(path), open_regular(path, LARGEST_TREE, follow=False) as file:
        return _record(_metadata(file.read(_size_of_header(file.read(8))))["facts"])


@contextlib.contextmanager
def _as_damaged_file_error(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}.") from None
    # Among them KeyError and AttributeError, which the library raises for types of arrays that NumPy does not have.
    except (safetensors.SafetensorError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DamagedFileError(f"{path} is truncated or damaged ({error}).") from error


def _size_of_header(beginning: bytes) -> int:
    size = int.from_bytes(beginning, "little")
    if size > LARGEST_HEADER:
        raise ValueError("its header is too large")
    return size


def _metadata(header: bytes) -> dict[str, str]:
    return _record(header)["__metadata__"]


def filled(template: T, arrays: dict[str, np.ndarray], path: Path) -> T:
    """Return the template with its arrays replaced by those of the same names, which must have the same shapes."""
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
        lambda location, leaf: jnp.asarray(arrays[_name(location)]) if _is_array(leaf) else leaf, template
    )


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _name(location: Any) -> str:
    return jax.tree_util.keystr(location, simple=True, separator=".")


def named_arrays(tree: Any) -> dict[str, Any]:
    """Return the arrays of a tree by their names in files, such as `prior.layers.0.bias`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(location): leaf for location, leaf in leaves if _is_array(leaf)}


def _checksum(arrays: dict[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


# JSON


def read_json(path: Path) -> dict[str, Any]:
    """Return the record in a JSON file."""
    try:
        return _record(read_file(path, LARGEST_RECORD, follow=False))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as readable JSON."""
    write_file(path, (json.dumps(record, indent=2) + "\n").encode())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a metrics file."""
    return metrics_and_damage(path)[0]


def metrics_and_damage(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the complete lines of a metrics file, and the number of damaged ones. A truncated last line is neither."""
    try:
        content = read_file(path, LARGEST_METRICS, follow=False)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    if content.count(b"\n") > MOST_LINES:
        raise UsageError(f"{path} cannot be read: It has more than {MOST_LINES:,} lines.")
    lines, damaged = [], 0
    for text in io.BytesIO(content):
        if not text.endswith(b"\n"):
            break
        try:
            line = _record(text) if text.count(b":") <= MOST_FIELDS else {}
        except ValueError:
            line = {}
        if (
            is_json_of(line, {"update": int})
            and line["update"] >= 0
            and is_json_of(list(line.values()), [(float, None)])
        ):
            lines.append({sys.intern(n): v if n == "update" or v is None else float(v) for n, v in line.items()})
        else:
            damaged += 1
    return lines, damaged


def append_metrics(path: Path, line: dict[str, Any]) -> None:
    """Append a line to a metrics file. It is on disk when this returns, so no checkpoint is ahead of its metrics.

    JSON has no infinity: a sum that overflows becomes null.
    """
    append_to_file(path, (json.dumps(with_null(line)) + "\n").encode())


def amend_metrics(path: Path, update: int, more: dict[str, Any]) -> dict[str, Any]:
    """Add fields to the line of an update, the last of a metrics file, and return it; it may have been lost."""
    lines = read_metrics(path)
    last = lines.pop() if lines and lines[-1]["update"] == update else {"update": update}
    amended = {**last, **with_null(more)}
    write_file(path, "".join(json.dumps(line) + "\n" for line in (*lines, amended)).encode())
    return amended


def truncate_metrics(path: Path, update: int) -> None:
    """Remove the lines after an update, which will be written again."""
    kept = [line for line in read_metrics(path) if line["update"] <= update]
    write_file(path, "".join(json.dumps(line) + "\n" for line in kept).encode())


def _record(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a text; raise ValueError if it is not one.

    Python would also accept NaN and infinity, which other programs do not, and any depth.
    """
    with contextlib.suppress(RecursionError):
        record = json.loads(text)
        if not isinstance(record, dict):
            raise ValueError("it is not a JSON record")
        level: list[Any] = [record]
        for _ in range(DEEPEST):
            if any(isinstance(value, float) and not math.isfinite(value) for value in level):
                raise ValueError("it has a number that is not finite")
            containers = [value for value in level if isinstance(value, dict | list)]
            level = [item for c in containers for item in (c.values() if isinstance(c, dict) else c)]
            if not level:
                return record
    raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def with_null(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with null for numbers that are not finite, or too large to be read again."""
    return {name: None if isinstance(v, float) and not is_json_of(v, float) else v for name, v in record.items()}


def is_json_of(value: Any, kind: Any) -> bool:
    """Return whether a value from JSON has a kind: a type, None, one of a tuple, a list of one kind, or a record.

    Integers fit into 64 bits, and other numbers are at most 1e100.
    """
    if isinstance(kind, tuple):
        return any(is_json_of(value, alternative) for alternative in kind)
    if isinstance(kind, list):
        return isinstance(value, list) and all(is_json_of(item, kind[0]) for item in value)
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(is_json_of(value.get(name), kind[name]) for name in kind)
    if kind is None or isinstance(value, bool):
        return value is None
    if kind in (int, float) and isinstance(value, int):
        return abs(value) < 2**63
    return isinstance(value, kind) and (kind is not float or abs(value) <= LARGEST_NUMBER)
