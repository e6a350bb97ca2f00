"""Beyond the paper: the models of Table 1 trained by recipes, beside the paper's protocol and later results."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.cells import PAPER
from vimco.studies.document import Block, Entry, Table, Text, anchor, minus, short_count
from vimco.studies.paper.protocol import generative, recipe
from vimco.studies.paper.table_1 import PUBLISHED
from vimco.studies.results import Number, has_reached, last_evaluation, number, on_protocol
from vimco.studies.study import Study, kind, register_study
from vimco.studies.tables import on_other_data

SIZES = tuple(K for K in PUBLISHED if K > 1)
UPDATES = 200_000  # of the study's own runs
# By both, the objective goes from the ELBO to L^K in the first half of a run.
RECIPES = ("warm", "warm-decay")
# VIMCO with the arithmetic mean in the repository of OVIS (Liévin et al., 2020): four million updates, 5000 samples,
# the best over training.
LATER = {5: 91.4, 10: 90.1, 50: 89.0}
COOL_DOWN = recipe("cool-down")  # of VIMCO, from the weights of another run
WITHOUT_DECAY = {**COOL_DOWN, "weight_decay": 0.0}
REMARK = (
    "The recipe warm is vimco train --recipe warm --updates 200000: the rate falls from 3e-3 to zero, and the "
    "objective goes from near the ELBO to the multi-sample bound over the first half; with --recipe warm-decay "
    "weights decay, too, since trainings over-fit the fixed binarization. The longest training by each is shown. An "
    "update of warm costs the same as VIMCO's. "
    "A cool-down goes on from a run by the protocol, perhaps one with fewer samples: vimco train --recipe cool-down "
    "--init-from RUN --num-samples 50 --updates 100000. The rates of recipes fall to zero, so averaged parameters "
    "differ little from raw ones. Later results: VIMCO with the arithmetic mean in the repository of OVIS (Liévin et "
    "al., 2020), four million updates, 5000 samples, the best over training."
)
# What --init-from of a published run names, where the records of its source have another name: K and updates.
SOURCES = {"vimco-K5": (5, 1_010_000)}


def runs() -> list[RunConfig]:
    """Whole images at K = 2, 5, 10, 50 by the recipes `warm` and `warm-decay`."""
    return [_planned(name, K, UPDATES) for name in RECIPES for K in SIZES]


def _planned(name: str, K: int, updates: int) -> RunConfig:
    return replace(PAPER, num_samples=K, updates=updates, **recipe(name, updates))


def is_by(run: Run, name: str) -> bool:
    """Return whether a run is by a recipe: with the warm-up of the study, or with that of a longer training."""
    config = run.config
    lengths = {UPDATES, max(UPDATES, config.horizon)}  # the study keeps its warm-up whatever --updates it is given
    is_shown = config.num_samples in SIZES and config.schedule != "constant"
    return is_shown and kind(config) in [kind(_planned(name, config.num_samples, updates)) for updates in lengths]


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """K in rows; the protocol, the recipes, the paper and later results in columns."""
    samples = study.evaluation_samples or 0
    body, sources = [], set()
    for K in SIZES:
        measured = number(found, generative("vimco", K)[0], samples, "best-average")
        columns = [[run for run in found if run.config.num_samples == K and is_by(run, name)] for name in RECIPES]
        cooled = [cool_downs(found, K, options) for options in (WITHOUT_DECAY, COOL_DOWN)]
        sources |= {Path(run.config.init_from or "").name for runs in cooled for run in runs}
        body.append(
            (
                Entry(str(K)),
                of_protocol(measured),
                *(evaluated(runs, samples, "best") for runs in (*columns, *cooled)),
                Entry(f"{PUBLISHED[K]['vimco']:.1f}"),
                Entry(f"{LATER[K]:.1f}" if K in LATER else "–"),
            )
        )
    recipes = (*RECIPES, "cool-down without decay", "cool-down")
    headings = ("K", "VIMCO, the protocol, averaged", *recipes, "the paper", "later")
    caption = f"Negative log-likelihood of the test set in nats, {samples} samples an image"
    named = [
        Text(f"{name} is VIMCO at K = {K} by the protocol after {short_count(updates)} updates, a run of Table 1.")
        for name, (K, updates) in SOURCES.items()
        if name in sources and any(run.updates >= updates for run in on_protocol(found, generative("vimco", K)[0]))
    ]
    table = Table(caption, headings, tuple(body), frozenset({6, 7}))
    return [table, Text(REMARK), *named, *on_other_data(found)]


def cool_downs(found: Sequence[Run], K: int, options: dict[str, Any] = COOL_DOWN) -> list[Run]:
    """Return the runs with K samples by the recipe `cool-down`, from the weights of any run."""
    return [run for run in found if run.config.num_samples == K and _is_cool_down(run, options)]


def _is_cool_down(run: Run, options: dict[str, Any]) -> bool:
    if run.config.num_samples not in SIZES:
        return False
    planned = replace(PAPER, num_samples=run.config.num_samples, **options)
    return run.config.init_from is not None and kind(replace(run.config, init_from=None)) == kind(planned)


def evaluated(found: Sequence[Run], samples: int, weights: Any) -> Entry:
    """Return the likelihood of the longest of some runs, the best by validation of several such, with its length.

    Where other seeds of that run have the same rate, warm-up, length and source, it is their mean: as for the protocol.
    A run that was stopped before the end of its schedule does not show its recipe.
    """
    known = [
        (last[0], best[1], run, last[1]["negative_log_likelihood"])
        for run in found
        if (last := last_evaluation(run, samples, weights)) and (best := run.best(weights, last[0]))
        if has_reached(run, last[0])
    ]
    if not known:
        return Entry("not evaluated" if found else "not run", is_missing=True)
    known.sort(key=lambda each: each[:2], reverse=True)
    updates, _, first, _ = known[0]
    of_seed: dict[int, float] = {}
    for length, _, run, value in known:
        if (length, *_source(run)) == (updates, *_source(first)):
            of_seed.setdefault(run.config.seed, value)
    return _entry(first, fmean(of_seed.values()), updates, len(of_seed))


def _source(run: Run) -> tuple[float, str | None, tuple[str, ...]]:
    return run.config.learning_rate, run.config.init_from, run.config.estimator_options


def of_protocol(measured: Number | None) -> Entry:
    """Return the likelihood of a cell by the paper's protocol, with its length."""
    return _entry(measured.runs[0], measured.value, measured.updates, len(measured.runs)) if measured else Entry("–")


def _entry(run: Run, value: float, updates: int, seeds: int) -> Entry:
    source = run.config.init_from
    after = f"{short_count(updates)} updates" + (f" after those of {Path(source).name}" if source else "")
    return Entry(minus(value), after + (f", {seeds} seeds" if seeds > 1 else ""), links_to=anchor(run.name))


register_study(
    Study(
        "beyond",
        "Beyond the paper: generative models by recipes",
        "test negative log-likelihood, 1000 samples",
        runs,
        show,
        evaluation_samples=1000,
        lists_missing=False,  # the table says "not run", and a longer run stands for a planned one
        shows_too=lambda run: (
            any(_is_cool_down(run, options) for options in (COOL_DOWN, WITHOUT_DECAY))
            or any(is_by(run, name) for name in RECIPES)
        ),
    )
)
