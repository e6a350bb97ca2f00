"""The command `vimco sample`: parse, call, print."""

from dataclasses import dataclass
from pathlib import Path

from vimco.cli.options import OneRun, Parameters, Plugin, refuse_missing_folder
from vimco.cli.terminal import out
from vimco.errors import UsageError
from vimco.runs import directory, pictures

MAX_IMAGES = 200  # in a row or a column: a picture of more could not be drawn


@dataclass(frozen=True)
class Sample:
    """Draw a picture of what a run has learned.

    Generative models: data, reconstructions and samples. Structured models: the original images on top, below them
    the same top halves with the bottom half's probabilities given one draw from the prior, in grey.

    Attention models: images, and below them what each glimpse shows, as many rows as there are glimpses.
    """

    run: OneRun
    output: Path | None = None
    """The PNG file to write; by default samples.png in the run directory."""
    rows: int = 6
    """Rows of samples or completions."""
    columns: int = 12
    """Images in a row."""
    weights: Parameters = "best"
    seed: int = 0
    """Which images and draws."""
    plugin: Plugin = None

    def __call__(self) -> None:
        """Write the picture, and print its path."""
        if self.rows < 1 or self.columns < 1:
            raise UsageError("--rows and --columns must be positive.")
        if max(self.rows, self.columns) > MAX_IMAGES:
            raise UsageError(f"A picture has at most {MAX_IMAGES} rows and {MAX_IMAGES} columns.")
        refuse_missing_folder("--output", self.output)
        run = directory.load(self.run)
        path = pictures.draw_samples(
            run, self.output, rows=self.rows, columns=self.columns, weights=self.weights, seed=self.seed
        )
        out.print(f"Picture: {path}")
