"""Curves of the chosen runs, in the paper's arrangement of panels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from vimco.runs import figures
from vimco.runs.figures import COLOUR_OF_K, COLOURS, LINE_OF_ESTIMATOR, Curve
from vimco.studies.document import Block, Picture, Text
from vimco.studies.paper.runs import MEANS, STUDIES
from vimco.studies.paper.tables import MEANS_TITLES, PROPOSALS, generative, title_of
from vimco.studies.results import Result, chosen
from vimco.studies.study import Cell

Points = list[tuple[int, float]]  # update, value

OF_BOUNDS = (
    "The bound on the validation set with the training K (in brackets), against parameter updates; for each curve the "
    "learning rate chosen by it."
)
OF_SIGNALS = (
    "Root mean square of the learning signal over mini-batches, smoothed, against parameter updates, in the runs "
    "chosen by validation. NVIL's is the centred signal before variance normalisation. K in brackets."
)
OF_COMPLETIONS = (
    "Test images on top; below them the same top halves, each with the bottom half's probabilities given one draw from "
    "the prior."
)


def figure_1(results: Sequence[Result]) -> list[Block]:
    """VIMCO beside NVIL, and VIMCO beside RWS."""
    cells = STUDIES["figure-1"].cells
    contents = {
        f"VIMCO and {title_of(other)}": [
            curve
            for estimator, cell in product((other, "vimco"), cells)
            if cell.estimator == estimator
            for curve in _curves(results, cell, validation_points)
        ]
        for other in ("nvil", "rws")
    }
    return [_picture("figure-1", contents, "validation bound (nats)", OF_BOUNDS)]


def figure_2(results: Sequence[Result]) -> list[Block]:
    """Samples from the prior, and from a learned proposal."""
    cells = STUDIES["figure-2"].cells
    contents = {
        title.capitalize(): [
            curve
            for estimator, cell in product(("nvil", "vimco"), cells)
            if (cell.estimator, cell.proposal) == (estimator, proposal)
            for curve in _curves(results, cell, validation_points)
        ]
        for proposal, title in PROPOSALS.items()
    }
    return [_picture("figure-2", contents, "validation bound (nats)", OF_BOUNDS)]


def figure_3(results: Sequence[Result]) -> list[Block]:
    """The learning signals of VIMCO and NVIL."""
    curves = [
        curve
        for estimator, cell in product(("nvil", "vimco"), STUDIES["figure-3"].cells)
        if cell.estimator == estimator
        for curve in _curves(results, cell, signal_points)
    ]
    contents = {"VIMCO and NVIL": curves}
    return [_picture("figure-3", contents, "learning signal (RMS)", OF_SIGNALS, is_logarithmic=True)]


def figure_4(results: Sequence[Result]) -> list[Block]:
    """Completions by the chosen model."""
    (cell,) = STUDIES["figure-4"].cells
    best = chosen(results, cell)
    return drawn_by(best[0], "figure-4", OF_COMPLETIONS) if best else [Text("In training: no validation yet.")]


def means(results: Sequence[Result]) -> list[Block]:
    """A panel for each K, a curve for each stand-in."""
    contents = {
        f"K = {K}": [
            Curve(MEANS_TITLES[estimator], "", points, colour, line)
            for estimator, colour, line in zip(MEANS, COLOURS, ("-", "--", ":", "-."), strict=False)
            for result in chosen(results, generative(estimator, K))
            if (points := validation_points(result))
        ]
        for K in (5, 10)
    }
    caption = "The bound on the validation set with the training K, against updates, in the runs chosen by it."
    return [_picture("means", contents, "validation bound (nats)", caption)]


def all_of(results: Sequence[Result], name: str) -> list[Block]:
    """The validation bounds of any runs, a curve each."""
    styles = product(("-", "--", ":", "-."), COLOURS)
    curves = [
        Curve(result.name, "", points, colour, line)
        for result, (line, colour) in zip(results, styles, strict=False)
        if (points := validation_points(result))
    ]
    if not curves:
        return []
    caption = "The bound on the validation set with the training K of each run, against updates."
    return [_picture(name, {"Other runs": curves}, "validation bound (nats)", caption)]


def drawn_by(result: Result, name: str, caption: str) -> list[Block]:
    """The picture in a run's directory: drawn at its end, unless `vimco sample` has put another in its place."""
    path = result.run.path / "samples.png"
    if not path.exists():
        return [Text(f"There is no picture in {result.name} yet: it draws one at its end.")]
    caption = (
        f"{caption} This is samples.png of {result.name}: drawn at the end of training with the best parameters by "
        "validation, unless vimco sample has drawn it anew since, with options of its own."
    )
    return [Picture(name, "png", path.read_bytes(), caption, caption)]


def validation_points(result: Result) -> Points:
    """Update and validation bound."""
    points = [(line["update"], line.get("validation_bound")) for line in result.metrics]
    return [(update, bound) for update, bound in points if bound is not None]


def signal_points(result: Result) -> Points:
    """Update and root mean square of the signal, over about a fiftieth of the run at a time."""
    lines = [line for line in result.metrics if line.get("signal_rms") is not None]
    window = max(1, len(lines) // 50)
    squares = np.cumsum([0.0, *(line["signal_rms"] ** 2 for line in lines)])
    means = (squares[window:] - squares[:-window]) / window
    return [
        (line["update"], float(mean) ** 0.5) for line, mean in zip(lines[window - 1 :], means, strict=True) if mean > 0
    ]


def _curves(results: Sequence[Result], cell: Cell, points_of: Callable[[Result], Points]) -> Iterable[Curve]:
    """The chosen run of each seed, all under one label, as the paper writes it."""
    label = f"{title_of(cell.estimator).removesuffix(' (wake)')} ({cell.num_samples})"
    for result in chosen(results, cell):
        points = points_of(result)
        if points:
            colour, line = COLOUR_OF_K[cell.num_samples], LINE_OF_ESTIMATOR[cell.estimator]
            yield Curve(label, cell.estimator, points, colour, line)


def _picture(
    name: str, contents: Mapping[str, Sequence[Curve]], quantity: str, caption: str, **options: Any
) -> Picture:
    """The panels as vector graphics; the words for those who do not see them give where each curve ends."""
    ends = [
        f"{title}: "
        + (", ".join(f"{c.label} {c.points[-1][1]:.2f} at update {c.points[-1][0]:,}" for c in curves) or "not run")
        for title, curves in contents.items()
    ]
    content = figures.figure_bytes(figures.panels(contents, quantity, **options), "svg")
    return Picture(name, "svg", content, caption, f"{quantity} against updates. {'; '.join(ends)}.")
