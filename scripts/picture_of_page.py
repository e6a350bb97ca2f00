"""Make docs/images/digit-page.png: the site's digit page in Chromium, with strokes by the mouse.

python scripts/picture_of_page.py [FILE]
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import browser_program, open_page

from vimco import load
from vimco.report.digit import digit_page

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT = 1240, 992
STROKE = [(0.34, 0.26), (0.42, 0.19), (0.54, 0.17), (0.64, 0.23), (0.63, 0.33), (0.55, 0.41), (0.47, 0.45)]


def main(path: Path) -> None:
    """Draw the top half of a two, a three or an eight, and write the picture."""
    program = browser_program()
    if program is None:
        sys.exit("The picture needs Chromium.")
    with tempfile.TemporaryDirectory() as folder, open_page(program, Path(folder) / "profile") as page:
        file = Path(folder) / "page.html"
        text = digit_page(load(ROOT / "docs" / "models" / "halves"), "best-average", half=True)
        file.write_text(text, encoding="utf-8")
        page.resize(WIDTH, 2 * HEIGHT)  # all of it is in the window, so there are no scroll bars
        page.open(file)
        page.prefer("light")
        page.drag([page.place("#pad", x, y) for x, y in STROKE])
        page.value("vimco.set({ key: [0, 3] }); vimco.draws().then(() => window.scrollTo(0, 0))")
        page.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        path.write_bytes(page.screenshot(WIDTH, HEIGHT))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "digit-page.png")
