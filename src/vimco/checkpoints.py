"""Trees of arrays in safetensors files: written atomically, checked when read, and never executed."""

import hashlib
import json
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
    arrays = {name: np.asarray(leaf) for name, leaf in _named_arrays(tree).items()}
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


def filled(template: T, arrays: dict[str, np.ndarray], path: Path) -> T:
    """The template with its arrays replaced by those of the same names, which must be of the same shapes."""
    names = _named_arrays(template)
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


def _named_arrays(tree: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(location): leaf for location, leaf in leaves if eqx.is_array(leaf)}


def _checksum(arrays: dict[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
