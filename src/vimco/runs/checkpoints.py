"""Checkpoints: the latest state of a run, and the previous one as a fallback."""

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from vimco.errors import UsageError
from vimco.runs.config import MAX_UPDATES, RunConfig
from vimco.runs.store import DamagedFileError, is_json_of, read_arrays, read_facts, write_tree

CHECKPOINT = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"

BEST_KIND = ({"update": int, "validation_bound": float}, None)
_KINDS = {"update": int, "seconds": float, "best": BEST_KIND, "best_average": BEST_KIND}
# Not in the checkpoints of earlier versions:
_LATER_KINDS = {
    "logged_update": int,
    "logged_seconds": float,
    "processor_seconds": float,
    "validated_update": int,
    "identity": {},
    "checksum": str,
}


@dataclass
class Progress:
    """The state of a run on the host; the rest is on the device."""

    seconds: float = 0.0  # of training, over all sessions
    processor_seconds: float = 0.0  # the same of all cores together, in this process: what other work does not change
    best: dict[str, Any] | None = None  # update and validation bound of the best model
    best_average: dict[str, Any] | None = None
    logged_update: int = 0  # of the last line of metrics
    logged_seconds: float = 0.0
    validated_update: int = 0  # of the last validation


@dataclass(frozen=True)
class Checkpoint:
    """An undamaged checkpoint, as read from its file."""

    arrays: dict[str, np.ndarray]
    update: int
    progress: Progress
    facts: dict[str, Any]
    fallback: str | None = None  # for the previous checkpoint: why the latest is not used


def facts_of_run(config: RunConfig, checksum: str) -> dict[str, Any]:
    """Return the facts that identify the files of a run: everything that determines its parameters."""
    return {"identity": json.loads(json.dumps(config.identity)), "checksum": checksum}


def refuse_another_run(facts: dict[str, Any], own: dict[str, Any], path: Path) -> None:
    """Refuse a file whose facts are of a run with another configuration or other data than one's own."""
    here = {**own["identity"], "checksum of the data": own["checksum"]}
    there = {**here, **facts.get("identity", {}), "checksum of the data": facts.get("checksum", own["checksum"])}
    for name in sorted(here):
        if there[name] != here[name]:
            raise UsageError(
                f"{path} is of another run: its {name} is {there[name]!r}, and {here[name]!r} here. Put the run's own "
                "file back."
            )


def write_checkpoint(path: Path, state: Any, update: int, progress: Progress, facts: dict[str, Any]) -> None:
    """Write the latest checkpoint, and keep the previous one."""
    write_tree(path / CHECKPOINT, state, {**facts, "update": update, **asdict(progress)}, previous=path / PREVIOUS)


def has_checkpoint(path: Path) -> bool:
    """Return whether a run has a checkpoint."""
    return (path / CHECKPOINT).exists() or (path / PREVIOUS).exists()


def latest_checkpoint(path: Path) -> Checkpoint:
    """Return the latest undamaged checkpoint."""
    try:
        return _read(path / CHECKPOINT)
    except UsageError as error:
        latest_error = error
    try:
        checkpoint = _read(path / PREVIOUS)
    except UsageError as error:
        raise UsageError(
            f"{latest_error} {error} There is no checkpoint to resume from: restore one of the two files, or start a "
            "new run."
        ) from error
    why = f"{latest_error} Resuming from the checkpoint before it, of update {checkpoint.update:,}."
    return replace(checkpoint, fallback=why)


def latest_update(path: Path) -> int:
    """Return the update of the latest checkpoint, 0 before the first, without reading its arrays."""
    for name in (CHECKPOINT, PREVIOUS):
        try:
            update: Any = read_facts(path / name).get("update")
        except UsageError:
            continue
        if is_json_of(update, int):
            return update
    return 0


def _read(path: Path) -> Checkpoint:
    arrays, facts = read_arrays(path)
    kinds = {**_KINDS, **{name: kind for name, kind in _LATER_KINDS.items() if name in facts}}
    for name, kind in kinds.items():
        if not is_json_of(facts.get(name), kind):
            raise DamagedFileError(f"{path} is damaged: its field {name!r} is not what a run writes there.")
    logged = facts.get("logged_update", facts["update"])
    counts = [0, facts.get("validated_update", logged), logged, facts["update"], MAX_UPDATES]
    times = [0, facts.get("logged_seconds", 0), facts["seconds"]]
    if counts != sorted(counts) or times != sorted(times):
        raise DamagedFileError(f"{path} is damaged: its updates or its times are not possible.")
    if "update" in arrays and not np.array_equal(arrays["update"], facts["update"]):
        raise DamagedFileError(f"{path} is damaged: it is of two updates at once.")
    given = {"logged_update": logged, "logged_seconds": facts["seconds"], "validated_update": logged, **facts}
    known: dict[str, Any] = {field.name: given[field.name] for field in fields(Progress) if field.name in given}
    for name in ("seconds", "processor_seconds", "logged_seconds"):  # JSON may hold 3 for 3.0
        known[name] = float(known.get(name, 0.0))
    return Checkpoint(arrays, facts["update"], Progress(**known), facts)
