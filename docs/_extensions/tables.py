"""Tables that fit: long names of code can break after separators, and on a phone the rows of wide tables are cards.

There the cells are below one another, each with its heading, the attribute `data-label`, which `site.css` shows.
"""

import html
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

NARROW = 44  # characters side by side on a phone: the longest cells of all columns together
SENTENCE = 30  # characters; a table of shorter cells, of numbers above all, is read in columns, and scrolls
HEADING = 14  # a heading of so few characters stays in one line


def labelled(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Mark wide tables by a class, and their cells by the heading above them."""
    for table in doctree.findall(nodes.table):
        heads = [entry for head in table.findall(nodes.thead) for entry in head.findall(nodes.entry)]
        rows = [
            list(row.findall(nodes.entry)) for body in table.findall(nodes.tbody) for row in body.findall(nodes.row)
        ]
        for head in heads:
            if len(head.astext()) <= HEADING:
                head["classes"].append("short")
        if len(heads) < 2 or any(len(row) != len(heads) for row in rows):
            continue
        lengths = [max(len(entry.astext()) for entry in column) for column in zip(heads, *rows, strict=True)]
        if sum(lengths) > NARROW and max(lengths) > SENTENCE:
            table["classes"].append("cards")
            for row in rows:
                for head, entry in zip(heads, row, strict=True):
                    entry["label"] = head.astext()
                    if not entry.astext():
                        entry["classes"].append("empty")


def visit_entry(self: HTML5Translator, node: nodes.entry) -> None:
    """Write the start of a cell with its heading."""
    HTML5Translator.visit_entry(self, node)
    if "label" in node:
        start = f'<td data-label="{html.escape(node["label"])}"'
        self.body[-1] = self.body[-1].replace("<td", start, 1)


def depart_entry(self: HTML5Translator, node: nodes.entry) -> None:
    """Write the end of a cell."""
    HTML5Translator.depart_entry(self, node)


def breakable(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Let code in the text break after underscores, dots, slashes and colons."""
    if "body" in context:
        context["body"] = re.sub(
            r'(?<=<span class="pre">)[^<]+',
            lambda found: re.sub(r"(?<=\w)([_./:]+)(?=\w)", r"\1<wbr>", found[0]),
            context["body"],
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all three."""
    app.connect("doctree-resolved", labelled)
    app.connect("html-page-context", breakable)
    app.add_node(nodes.entry, override=True, html=(visit_entry, depart_entry))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
