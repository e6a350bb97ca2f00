"""Negative log-likelihoods in tables, beside the paper's."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from vimco.estimators import ESTIMATORS
from vimco.runs.directory import Run, Weights
from vimco.studies.cells import PAPER, Cell, short_title_of
from vimco.studies.curves import validation_points
from vimco.studies.document import Block, Entry, Table, Text, Versions, anchor, minus, short_count
from vimco.studies.results import Number, chosen, deviation, number, on_protocol, rates_of
from vimco.studies.study import Study

EXPLANATION = (
    "Of the runs of each cell, the one with the best validation bound is shown, with its rate; runs at other rates may "
    "have had fewer updates. ± is the standard error over the test images; "
    "where there are several equally long seeds, the number is their mean and ± its standard error over seeds. Below "
    "each number are its updates; the paper does not state its own."
)
MARKED = {
    True: "Marked: the lower of ours and the paper's, for each method that has both",
    False: "Marked: the lowest of a row, where all were measured after equally many updates",
}
PARAMETERS: dict[Weights, tuple[str, str]] = {
    "best": ("raw", "the best model by validation"),
    "best-average": ("averaged", "averaged parameters"),
}


def likelihood_tables(
    study: Study,
    runs: Sequence[Run],
    corner: str,
    rows: Mapping[str, Sequence[Cell]],
    published: Mapping[Cell, float] | None = None,
    titles: Sequence[str] = (),
) -> list[Block]:
    """Return tables of the cells of a study beside published numbers, with raw and (if kept) averaged parameters, and
    how to read them. Columns are named after their estimators unless `titles` are given.

    Where there are published numbers, the lower of each pair is marked: ours, or the published one of the same cell.
    Otherwise the lowest of each row is, if all of it was measured after equally many updates.
    """
    published = published or {}
    is_comparable = all(run.data["name"] == PAPER.data for run in runs)
    names = [cell.estimator for cell in next(iter(rows.values()))]
    short_titles = titles or [short_title_of(name) for name in names]
    titles = titles or [ESTIMATORS.title_of(name) for name in names]
    columns = [i for i in range(len(titles)) if any(row[i] in published for row in rows.values())]
    headings = (corner, *titles, *(f"{short_titles[i]}, paper" for i in columns))
    is_averaged = any(run.config.averaging for row in rows.values() for cell in row for run in on_protocol(runs, cell))
    digits = 1 if all(round(value, 1) == value for value in published.values()) else 2
    tables = {}
    for weights, (version, parameters) in list(PARAMETERS.items())[: 1 + is_averaged]:
        body = []
        for title, row in rows.items():
            numbers = [number(runs, cell, study.evaluation_samples or 0, weights) for cell in row]
            here = [
                _entry(runs, cell, value, weights) if cell in study.cells else Entry("–")
                for cell, value in zip(row, numbers, strict=True)
            ]
            quoted = [published.get(cell) for cell in row]
            there = [Entry("–" if value is None else f"{value:.{digits}f}") for value in quoted]
            values = [value.value if value else None for value in numbers]
            if not published:
                is_fair = (
                    len({value.updates for value in numbers if value}) == 1
                )  # a longer run would win by its length
                here = _with_best(here, values) if is_fair else here
            elif is_comparable:
                columns_of_row = zip(here, there, values, quoted, strict=True)
                pairs = [_with_best((ours, theirs), both) for ours, theirs, *both in columns_of_row]
                here, there = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
            body.append((Entry(title), *here, *(there[i] for i in columns)))
        caption = f"{parameters}, {study.evaluation_samples} samples an image"
        if any(entry.is_best for row in body for entry in row):
            caption += f". {MARKED[bool(published)]}"
        tables[version] = Table(
            f"Negative log-likelihood of the test set in nats: {caption}",
            headings,
            tuple(body),
            frozenset(range(len(titles) + 1, len(headings))),
        )
    blocks: list[Block] = [Versions(tables) if is_averaged else tables["raw"], Text(EXPLANATION, is_said_once=True)]
    return [*blocks, *(on_other_data(runs) if published else [])]


def on_other_data(runs: Sequence[Run]) -> list[Block]:
    """Return a sentence that published numbers are not comparable, if a run has other data than the paper."""
    if all(run.data["name"] == PAPER.data for run in runs):
        return []
    return [Text(f"The paper's numbers are of {PAPER.data}, and not comparable with those of other data.")]


def distances(study: Study, runs: Sequence[Run], published: Mapping[Cell, float]) -> list[Block]:
    """Return how far each measured cell is above or below its published number, and how its bound still rises.

    The raw and the averaged number may be of two runs, each the best by validation, so each has its own length.
    """
    body = []
    for cell, value in published.items():
        numbers = {weights: number(runs, cell, study.evaluation_samples or 0, weights) for weights in PARAMETERS}
        if any(n and n.runs[0].data["name"] == PAPER.data for n in numbers.values()):
            differences = [_difference(measured, value, weights) for weights, measured in numbers.items()]
            body.append((Entry(f"{cell.title}, K = {cell.num_samples}"), *differences))
    if not body:
        return []
    headings = ("method", *(f"{version} − paper" for version, _ in PARAMETERS.values()))
    return [
        Table("Distance from the paper's numbers in nats: below zero is better than the paper", headings, tuple(body)),
        Text(
            "Last doubling: how far the validation bound of these parameters, with the training K, rose in the second "
            "half of the updates. Where it still rises by a nat or more, a longer training can be expected to lower "
            "the number.",
            is_said_once=True,
        ),
    ]


def _difference(measured: Number | None, published: float, weights: Weights) -> Entry:
    if measured is None:
        return Entry("–")
    rise = last_doubling(measured.runs[0], weights, measured.updates)
    doubling = "" if rise is None else f", last doubling {_signed(rise)}"
    return Entry(_signed(measured.value - published), f"{short_count(measured.updates)} updates{doubling}")


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def last_doubling(run: Run, weights: Weights = "best", until: int | None = None) -> float | None:
    """Return by how many nats the validation bound rose over the second half of a run, or of its updates up to `until`;
    None without a point in the first half."""
    curve = run.curve("validation_bound" if weights == "best" else "average_validation_bound")
    points = [(update, value) for update, value in curve if until is None or update <= until]
    earlier = [value for update, value in points if update <= points[-1][0] / 2]
    return points[-1][1] - earlier[-1] if earlier else None


def _entry(runs: Sequence[Run], cell: Cell, value: Number | None, weights: Weights) -> Entry:
    if value is not None:
        seeds = "" if len(value.runs) == 1 else f", {len(value.runs)} seeds"
        detail = f"{short_count(value.updates)} updates, rate {rates_of(value.runs)}{seeds}"
        return Entry(f"{minus(value.value)} ± {value.standard_error:.2f}", detail, links_to=anchor(value.runs[0].name))
    best = chosen(runs, cell, weights)
    if best:
        update, bound = best[0].best(weights) or (0, 0.0)
        detail = f"{short_count(best[0].updates)} updates, validation bound {minus(bound)} at {short_count(update)}"
        return Entry("not evaluated", detail, is_missing=True, links_to=anchor(best[0].name))
    of_cell = on_protocol(runs, cell)
    if not of_cell:
        return Entry("not run", is_missing=True)
    if weights == "best-average" and not any(run.config.averaging for run in of_cell):
        return Entry("not kept", is_missing=True)
    return Entry("in training", "no validation yet", is_missing=True)


def _with_best(entries: Iterable[Entry], values: Sequence[float | None]) -> list[Entry]:
    """Return the row with its lowest entry marked, if there are two or more."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    lowest = min(known) if len(known) > 1 else None
    return [
        replace(entry, is_best=lowest is not None and value == lowest)
        for entry, value in zip(entries, values, strict=True)
    ]


def likelihoods_of_seeds(study: Study, runs: Sequence[Run]) -> list[Block]:
    """Return the negative log-likelihood for each seed of the cells in which several were evaluated.

    A row is measured after the largest number of updates at which two seeds or more were evaluated.
    """
    tables = {}
    for weights, (version, parameters) in PARAMETERS.items():
        rows = (_evaluated_seeds(study, runs, cell, weights) for cell in study.cells)
        caption = f"Seeds: the negative log-likelihood of the test set in nats, {parameters}"
        if table := _table_of_seeds(caption, [row for row in rows if row]):
            tables[version] = table
    return [Versions(tables)] if len(tables) > 1 else list(tables.values())


def spread_over_seeds(study: Study, runs: Sequence[Run]) -> list[Block]:
    """Return the validation bound for each seed of the cells with several, after their last common update.

    All have the same rate: of those that most seeds were trained with, the one with the longest trainings, or of
    several such the best by then.
    """
    rows = []
    for cell in study.cells:
        # A seed without a validation has nothing to compare, and must not remove the others.
        validated = [(points[-1][0], run) for run in on_protocol(runs, cell) if (points := validation_points(run))]
        at_rate: dict[float, dict[int, int]] = {}
        for updates, run in sorted(validated, key=lambda pair: pair[0]):
            at_rate.setdefault(run.config.learning_rate, {})[run.config.seed] = updates
        most = max(map(len, at_rate.values()), default=0)
        if most < 2:
            continue
        reached = {rate: min(longest.values()) for rate, longest in at_rate.items() if len(longest) == most}
        length = max(reached.values())
        compared = [run for _, run in validated if reached.get(run.config.learning_rate) == length]
        of_seeds = chosen(compared, cell, until=length)
        curves = {run.config.seed: dict(validation_points(run)) for run in of_seeds}
        if len(curves) > 1 and (common := set.intersection(*map(set, curves.values()))):
            last = max(common)
            rows.append(_Seeds(cell, last, rates_of(of_seeds), {seed: curve[last] for seed, curve in curves.items()}))
    caption = "Seeds: the validation bound in nats, after the last update that all seeds of a row have reached"
    table = _table_of_seeds(caption, rows)
    return [table] if table else []


class _Seeds(NamedTuple):
    """A number for each seed of a cell, after equally many updates."""

    cell: Cell
    updates: int
    rates: str
    values: dict[int, float]


def _evaluated_seeds(study: Study, runs: Sequence[Run], cell: Cell, weights: Weights) -> _Seeds | None:
    """Return likelihoods at the rate that most seeds were evaluated with, the best by then of several such."""
    samples = study.evaluation_samples or 0
    of_cell = on_protocol(runs, cell)
    for length in sorted({length for run in of_cell for length in (run.updates, *run.stages)}, reverse=True):
        known = [run for run in of_cell if run.evaluation(samples, weights, length) is not None]
        seeds = Counter(rate for rate, _ in {(run.config.learning_rate, run.config.seed) for run in known})
        most = max(seeds.values(), default=0)
        if most < 2:
            continue
        then = chosen([run for run in known if seeds[run.config.learning_rate] == most], cell, weights, length)
        records = {run.config.seed: run.evaluation(samples, weights, length) or {} for run in then}
        values = {seed: record["negative_log_likelihood"] for seed, record in records.items()}
        return _Seeds(cell, length, rates_of(then), values)
    return None


def _table_of_seeds(caption: str, rows: Sequence[_Seeds]) -> Table | None:
    """Return the numbers of each seed, their mean and their standard deviation; None without rows."""
    seeds = sorted({seed for row in rows for seed in row.values})
    body = []
    for cell, updates, rates, values in rows:
        title = Entry(f"{cell.title}, K = {cell.num_samples}", f"{short_count(updates)} updates, rate {rates}")
        shown = (Entry(minus(values[seed]) if seed in values else "–") for seed in seeds)
        body.append((title, *shown, Entry(minus(fmean(values.values()))), Entry(f"{deviation(values.values()):.2f}")))
    headings = ("method", *(f"seed {seed}" for seed in seeds), "mean", "standard deviation")
    return Table(caption, headings, tuple(body)) if body else None


def equal_time(runs: Mapping[str, Run]) -> tuple[dict[str, float], float | None]:
    """Return the seconds that an update takes in each of the runs, and the time of the shortest training.

    These are processor times, and None unless all are known: runs of earlier versions have the clock's time alone,
    which other work on the machine lengthens. Every update counts with the median of all: the first call of a session
    also compiles, and a run that was stopped has compiled several times.
    """
    paces: dict[str, float] = {}
    for title, run in runs.items():
        lines = run.metrics()
        if len(lines) < 2 or any(line.get("processor_seconds") is None for line in lines):
            return {}, None
        steps = [
            (later["processor_seconds"] - line["processor_seconds"]) / (later["update"] - line["update"])
            for line, later in pairwise(lines)
            if later["update"] > line["update"]
        ]
        if not steps:
            return {}, None
        paces[title] = median(steps)
    return paces, min(run.metrics()[-1]["update"] * paces[title] for title, run in runs.items())


def time_in_words(seconds: float) -> str:
    """Seconds, or minutes where there are ten or more."""
    return f"{seconds:.0f} seconds" if seconds < 600 else f"{seconds / 60:.0f} minutes"
