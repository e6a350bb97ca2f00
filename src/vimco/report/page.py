"""A document as one self-contained web page: it needs no network and no other file.

`page.html` is its template, `page.css` its style, and `page.js` makes curves interactive; without scripts they are
pictures. All text of a document is escaped, and the page's policy lets nothing else run or load.
"""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from vimco.errors import printable
from vimco.studies.document import Commands, Document, Picture, Plot, Table, Versions

FOLDER = Path(__file__).parent
MEDIA_TYPES = {"svg": "image/svg+xml", "png": "image/png"}
MOST_POINTS = 500  # of a curve in the page


def html(document: Document) -> str:
    """Return the whole page."""
    frame = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(str(value)),
        keep_trailing_newline=True,
    )
    kinds = {"table": Table, "versions": Versions, "picture": Picture, "commands": Commands}
    frame.tests.update({name: lambda block, kind=kind: isinstance(block, kind) for name, kind in kinds.items()})
    frame.filters.update({"address": _address, "points": _points})
    style, script = ((FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return frame.get_template("page.html").render(
        document=document, style=style, script=script, policy=policy(script, style)
    )


def policy(script: str, style: str) -> str:
    """Return the Content-Security-Policy that allows one inline script, one style, and pictures within the page."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _address(picture: Picture) -> str:
    return f"data:{MEDIA_TYPES[picture.kind]};base64,{base64.b64encode(picture.content).decode()}"


def _points(plot: Plot) -> str:
    """Return the curves as JSON, for the script."""

    def curve(label: str, _group: str, points: Any, colour: str, line: str) -> dict[str, Any]:
        kept = points[:: -(-len(points) // MOST_POINTS)]
        kept = kept if kept[-1] == points[-1] else [*kept, points[-1]]
        updates, values = zip(*kept, strict=True)
        rounded = [float(f"{value:.6g}") for value in values]
        return {"label": printable(label), "colour": colour, "line": line, "x": updates, "y": rounded}

    panels = [{"title": title, "curves": [curve(*c) for c in curves]} for title, curves in plot.panels.items()]
    record = {"quantity": plot.quantity, "isLogarithmic": plot.is_logarithmic, "panels": panels}
    return json.dumps(record, separators=(",", ":"))
