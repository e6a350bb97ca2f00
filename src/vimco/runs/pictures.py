"""The pictures of a run: its curves, and samples of its model."""

from pathlib import Path
from typing import Any

from vimco.errors import UsageError
from vimco.files import write_file
from vimco.models import MODELS
from vimco.runs.directory import Run, Weights
from vimco.runs.experiment import Experiment, Purpose, key_for, precision
from vimco.runs.observer import Observer


class Pictures(Observer):
    """An observer that draws the pictures of a run at its end."""

    def finished(self, run: Run, experiment: Experiment, model: Any) -> None:
        """Write `curves.png` and `samples.png`, from the data and the model in memory."""
        draw_curves(run)
        if MODELS[run.config.task].pictures is not None:
            draw_samples(run, experiment=experiment, model=model)


def draw_curves(run: Run) -> None:
    """Write `curves.png` into the run directory."""
    from vimco.runs import figures  # matplotlib is slow to import and rarely needed

    config = run.config
    estimator = " ".join((config.estimator, *config.estimator_options))
    title = f"{config.data}, {config.task}, {estimator}, K = {config.num_samples}, seed {config.seed}"
    write_file(run.path / "curves.png", figures.figure_bytes(figures.figure_of_metrics(run.metrics(), title)))


def draw_samples(
    run: Run,
    output: Path | None = None,
    *,
    rows: int = 6,
    columns: int = 12,
    weights: Weights = "best",
    seed: int = 0,
    experiment: Experiment | None = None,
    model: Any = None,
) -> Path:
    """Write a picture of test images and the model's samples: `samples.png`, if no name is given.

    `experiment` and `model` are those of the run, if they are already in memory.
    """
    from vimco.runs import figures

    make = MODELS[run.config.task].pictures
    if make is None:
        raise UsageError(f"A model of the task {run.config.task} draws no pictures.")
    with precision(run.config):
        model = run.model(weights) if model is None else model
        examples = (experiment or Experiment(run.config, run.dataset())).examples("test")
        images = make(model, key_for(Purpose.PICTURES, seed), examples, columns, rows)
    path = output or run.path / "samples.png"
    write_file(path, figures.figure_bytes(figures.image_grid(images, run.image_shape)))
    return path
