"""Recipes: rates, schedules and mini-batches beside the paper's, after equally many images."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run, Weights
from vimco.studies.cells import PAPER
from vimco.studies.curves import distinct_curves, plot
from vimco.studies.document import MISSING, Block, Entry, Table, Text, anchor, minus, short_count
from vimco.studies.paper.protocol import recipe
from vimco.studies.results import has_reached, usual_length
from vimco.studies.study import Study, kind, register_study
from vimco.studies.tables import PARAMETERS

UPDATES = 50_000  # of the paper's mini-batches, after which the candidates are compared
# Title: where a run departs from the paper's protocol.
CANDIDATES: dict[str, dict[str, Any]] = {
    "constant, 1e-3 (the default)": {},
    "constant, 3e-3": {"learning_rate": 3e-3},
    "cosine from 1e-3": {"schedule": "cosine"},
    "cosine from 3e-3 (--recipe falling)": recipe("falling"),
    "cosine from 5e-3, 1000 updates of warm-up": {**recipe("falling"), "learning_rate": 5e-3, "warmup_updates": 1000},
    "cosine from 3e-3, f̂ = 0": {**recipe("falling"), "estimator": "vimco-leave-one-out"},
    "cosine from 3e-3, Rényi warm-up over 25k updates (--recipe warm)": recipe("warm", UPDATES),
    "cosine from 3e-3, Rényi warm-up over 50k updates": {
        **recipe("warm"),
        "estimator_options": (f"updates={UPDATES}",),
    },
    "cosine from 3e-3, the ELBO by RLOO": {**recipe("falling"), "estimator": "rloo"},
    "cosine from 3e-3, batch 96": {**recipe("falling"), "batch_size": 96},
    "cosine from 6e-3, batch 96": {**recipe("falling"), "batch_size": 96, "learning_rate": 6e-3},
}
EXPLANATION = (
    "The best bound on the validation set with the training K. An update costs the same in all rows but those of "
    "larger mini-batches, so equal updates are equal time. Larger mini-batches have fewer updates, on as many images "
    "in all. A cosine schedule ends at zero with its run."
)
CAPTION = (
    "The bound on the validation set with raw parameters, against updates by mini-batches of the paper's size: an "
    "update on 96 images counts as four."
)


def runs() -> list[RunConfig]:
    """Whole images, K = 5: constant and falling rates, and larger mini-batches."""
    candidates = [replace(PAPER, **options) for options in CANDIDATES.values()]
    return [replace(config, updates=UPDATES // _size(config)) for config in candidates]


def _size(config: RunConfig) -> int:
    """Return the size of a mini-batch in those of the paper."""
    return config.batch_size // PAPER.batch_size


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Candidates in rows, with raw and averaged parameters, at the length in images that most of them share."""
    candidates = {
        title: [run for run in found if (kind(run.config), run.config.learning_rate) == (kind(c), c.learning_rate)]
        for title, c in zip(CANDIDATES, runs(), strict=True)
    }
    # Each candidate counts once, however many seeds it has.
    length = usual_length(
        updates for of_title in candidates.values() for updates in {run.updates * _size(run.config) for run in of_title}
    )
    raw, averaged = (
        {title: best for title, of_title in candidates.items() if (best := _best(of_title, length, weights))}
        for weights in PARAMETERS
    )
    if len(raw) < 2:
        return [Text(f"Nothing to compare yet. The command is: vimco study {study.name}")]
    headings = (f"{short_count(length)} updates", "raw parameters", "averaged parameters")
    body = tuple(
        (
            Entry(title, links_to=anchor(run.name)),
            Entry(minus(bound)),
            Entry(minus(averaged[title][0])) if title in averaged else MISSING,
        )
        for title, (bound, run) in raw.items()
    )
    curves = {
        title: [(u * size, bound) for u, bound in run.curve("validation_bound") if u * size <= length]
        for title, (_, run) in raw.items()
        for size in [_size(run.config)]
    }
    return [
        Table("Validation bound in nats: generative, K = 5", headings, body),
        Text(EXPLANATION),
        plot(study.name, {"generative, K = 5": distinct_curves(curves)}, "validation bound (nats)", CAPTION),
    ]


def _best(runs: Sequence[Run], length: int, weights: Weights) -> tuple[float, Run] | None:
    """Return the best bound up to a length, and its run, of runs that differ in seed or averaging alone.

    The length is in mini-batches of the paper. Only the first seed counts: the best of several would have an advantage
    over rows with one.
    """
    reached = [(run, length // _size(run.config)) for run in runs if has_reached(run, length // _size(run.config))]
    first = min((run.config.seed for run, _ in reached), default=0)
    known = [(b[1], run) for run, end in reached if run.config.seed == first and (b := run.best(weights, end))]
    return max(known, key=lambda pair: pair[0], default=None)


register_study(
    Study(
        "recipes",
        "Recipes: rates, schedules and mini-batches after equally many images",
        "validation bound after equally many images",
        runs,
        show,
    )
)
