"""Run the Python of a documentation page, and write its output into its text blocks and its figures beside it.

    python scripts/run_page.py docs/tutorial/index.md
    python scripts/run_page.py docs/tutorial/other-libraries.md numpyro      # or pyro, torch

Figures are the SVG files that the page's own code saves.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import matplotlib

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import pages


def main(page: Path, library: str | None) -> None:
    """Run the page, and rewrite it."""
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "vimco", "svg.fonttype": "none", "axes.spines.top": False}
    matplotlib.rcParams |= {"axes.spines.right": False, "font.size": 9, "savefig.transparent": False}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        outputs, text = pages.run(page, library), page.read_text()
        for figure in Path(folder).glob("*.svg"):
            shutil.copy(figure, page.parent)
    for block, printed in reversed(outputs):
        text = f"{text[: block.start]}```text\n{printed}```{text[block.end :]}"
    page.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else None)
