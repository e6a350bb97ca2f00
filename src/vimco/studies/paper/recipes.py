"""Recipes: rates and schedules beside the paper's constant rate, after equally many updates of the same cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vimco.runs.config import RunConfig
from vimco.runs.curve import COLOURS, Curve
from vimco.runs.directory import Run
from vimco.runs.recipes import RECIPES
from vimco.studies.cells import PAPER
from vimco.studies.curves import plot
from vimco.studies.document import Block, Entry, Table, Text, anchor, minus, short_count
from vimco.studies.study import Study, register_study


def _options(recipe: str) -> dict[str, Any]:
    return {name: value for name, value in RECIPES[recipe].options.items() if name != "averaging"}


# Title: where a run departs from the paper's protocol.
CANDIDATES: dict[str, dict[str, Any]] = {
    "constant, 1e-3 (the default)": {},
    "constant, 3e-3": {"learning_rate": 3e-3},
    "cosine from 1e-3": {"schedule": "cosine"},
    "cosine from 3e-3 (--recipe falling)": _options("falling"),
    "cosine from 5e-3, 1000 updates of warm-up": {
        "learning_rate": 5e-3,
        "schedule": "cosine",
        "warmup_updates": 1000,
    },
    "cosine from 3e-3, f̂ = 0": {
        "learning_rate": 3e-3,
        "schedule": "cosine",
        "estimator": "vimco-leave-one-out",
    },
    "cosine from 3e-3, Rényi warm-up over 25k updates (--recipe warm)": _options("warm"),
    "cosine from 3e-3, Rényi warm-up over 50k updates": {
        **_options("warm"),
        "estimator_options": ("updates=50000",),
    },
    "cosine from 3e-3, the ELBO by RLOO": {**_options("warm"), "estimator": "rloo"},
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
    pairs = [(title, run) for title, options in CANDIDATES.items() for run in found if _is_of(run, options)]
    lengths = Counter(run.updates for _, run in pairs)
    length = max(lengths, key=lambda updates: (lengths[updates], updates), default=0)
    rows = {title: run for title, run in pairs if _has_reached(run, length)}
    if len(rows) < 2:
        return [Text(f"Nothing to compare yet. The command is: vimco study {study.name}")]
    headings = (f"{short_count(length)} updates", "raw parameters", "averaged parameters")
    body = tuple(
        (
            Entry(title, links_to=anchor(run.name)),
            _best(run, "validation_bound", length),
            _best(run, "average_validation_bound", length),
        )
        for title, run in rows.items()
    )
    lines = [
        Curve(title, "", points, COLOURS[i % len(COLOURS)], ("-", "--")[i // len(COLOURS)])
        for i, (title, run) in enumerate(rows.items())
        if (points := [(update, bound) for update, bound in run.curve("validation_bound") if update <= length])
    ]
    return [
        Table("Validation bound in nats: generative, K = 5", headings, body),
        Text(EXPLANATION),
        plot(study.name, {"generative, K = 5": lines}, "validation bound (nats)", CAPTION),
    ]


def _is_of(run: Run, options: dict[str, Any]) -> bool:
    wanted = replace(PAPER, updates=run.config.horizon, **options).identity
    free = {"seed", "averaging", "slice_size"}
    return all(run.config.identity[name] == value for name, value in wanted.items() if name not in free)


def _has_reached(run: Run, length: int) -> bool:
    """Return whether a run shows its recipe at this length; at a constant rate a longer run does too."""
    return run.updates >= length if run.config.schedule == "constant" else run.updates == length


def _best(run: Run, metric: str, length: int) -> Entry:
    bounds = [bound for update, bound in run.curve(metric) if update <= length]
    return Entry(minus(max(bounds))) if bounds else Entry("–", is_missing=True)


register_study(
    Study(
        "recipes",
        "Recipes: rates and schedules after equal time",
        "validation bound after equally many updates",
        runs,
        show,
    )
)
