"""Every drawing, in one style. Figures come back as bytes of a file; nothing here writes."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",
}

# Okabe & Ito's palette: told apart by colour-blind eyes too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def figure_bytes(figure: Figure, kind: str = "png") -> bytes:
    """The figure as the content of a file."""
    buffer = io.BytesIO()
    # No date in the file: the same figure gives the same bytes.
    metadata = {"Date": None} if kind == "svg" else {}
    figure.savefig(buffer, format=kind, dpi=150, bbox_inches="tight", metadata=metadata)
    return buffer.getvalue()


def curves(metrics: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Bound, learning signal and effective sample size of one run against updates."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 2.9), layout="constrained")
        bound, signal, effective = figure.subplots(1, 3)
        _line(bound, metrics, "train_bound", "training", COLOURS[5])
        _line(bound, metrics, "validation_bound", "validation", COLOURS[0], marker=".")
        _line(bound, metrics, "average_validation_bound", "validation, averaged parameters", COLOURS[1], marker=".")
        _line(signal, metrics, "signal_rms", None, COLOURS[0])
        _line(effective, metrics, "effective_sample_size", None, COLOURS[0])
        _show_the_end(bound, metrics)
        bound.set_ylabel("bound (nats)")
        signal.set_ylabel("learning signal (RMS)")
        effective.set_ylabel("effective sample size")
        if bound.lines:
            bound.legend(loc="lower right")
        for axes in (bound, signal, effective):
            axes.set_xlabel("updates")
            axes.ticklabel_format(axis="x", style="plain", useOffset=False)
            axes.locator_params(axis="x", nbins=5)
        if title:
            figure.suptitle(title, fontsize=9)
        return figure


def image_grid(rows: Mapping[str, np.ndarray], image_shape: tuple[int, int]) -> Figure:
    """Rows of images (each (number, D), values from 0 to 1) under one another, with their titles at the left."""
    height, width = image_shape
    columns = max(len(images) for images in rows.values())
    unit = 0.55
    figure = Figure(figsize=(1.1 + columns * unit, len(rows) * unit * height / width))
    grid = figure.subplots(len(rows), 1, squeeze=False)
    figure.subplots_adjust(left=1.1 / figure.get_figwidth(), right=1, top=1, bottom=0, hspace=0.06)
    for axes, (title, images) in zip(grid[:, 0], rows.items(), strict=True):
        strip = np.full((height, columns * (width + 2)), np.nan)
        for i, image in enumerate(images):
            strip[:, i * (width + 2) : i * (width + 2) + width] = image.reshape(image_shape)
        axes.imshow(strip, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_axis_off()
        axes.text(-width / 3, height / 2, title, ha="right", va="center", fontsize=7)
    return figure


def _line(
    axes: Any, metrics: Sequence[Mapping[str, Any]], name: str, label: str | None, colour: str, marker: str = ""
) -> None:
    points = [(line["update"], line[name]) for line in metrics if line.get(name) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, color=colour, marker=marker, markersize=4)


def _show_the_end(axes: Any, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Leaves the steep first steps out of view, so that the differences that count can be seen."""
    names = ("train_bound", "validation_bound", "average_validation_bound")
    values = [line[name] for line in metrics for name in names if line.get(name) is not None]
    if len(values) > 20:
        low, high = np.quantile(values, 0.1), max(values)
        axes.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
