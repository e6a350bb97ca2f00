"""An estimate of the training time of a study, without its evaluations.

It uses the measured speed of the study's own runs where there is one, else a rough count of operations.
"""

import itertools
from collections.abc import Sequence
from statistics import median

import numpy as np

from vimco import data
from vimco.models import MODELS
from vimco.runs.config import RunConfig
from vimco.studies.cells import Cell
from vimco.studies.runner.tasks import Training

# Measured on two cores for 784-200-200-200, batch 24: 1.2 ms an update at K = 2, 10.5 ms at K = 50.
SECONDS_PER_UPDATE, SECONDS_PER_SAMPLE_AND_WEIGHT = 8e-4, 0.19e-3 / 473_600
SECONDS_TO_START = 10.0  # compiling, and drawing at the end
USUAL_SHAPE = (28, 28)  # assumed for a file that has not been read yet
Work = tuple[Cell, int]  # what the time of an update depends on: the cell and the batch size


def seconds_left(each: Sequence[float], workers: int) -> float:
    """Return the seconds until all runs have been trained, with this many workers."""
    return max(max(each, default=0.0), sum(each) / workers)


def seconds_of_each(trainings: Sequence[Training]) -> list[float]:
    """Return the seconds that each run still needs. Runs of one cell and batch size are assumed to be equally fast."""
    measured: dict[Work, list[float]] = {}
    rough: dict[Work, float] = {}
    known = {dataset.name: dataset.image_shape for dataset in data.available()}
    positions = []
    for training in trainings:
        config, run = training.config, training.run()
        image_shape = run.image_shape if run else known.get(config.data, USUAL_SHAPE)
        rough[_work(config)] = rough_seconds_per_update(config, image_shape)
        positions.append(training.target if training.is_done() else (run.updates if run else 0))
        speeds = [line["updates_per_second"] for line in run.metrics() if line.get("updates_per_second")] if run else []
        if len(speeds) > 1:  # the first one counts the time to compile
            measured.setdefault(_work(config), []).append(1 / max(speeds[-1], 0.01))
    factor = median([median(speeds) / rough[work] for work, speeds in measured.items()] or [1.0])
    per_update = {
        work: median(measured[work]) if work in measured else factor * seconds for work, seconds in rough.items()
    }
    return [
        SECONDS_TO_START + (training.target - position) * per_update[_work(training.config)]
        if position < training.target
        else 0.0
        for training, position in zip(trainings, positions, strict=True)
    ]


def _work(config: RunConfig) -> Work:
    return Cell.of(config), config.batch_size


def rough_seconds_per_update(config: RunConfig, image_shape: tuple[int, int]) -> float:
    """Return an estimate from K and the number of weights."""
    context, observation = MODELS[config.task].divide(np.zeros(image_shape).ravel(), image_shape)
    sizes = (context.size, *config.layers, observation.size)
    weights = sum(a * b for a, b in itertools.pairwise(sizes))
    passes = 2 if config.proposal == "learned" else 1
    samples = config.num_samples * config.batch_size / 24
    return SECONDS_PER_UPDATE + SECONDS_PER_SAMPLE_AND_WEIGHT * samples * weights * passes


def words(seconds: float) -> str:
    """Return a readable length of time: "40 s", "5 min", "3 h 20 min", "2 d 4 h"."""
    for size, unit, smaller, smaller_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if seconds >= size:
            whole, rest = divmod(round(seconds / smaller), size // smaller)
            return f"{whole} {unit} {rest} {smaller_unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
