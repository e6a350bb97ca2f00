"""The command `vimco page`: parse, call, print."""

from dataclasses import dataclass
from pathlib import Path

from vimco.cli.options import OneRun, Parameters, Plugin, refuse_missing_folder
from vimco.cli.terminal import out
from vimco.files import write_file
from vimco.report.digit import digit_page
from vimco.runs import directory


@dataclass(frozen=True)
class Page:
    """Make a web page with the model of a run inside, to draw on.

    Structured models complete the digit whose top half you draw, and score a whole one. Generative models dream, and
    explain the digit that you draw. The page is one file: it needs no server, no network and no installation.
    """

    run: OneRun
    output: Path | None = None
    """The HTML file to write; by default page.html in the run directory."""
    weights: Parameters = "best"
    half: bool = False
    """Round the parameters to 16 bits: the page is half as large, and log-probabilities change a little."""
    plugin: Plugin = None

    def __call__(self) -> None:
        """Write the page, and print its path."""
        refuse_missing_folder("--output", self.output)
        run = directory.load(self.run)
        path = self.output or run.path / "page.html"
        content = digit_page(run, self.weights, half=self.half).encode()
        write_file(path, content)
        out.print(f"Page: {path} ({len(content) / 1e6:.1f} MB). Open it in a browser, and draw.")
