"""The command `vimco sample`: parse, call, print."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vimco.cli.evaluate import refuse_missing_folder
from vimco.cli.options import Plugin
from vimco.cli.terminal import out
from vimco.errors import UsageError
from vimco.runs import directory, pictures
from vimco.runs.directory import Weights

MAX_IMAGES = 200  # in a row or a column: a picture of more could not be drawn

OneRun = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True)
class Sample:
    """Draw a picture of what a run has learned.

    Generative models: data, reconstructions and samples. Structured models: the original images on top, below them
    the same top halves with the bottom half's probabilities given one draw from the prior, in grey.

    Attention models: images, and below them what each glimpse shows, as many rows as there are glimpses.
    """

    run: OneRun
    """A run directory."""
    output: Path | None = None
    """The PNG file to write; by default samples.png in the run directory."""
    rows: int = 6
    """Rows of samples or completions."""
    columns: int = 12
    """Images in a row."""
    weights: Weights = "best"
    """Which parameters: the best by validation, the latest, or the best averaged ones."""
    seed: int = 0
    """Which images and draws."""
    plugin: Plugin = None

    def __call__(self) -> None:
        """Write the picture, and print its path."""
        if self.rows < 1 or self.columns < 1:
            raise UsageError("--rows and --columns must be positive.")
        if max(self.rows, self.columns) > MAX_IMAGES:
            raise UsageError(f"A picture has at most {MAX_IMAGES} rows and {MAX_IMAGES} columns.")
        if self.output is not None:
            refuse_missing_folder("--output", self.output)
        path = pictures.draw_samples(
            directory.load(self.run),
            self.output,
            rows=self.rows,
            columns=self.columns,
            weights=self.weights,
            seed=self.seed,
        )
        out.print(f"Picture: {path}")
