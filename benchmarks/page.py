"""The digit page in Chromium: the time from a movement of the pen to the pictures of it.

The mouse draws strokes in the top half without a pause, while the page is still at work on the movement before. A time
goes from the event of a movement to the end of the frame in which all twelve pictures have changed.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import Page, browser_program, open_page

import vimco
from vimco.models import structured_sbn
from vimco.report.digit import digit_page, page_of_model

ROOT = Path(__file__).parents[1]
LIMIT_MS = 100.0
SIDE = 28
STROKES = [[(0.2 + 0.05 * step, 0.06 + 0.05 * row + 0.005 * step) for step in range(13)] for row in range(6)]
# The page asks for its frame before this script does, so its callback comes first; the message comes after both.
WATCH = """
const tiles = [...document.querySelectorAll('#gallery canvas')];
const pictures = () => tiles.map(canvas => canvas.toDataURL());
let shown = pictures();
window.times = [];
for (const kind of ['pointerdown', 'pointermove']) {
  document.getElementById('pad').addEventListener(kind, event => {
    if (!event.buttons) return;
    const old = shown;
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        const milliseconds = performance.now() - event.timeStamp;
        shown = pictures();
        times.push([milliseconds, shown.filter((picture, t) => picture === old[t]).length]);
      };
      port2.postMessage(null);
    });
  });
}
document.getElementById('clear').addEventListener('click', () => vimco.draws().then(() => (shown = pictures())));
"""


def page_records() -> list[dict[str, Any]]:
    """Return a record for each model, thing to do, and speed of the processor; none without Chromium."""
    program = browser_program()
    if program is None:
        return []
    records = []
    with tempfile.TemporaryDirectory() as folder, open_page(program, Path(folder) / "profile") as page:
        page.resize(1200, 900)
        for layers, text in models():
            path = Path(folder) / "page.html"
            path.write_text(text, encoding="utf-8")
            for slowdown in (1, 4):
                page.slow_down(slowdown)
                for mode, pictures in enumerate(("completions", "explanations")):
                    page.open(path)
                    page.value(f"document.querySelectorAll('#modes input')[{mode}].click()")
                    times = milliseconds(page)
                    records.append(
                        {
                            "kind": "page",
                            "layers": layers,
                            "pictures": pictures,
                            "slowdown": slowdown,
                            "movements": len(times),
                            "median_ms": median(times),
                            "worst_ms": max(times),
                            "limit": LIMIT_MS,
                        }
                    )
    return records


def models() -> Iterator[tuple[str, str]]:
    """Return the widths and the page of the site's model, and of the paper's, untrained: half of its units are on."""
    yield "100-100", digit_page(vimco.load(ROOT / "docs" / "models" / "halves"), "best-average", half=True)
    mean = jnp.full(SIDE * SIDE // 2, 0.1)
    model = structured_sbn(jax.random.key(0), (200, 200, 200), mean, mean)
    header = {"task": "structured", "shape": (SIDE, SIDE), "symmetric": False}
    yield (
        "200-200-200",
        page_of_model(model, {**header, "examples": "", "reference": "", "facts": []}, title="", half=False),
    )


def milliseconds(page: Page) -> list[float]:
    """Draw all strokes, each on an empty pad; return the time of every movement."""
    page.value(f"vimco.draws().then(() => {{ {WATCH} }})")
    for stroke in STROKES:
        page.value("document.getElementById('clear').click()")
        page.value("vimco.draws().then(() => null)")
        page.drag([page.place("#pad", x, y) for x, y in stroke])
    times = page.value("vimco.draws().then(() => times)")
    if len(times) < len(STROKES) or any(unchanged for _, unchanged in times):
        raise RuntimeError(f"a movement of the pen left pictures as they were: {times}")
    return [time for time, _ in times]
