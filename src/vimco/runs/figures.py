"""All figures, in one style. They are returned as the bytes of a file; nothing here writes."""

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from vimco.runs.curve import COLOURS, Curve

STYLE: Any = {
    "font.size": 9,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # a vector graphic repeats the list with every word
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "text.parse_math": False,  # a name may hold a dollar
    "svg.fonttype": "none",
    "svg.hashsalt": "vimco",  # identifiers inside the file would otherwise be random
}

MOST_COLUMNS = 3  # of panels


@mpl.rc_context(STYLE)
def figure_bytes(figure: Figure, kind: str = "png") -> bytes:
    """Return the figure as the content of a file."""
    buffer = io.BytesIO()
    # No date in the file: the same figure gives the same bytes.
    metadata = {"Date": None} if kind == "svg" else {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # a name may contain characters that the font lacks
        figure.savefig(buffer, format=kind, dpi=150, bbox_inches="tight", metadata=metadata)
    content = buffer.getvalue()
    return _shortened(content) if kind == "svg" else content


def _shortened(svg: bytes) -> bytes:
    """Return the picture with coordinates to a hundredth of a point, and without line breaks in its paths."""

    def short(attribute: re.Match[bytes]) -> bytes:
        return re.sub(rb"(\.\d\d)\d+", rb"\1", attribute[0]).replace(b" \n", b"")

    return re.sub(rb' (d|x|y|transform)="[^"]*"', short, svg)


@mpl.rc_context(STYLE)
def figure_of_metrics(metrics: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Return bound, learning signal and effective sample size of one run against updates."""
    figure = Figure(figsize=(9.5, 2.9), layout="constrained")
    bound, signal, effective = figure.subplots(1, 3)
    bounds = _line(bound, metrics, "train_bound", "training", COLOURS[5])
    bounds += _line(bound, metrics, "validation_bound", "validation", COLOURS[0], ".")
    bounds += _line(bound, metrics, "average_validation_bound", "validation, averaged parameters", COLOURS[1], ".")
    _line(signal, metrics, "signal_rms", None, COLOURS[0])
    _line(effective, metrics, "effective_sample_size", None, COLOURS[0])
    if len(bounds) > 20:  # hide the steep first steps, so that the later differences are visible
        low, high = np.quantile(bounds, 0.1), max(bounds)
        bound.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
    if bounds:
        bound.legend(loc="lower right")
    labels = ("bound (nats)", "learning signal (RMS)", "effective sample size")
    for axes, label in zip((bound, signal, effective), labels, strict=True):
        axes.set_ylabel(label)
        _count_updates(axes)
    if title:
        figure.suptitle(title, fontsize=9)
    return figure


@mpl.rc_context(STYLE)
def panels(contents: Mapping[str, Sequence[Curve]], quantity: str, *, is_logarithmic: bool = False) -> Figure:
    """Return panels by their titles, three in a row, each with curves against updates and a legend below.

    Bounds share an axis that leaves the steep first steps out of view.
    """
    columns = min(len(contents), MOST_COLUMNS)
    rows = math.ceil(len(contents) / MOST_COLUMNS)
    figure = Figure(figsize=(4.9 * max(columns, 1.2), 4.3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=not is_logarithmic)
    for axes in grid.flat[len(contents) :]:
        axes.set_axis_off()
    for axes, (title, curves) in zip(grid.flat, contents.items(), strict=False):
        axes.set_title(title)
        _count_updates(axes)
        for curve in curves:
            marker = "." if len(curve.points) < 5 else ""  # a short line would be invisible
            style = {"color": curve.colour, "linestyle": curve.line, "marker": marker}
            axes.plot(*zip(*curve.points, strict=True), label=curve.label, **style)
        if curves:
            _legend(axes, curves)
        else:
            axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", color="#666666")
            axes.set_xticks([])
        if is_logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
    for axes in grid[:, 0]:
        axes.set_ylabel(quantity)
    everything = [curve for curves in contents.values() for curve in curves]
    if everything and not is_logarithmic:
        grid[0, 0].set_ylim(*_range_of_bounds(everything))
    return figure


def image_grid(rows: Mapping[str, np.ndarray], image_shape: tuple[int, int]) -> Figure:
    """Return rows of images (each (number, D), values from 0 to 1) under one another, with their titles at the left.

    Images that are very high or very wide, such as rows of numbers, are stretched to a shape that fits on a page.
    """
    height, width = image_shape
    shape = min(max(height / width, 0.25), 8.0)
    columns = max(len(images) for images in rows.values())
    unit = 0.55
    figure = Figure(figsize=(1.1 + columns * unit, len(rows) * unit * shape))
    grid = figure.subplots(len(rows), 1, squeeze=False)
    figure.subplots_adjust(left=1.1 / figure.get_figwidth(), right=1, top=1, bottom=0, hspace=0.06)
    for axes, (title, images) in zip(grid[:, 0], rows.items(), strict=True):
        strip = np.full((height, columns * (width + 2)), np.nan)
        for i, image in enumerate(images):
            strip[:, i * (width + 2) : i * (width + 2) + width] = image.reshape(image_shape)
        axes.imshow(strip, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect=shape * width / height)
        axes.set_axis_off()
        axes.text(-width / 3, height / 2, title, ha="right", va="center", fontsize=7)
    return figure


def _line(
    axes: Any, metrics: Sequence[Mapping[str, Any]], name: str, label: str | None, colour: str, marker: str = ""
) -> list[float]:
    """Draw a metric where it was measured; return its values."""
    points = [(line["update"], line[name]) for line in metrics if line.get(name) is not None]
    if points:
        marker = marker or ("." if len(points) == 1 else "")  # a line of one point would be invisible
        axes.plot(*zip(*points, strict=True), label=label, color=colour, marker=marker, markersize=4)
    return [value for _, value in points]


def _count_updates(axes: Any) -> None:
    axes.set_xlabel("updates")
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda update, _: f"{update:,.0f}")


def _legend(axes: Any, curves: Sequence[Curve]) -> None:
    """Draw the legend below the panel, where it hides no curve, with a column for each group."""
    lines = {line.get_label(): line for line in axes.lines}
    columns = [list(dict.fromkeys(c.label for c in group)) for _, group in groupby(curves, lambda c: c.group)]
    longest = max(map(len, columns))
    nothing = axes.plot([], [], alpha=0)[0]
    labels = [label for column in columns for label in (*column, *[""] * (longest - len(column)))]
    handles = [lines.get(label, nothing) for label in labels]
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16)}
    axes.legend(handles, labels, **place, ncols=len(columns), handlelength=3)


def _range_of_bounds(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the range from the slowest curve after an eighth of its updates to a little above the best."""
    low = min(curve.points[len(curve.points) // 8][1] for curve in curves)
    high = max(value for curve in curves for _, value in curve.points)
    margin = 0.05 * (high - low) or max(1.0, 0.001 * abs(high))  # large numbers have no digits for less
    return low - margin, high + margin
