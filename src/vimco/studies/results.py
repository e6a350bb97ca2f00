"""The runs in some folders, chosen by validation, and their likelihoods. Nothing here trains."""

import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from vimco.errors import UsageError, printable
from vimco.runs import directory
from vimco.runs.directory import Run, Weights
from vimco.studies.cells import Cell, variations


def collected(folders: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Return every run in these folders, at any depth, each once, sorted by name, and a sentence per problem."""
    found: dict[Path, Run] = {}
    problems: list[str] = []
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder.")
        for path in _run_directories(folder, problems):
            try:
                run = directory.load(path)
                run.summary()
                problems += run.problems
                found[path.resolve()] = run
            except (UsageError, OSError) as error:
                problems.append(f"{error}")
    runs = [replace(run, name=name) for name, run in zip(_names(list(found)), found.values(), strict=True)]
    return sorted(runs, key=lambda run: run.name), list(map(printable, problems))


def _run_directories(folder: Path, problems: list[str]) -> Iterator[Path]:
    """Return the folders below that hold a configuration, found without recursion, so no tree is too deep."""
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError as error:
            problems.append(f"{path.name} cannot be listed: {error.strerror}.")
            continue
        if any(entry.name == directory.CONFIG for entry in entries):
            yield path
        for entry in entries:
            if entry.is_symlink() and _leads_to_run(path / entry.name):
                problems.append(f"{entry.name} is a link to a run elsewhere, and left out: move the run here.")
        waiting += [Path(entry.path) for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]


def _leads_to_run(link: Path) -> bool:
    try:
        return (link / directory.CONFIG).exists()
    except OSError:  # another user's folder, or a name that is too long
        return False


def _names(paths: Sequence[Path]) -> list[str]:
    """Return a unique name for each run directory: without its digest if that is unique, else the directory's name,
    with the folder above it, or with a number."""
    pairs = [(printable(path.parent.name), printable(path.name)) for path in paths]
    forms = [(re.sub(r"-[0-9a-f]{12}$", "", name), name, f"{above}/{name}") for above, name in pairs]
    counts = [Counter(column) for column in zip(*forms, strict=True)]
    return [
        next((form for form, count in zip(row, counts, strict=True) if count[form] == 1), f"{row[-1]} ({i})")
        for i, row in enumerate(forms, start=1)
    ]


def on_protocol(runs: Iterable[Run], cell: Cell) -> list[Run]:
    """Return the runs of a cell that keep to the paper's protocol."""
    return [run for run in runs if Cell.of(run.config) == cell and not variations(run.config)]


def chosen(runs: Iterable[Run], cell: Cell, weights: Weights = "best", until: int | None = None) -> list[Run]:
    """Return the best run of a cell by validation, and for each other seed the best at the same learning rate.

    Of several runs of one configuration the longest alone counts: the best of them would have an advantage.
    An unfinished run is never chosen over a finished one: it has not been evaluated, and would hide a measured number.
    One that is being extended counts as it was at its last end.
    With `until` the runs that have reached this update are compared as they were then: another rate may have been best.
    Of equal bounds, as with and without averaging, an evaluated run is chosen.
    """
    if until is None:
        ends = [(run.summary().get("updates"), run) for run in on_protocol(runs, cell)]
        alone = [(end, run) for end, run in ends if not _has_longer(ends, end, run)]
        ranked = [(end is not None, best[1], run) for end, run in alone if (best := run.best(weights, end))]
    else:
        reached = [run for run in on_protocol(runs, cell) if run.updates >= until]
        ranked = [(True, best[1], run) for run in reached if (best := run.best(weights, until))]

    def rank(entry: tuple[bool, float, Run]) -> tuple[bool, float, bool]:
        records = [entry[2].evaluations, *entry[2].stages.values()]
        return *entry[:2], any(record["weights"] == weights for record in chain.from_iterable(records))

    rate = max(ranked, key=rank)[2].config.learning_rate if ranked else None
    of_seed: dict[int, Run] = {}
    for *_, run in sorted(ranked, key=rank, reverse=True):
        if run.config.learning_rate == rate:
            of_seed.setdefault(run.config.seed, run)
    return [of_seed[seed] for seed in sorted(of_seed)]


def _has_longer(ends: Sequence[tuple[int | None, Run]], end: int | None, run: Run) -> bool:
    """Return whether one of these runs has the same configuration and has ended after more updates."""
    return any((its or 0) > (end or 0) and other.config.identity == run.config.identity for its, other in ends)


def rates_of(runs: Iterable[Run]) -> str:
    """Return the learning rates of some runs, each once."""
    return ", ".join(dict.fromkeys(f"{run.config.learning_rate:g}" for run in runs))


def usual_length(lengths: Iterable[int]) -> int:
    """Return the length that most have, the longest of several such; 0 if there is none."""
    counts = Counter(lengths)
    return max(counts, key=lambda length: (counts[length], length), default=0)


def has_reached(run: Run, length: int) -> bool:
    """Return whether a run shows its recipe at this length; at a constant rate a longer run does too.

    A schedule must end there: the rate of a run that was stopped before its horizon has hardly fallen.
    """
    if run.config.schedule == "constant":
        return run.updates >= length
    return run.updates >= length == run.config.horizon


def deviation(values: Collection[float]) -> float:
    """Return the standard deviation of two values or more; NaN if one is not finite."""
    return stdev(values) if all(map(math.isfinite, values)) else math.nan


@dataclass(frozen=True)
class Number:
    """A negative log-likelihood in nats: of one run, or averaged over the seeds that are as long as the longest."""

    value: float
    standard_error: float  # over the test images for one seed; over the seeds for more
    runs: tuple[Run, ...]
    updates: int  # after which it was measured


def number(
    runs: Sequence[Run], cell: Cell, num_samples: int, weights: Weights = "best", updates: int | None = None
) -> Number | None:
    """Return the negative log-likelihood of a cell, now or after `updates`; None if it was not evaluated.

    Where only an earlier stage of the chosen run was evaluated, the choice is that of then: another rate may have been
    the best. Where the chosen run of a seed was not evaluated, another of this rate and seed serves, with its length.
    """

    def evaluation(run: Run) -> tuple[int, dict[str, Any]] | None:
        if updates is None:
            return last_evaluation(run, num_samples, weights)
        record = run.evaluation(num_samples, weights, updates)
        return None if record is None else (updates, record)

    known = {run.path: its for run in on_protocol(runs, cell) if (its := evaluation(run))}
    evaluated = []
    for run in chosen(runs, cell, weights, updates):
        same = [other for other in runs if other.path in known and _series(other) == _series(run)]
        for each in [run] if run.path in known else chosen(same, cell, weights, updates):
            length, record = known[each.path]
            evaluated.append((length, each, record))
    if not evaluated:
        return None
    length = max(length for length, *_ in evaluated)
    averaged = [(run, record) for its_length, run, record in evaluated if its_length == length]
    values = [record["negative_log_likelihood"] for _, record in averaged]
    error = averaged[0][1]["standard_error"] if len(values) == 1 else deviation(values) / len(values) ** 0.5
    found = Number(fmean(values), error, tuple(run for run, _ in averaged), length)
    if updates is None and any(run.summary().get("updates", 0) > length for run in found.runs):
        return number(runs, cell, num_samples, weights, length) or found
    return found


def _series(run: Run) -> tuple[float, int]:
    return run.config.learning_rate, run.config.seed


def last_evaluation(run: Run, num_samples: int, weights: Weights = "best") -> tuple[int, dict[str, Any]] | None:
    """Return the last evaluation of a run on the test split, and the updates that the run had then.

    A run that was extended has the evaluation of before, until its new best parameters are evaluated.
    """
    if (record := run.evaluation(num_samples, weights)) is not None:
        ended = run.summary().get("updates", run.updates)
        return (run.updates if record["update"] > ended else ended), record
    for updates in sorted({*run.stages, run.summary().get("updates", run.updates)}, reverse=True):
        if (record := run.evaluation(num_samples, weights, updates)) is not None:
            return updates, record
    return None


def numbers_of_equal_length(
    runs: Sequence[Run], cells: Sequence[Cell], num_samples: int
) -> tuple[list[Number | None], bool]:
    """Return the numbers of several cells after equally many updates, and True; or the numbers of now, and False.

    A shorter run of a cell is used if the chosen one was not evaluated after that many updates, but only at the rate
    that was best by then: the longer run may have been at that rate.
    """
    lengths = {run.path: {run.updates, *run.stages} for run in runs}
    common = set.intersection(
        *({length for run in on_protocol(runs, cell) for length in lengths[run.path]} for cell in cells)
    )
    for length in sorted(common, reverse=True):
        reached = [run for run in runs if length in lengths[run.path]]
        then = [number(reached, cell, num_samples, updates=length) for cell in cells]
        best = [rates_of(chosen(runs, cell, until=length)) for cell in cells]
        if all(n and rates_of(n.runs) == rate for n, rate in zip(then, best, strict=True)):
            return then, True
    return [number(runs, cell, num_samples) for cell in cells], False
