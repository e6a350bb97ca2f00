"""Recipes: rates and schedules beside the paper's constant rate, after equally many updates of the same cost."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.cells import PAPER
from vimco.studies.curves import Points, distinct_curves, plot
from vimco.studies.document import MISSING, Block, Entry, Table, Text, anchor, minus, short_count
from vimco.studies.paper.protocol import recipe
from vimco.studies.results import usual_length
from vimco.studies.study import Study, kind, register_study

# Title: where a run departs from the paper's protocol.
CANDIDATES: dict[str, dict[str, Any]] = {
    "constant, 1e-3 (the default)": {},
    "constant, 3e-3": {"learning_rate": 3e-3},
    "cosine from 1e-3": {"schedule": "cosine"},
    "cosine from 3e-3 (--recipe falling)": recipe("falling"),
    "cosine from 5e-3, 1000 updates of warm-up": {**recipe("falling"), "learning_rate": 5e-3, "warmup_updates": 1000},
    "cosine from 3e-3, f̂ = 0": {**recipe("falling"), "estimator": "vimco-leave-one-out"},
    # The recipe, with the 50,000 updates for which these runs are compared.
    "cosine from 3e-3, Rényi warm-up over 25k updates (--recipe warm)": recipe("warm", 50_000),
    "cosine from 3e-3, Rényi warm-up over 50k updates": {**recipe("warm"), "estimator_options": ("updates=50000",)},
    "cosine from 3e-3, the ELBO by RLOO": {**recipe("falling"), "estimator": "rloo"},
}
EXPLANATION = (
    "The best bound on the validation set with the training K. An update costs the same in all rows, so equal updates "
    "are equal time. A cosine schedule ends at zero with its run."
)
CAPTION = "The bound on the validation set with raw parameters, against updates."


def runs() -> list[RunConfig]:
    """Whole images, K = 5: constant and falling rates."""
    return [replace(PAPER, **options) for options in CANDIDATES.values()]


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Candidates in rows, with raw and averaged parameters, at the length that most of them share."""
    pairs = [
        (title, run)
        for title, config in zip(CANDIDATES, runs(), strict=True)
        for run in found
        if (kind(run.config), run.config.learning_rate) == (kind(config), config.learning_rate)
    ]
    length = usual_length(run.updates for _, run in pairs)
    rows = {title: run for title, run in pairs if _has_reached(run, length)}
    if len(rows) < 2:
        return [Text(f"Nothing to compare yet. The command is: vimco study {study.name}")]
    headings = (f"{short_count(length)} updates", "raw parameters", "averaged parameters")
    raw, averaged = (
        {title: [point for point in run.curve(metric) if point[0] <= length] for title, run in rows.items()}
        for metric in ("validation_bound", "average_validation_bound")
    )
    body = tuple(
        (Entry(title, links_to=anchor(run.name)), _best(raw[title]), _best(averaged[title]))
        for title, run in rows.items()
    )
    return [
        Table("Validation bound in nats: generative, K = 5", headings, body),
        Text(EXPLANATION),
        plot(study.name, {"generative, K = 5": distinct_curves(raw)}, "validation bound (nats)", CAPTION),
    ]


def _has_reached(run: Run, length: int) -> bool:
    """Return whether a run shows its recipe at this length; at a constant rate a longer run does too."""
    return run.updates >= length if run.config.schedule == "constant" else run.updates == length


def _best(points: Points) -> Entry:
    return Entry(minus(max(bound for _, bound in points))) if points else MISSING


register_study(
    Study(
        "recipes",
        "Recipes: rates and schedules after equal time",
        "validation bound after equally many updates",
        runs,
        show,
    )
)
