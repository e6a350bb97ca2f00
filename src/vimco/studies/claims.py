"""The paper's claims about its results, each with a verdict: seen here, not seen, or not yet known."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from vimco.runs.directory import Run
from vimco.studies.cells import Cell
from vimco.studies.curves import Points, validation_points
from vimco.studies.document import minus, short_count
from vimco.studies.results import chosen, numbers_of_equal_length, on_protocol, rates_of


@dataclass(frozen=True)
class Verdict:
    """The result of a check of a claim, and the numbers behind it."""

    verdict: Literal["seen", "not seen", "not yet"]
    evidence: str


Check = Callable[[Sequence[Run]], Verdict]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, its place there, and a check of it against runs."""

    statement: str
    place: str
    check: Check


def by_likelihoods(cells: Sequence[Cell], holds: Callable[[list[float]], bool], num_samples: int = 1000) -> Check:
    """Return a check of negative log-likelihoods, in the order of the cells, of runs of equal length."""

    def check(runs: Sequence[Run]) -> Verdict:
        titles, (numbers, is_fair) = _titles(cells), numbers_of_equal_length(runs, cells, num_samples)
        text = ", ".join(
            f"{title}: {minus(n.value)} ({short_count(n.updates)} updates)" if n else f"{title}: none"
            for title, n in zip(titles, numbers, strict=True)
        )
        if not is_fair or not all(n and math.isfinite(n.value) for n in numbers):
            return Verdict("not yet", text)
        return Verdict("seen" if holds([n.value for n in numbers if n]) else "not seen", text)

    return check


def by_curves(
    cells: Sequence[Cell],
    holds: Callable[[list[float]], bool],
    points_of: Callable[[Run], Points] = validation_points,
    value_of: Callable[[Points], float] = lambda points: max(value for _, value in points),
    share: float = 1.0,
) -> Check:
    """Return a check of curves, in the order of the cells, up to a share of the updates that all have reached.

    The rate of each cell is the one that was best by then, among the runs that have come so far.
    """

    def check(runs: Sequence[Run]) -> Verdict:
        titles = _titles(cells)
        lengths = {
            cell: [points[-1][0] for run in on_protocol(runs, cell) if (points := points_of(run))] for cell in cells
        }
        if missing := [title for title, cell in zip(titles, cells, strict=True) if not lengths[cell]]:
            return Verdict("not yet", f"none yet: {', '.join(missing)}")
        reached = min(map(max, lengths.values()))
        compared = [[run for run in chosen(runs, cell, until=reached) if points_of(run)] for cell in cells]
        if not all(compared):  # before the first validation, by which a rate is chosen
            return Verdict("not yet", "the runs are too short")
        curves = [list(map(points_of, found)) for found in compared]
        # A curve with more points must not win by a later one: all are read up to their last common update.
        common = set.intersection(*({update for update, _ in points} for found in curves for points in found))
        end = max((update for update in common if update <= share * reached), default=share * reached)
        cut = [[[point for point in points if point[0] <= end] for points in found] for found in curves]
        if not all(map(all, cut)):
            return Verdict("not yet", "the runs are too short")
        values = [fmean(map(value_of, found)) for found in cut]
        rates = [rates_of(found) for found in compared]
        shown = [f" at {rate}" if len(set(rates)) > 1 else "" for rate in rates]
        text = ", ".join(
            f"{title}: {minus(value)}{rate}" for title, value, rate in zip(titles, values, shown, strict=True)
        )
        of_all = f", rate {rates[0]}" if len(set(rates)) == 1 else ""
        return Verdict("seen" if holds(values) else "not seen", f"{text} (up to update {end:,.0f}{of_all})")

    return check


def falls(values: Sequence[float]) -> bool:
    """Return whether each value is below the one before it."""
    return all(later < earlier for earlier, later in pairwise(values))


def rises(values: Sequence[float]) -> bool:
    """Return whether each value is above the one before it."""
    return all(later > earlier for earlier, later in pairwise(values))


def second_half(points: Points) -> float:
    """Return the mean over the later half of the updates."""
    return fmean(value for update, value in points if update >= points[-1][0] / 2)


def _titles(cells: Sequence[Cell]) -> list[str]:
    """Return a title of each cell, with its proposal, and with its layers where these differ."""
    has_layers = len({cell.layers for cell in cells}) > 1
    return [
        cell.short_title
        + (f" {cell.proposal}" if cell.has_choice_of_proposal else "")
        + (f" {'-'.join(map(str, cell.layers))}" if has_layers else "")
        for cell in cells
    ]
