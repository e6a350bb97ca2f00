"""Write the table and the picture of test likelihood against training time, from the records in docs/results.

    python scripts/time_to_quality.py

The table stands in docs/explanation/speed.md. Times are updates times the milliseconds of one update in the tables of
that page, which `make bench` measures on a quiet machine: the runs themselves may have shared theirs.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vimco.runs.curve import COLOUR_OF_K
from vimco.runs.directory import Run
from vimco.runs.figures import STYLE, figure_bytes
from vimco.studies.paper import beyond
from vimco.studies.paper.protocol import generative
from vimco.studies.paper.table_1 import PUBLISHED
from vimco.studies.results import collected, has_reached, on_protocol

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE = DOCS / "explanation" / "speed.md", DOCS / "images" / "time-to-quality.svg"
START, END = "<!-- written by scripts/time_to_quality.py -->\n", "<!-- end -->\n"
HEADINGS = ("by", "K", "updates", "minutes here", "minutes in plain JAX", "test NLL, raw", "test NLL, averaged")
MARKERS = {
    "VIMCO, rate 1e-3": "o",
    "recipe warm": "D",
    "recipe warm-decay": "s",
    "recipe cool-down": "*",
    "cool-down without decay": "X",
}
MARKER_SIZES = {"o": 5.5, "D": 5.5, "s": 5.5, "*": 11, "X": 7}
Stages = tuple[tuple[int, int], ...]  # K and updates, one after the other


@dataclass(frozen=True)
class Point:
    """One measured model: how it was trained, and its negative log-likelihoods."""

    by: str
    stages: Stages
    raw: float | None
    averaged: float | None

    @property
    def num_samples(self) -> int:
        """K at the end of the training."""
        return self.stages[-1][0]

    @property
    def quality(self) -> float | None:
        """The likelihood in the picture."""
        return self.raw if self.averaged is None else self.averaged

    def minutes(self, milliseconds: dict[int, float]) -> float:
        """Return how long such a training takes."""
        return sum(updates * milliseconds[K] for K, updates in self.stages) / 60_000

    def row(self, own: dict[int, float], plain: dict[int, float]) -> str:
        """Return it as a row of the table."""
        counts = " + ".join(
            f"{updates:,}" + (f" at K = {K}" if len(self.stages) > 1 else "") for K, updates in self.stages
        )
        values = ("–" if value is None else f"{value:.2f}" for value in (self.raw, self.averaged))
        times = (f"{self.minutes(ms):.1f}" for ms in (own, plain))
        return "| " + " | ".join((self.by, str(self.num_samples), counts, *times, *values)) + " |"


def milliseconds_on(page: str) -> tuple[dict[int, float], dict[int, float]]:
    """Return the milliseconds of one update by K, of this program and of plain JAX, in the tables of the page."""
    rows = (r"^\| generative \| (\d+) \| ([\d.]+) \|", r"^\| a whole update \| (\d+) \| ([\d.]+) \|")
    own, plain = ({int(K): float(ms) for K, ms in re.findall(row, page, re.MULTILINE)} for row in rows)
    return own, plain


def points(runs: Sequence[Run]) -> Iterator[Point]:
    """Return the evaluated models of Table 1: by VIMCO, rate 1e-3 and seed 0, by recipes, and by their cool-downs."""
    protocol, warm, decaying, *cool_downs = MARKERS
    for K in beyond.SIZES:
        of_K = on_protocol(runs, generative("vimco", K)[0])
        found = [
            point
            for run in of_K
            if (run.config.learning_rate, run.config.seed) == (1e-3, 0)
            for updates in (*run.stages, run.updates)
            for point in _evaluated(run, protocol, ((K, updates),), updates)
        ]
        lengths = {point.stages: point for point in found}  # a run and its longer copy have some in common
        yield from (lengths[stages] for stages in sorted(lengths))
    for by, name in zip((warm, decaying), beyond.RECIPES, strict=True):
        for run in sorted(runs, key=lambda run: (run.config.num_samples, run.updates)):
            if beyond.is_by(run, name) and has_reached(run, run.updates):
                yield from _evaluated(run, by, ((run.config.num_samples, run.updates),))
    for by, options in zip(cool_downs, (beyond.COOL_DOWN, beyond.WITHOUT_DECAY), strict=True):
        for K in beyond.SIZES:
            for run in beyond.cool_downs(runs, K, options):
                if has_reached(run, run.updates) and (
                    source := beyond.SOURCES.get(Path(run.config.init_from or "").name)
                ):
                    yield from _evaluated(run, by, (source, (K, run.updates)))


def _evaluated(run: Run, by: str, stages: Stages, updates: int | None = None) -> Iterator[Point]:
    records = [run.evaluation(1000, weights, updates) for weights in ("best", "best-average")]
    values = [record["negative_log_likelihood"] if record else None for record in records]
    if any(values):
        yield Point(by, stages, *values)


def with_table(page: str, found: Sequence[Point]) -> str:
    """Return the page with the table of these points in its place."""
    rows = (point.row(*milliseconds_on(page)) for point in found)
    table = ("| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|", *rows)
    before, rest = page.split(START)
    return before + START + "\n" + "\n".join(table) + "\n\n" + END + rest.split(END, 1)[1]


@mpl.rc_context(STYLE)
def picture(found: Sequence[Point], own: dict[int, float]) -> Figure:
    """Return the likelihoods against minutes; K has a colour and a recipe a marker."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for K in beyond.SIZES:
        axes.axhline(PUBLISHED[K]["vimco"], color=COLOUR_OF_K[K], linestyle=":", linewidth=0.9)
        for by, marker in MARKERS.items():
            known = [p for p in found if (p.by, p.num_samples) == (by, K) and p.quality is not None]
            places = [p.minutes(own) for p in known]
            line = "-" if marker == "o" else ""
            axes.plot(
                places,
                [p.quality for p in known],
                color=COLOUR_OF_K[K],
                marker=marker,
                ls=line,
                ms=MARKER_SIZES[marker],
            )
    axes.set(
        xscale="log",
        xlabel="minutes of training on two cores",
        ylabel="test NLL (nats), averaged parameters if evaluated",
    )
    shown = [
        m for m in (2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150) if axes.get_xlim()[0] <= m <= axes.get_xlim()[1]
    ]
    axes.set_xticks(shown, [str(m) for m in shown])
    axes.set_xticks([], minor=True)
    colours = [Line2D([], [], color=COLOUR_OF_K[K], label=f"K = {K}") for K in beyond.SIZES]
    shapes = [
        Line2D([], [], color="#666666", marker=m, ms=MARKER_SIZES[m], ls="", label=by) for by, m in MARKERS.items()
    ]
    paper = Line2D([], [], color="#666666", linestyle=":", label="the paper")
    axes.legend(handles=[*colours, *shapes, paper], ncols=2, loc="upper right")
    return figure


def main() -> None:
    """Write the table and the picture."""
    page = PAGE.read_text(encoding="utf-8")
    found = list(points(collected([DOCS / "results"])[0]))
    PAGE.write_text(with_table(page, found), encoding="utf-8")
    PICTURE.write_bytes(figure_bytes(picture(found, milliseconds_on(page)[0]), "svg"))


if __name__ == "__main__":
    main()
