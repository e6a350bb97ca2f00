"""Draws from the best generative model: of Table 1, or by a recipe."""

import math
from collections.abc import Sequence

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.curves import picture_of
from vimco.studies.document import Block
from vimco.studies.paper import table_1
from vimco.studies.results import last_evaluation
from vimco.studies.study import Study, register_study

CAPTION = "Test images, their reconstructions, and below them probabilities of pixels given draws from the model."


def runs() -> list[RunConfig]:
    """Those of `table-1`."""
    return table_1.runs()


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """The picture of the generative run with the best likelihood, or before evaluations the best bound.

    Records that are published without their picture do not count, unless none has one.
    """

    def quality(run: Run) -> tuple[float, float]:
        last, (_, bound) = last_evaluation(run, 1000), run.best() or (0, -math.inf)
        likelihood = -last[1]["negative_log_likelihood"] if last else -math.inf
        return (likelihood if math.isfinite(likelihood) else -math.inf, bound)

    of_task = [run for run in found if run.config.task == "generative" and run.best() is not None]
    candidates = [run for run in of_task if (run.path / "samples.png").exists()] or of_task
    return [picture_of(max(candidates, key=quality, default=None), study.name, CAPTION)]


register_study(
    Study(
        "samples",
        "Samples of the best generative model",
        "test images, reconstructions, draws",
        runs,
        show,
        lists_missing=False,
    )
)
