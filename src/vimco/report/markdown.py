"""A document in Markdown, as GitHub shows it. Names are escaped."""

import re
from html import escape

from vimco.errors import printable
from vimco.studies.document import Block, Commands, Document, Entry, Picture, Table, Text, Versions


def markdown(document: Document) -> str:
    """Return the document in Markdown, as GitHub shows it."""
    parts = [f"# {plain(document.title)}", *map(plain, document.introduction)]
    for section in document.sections:
        heading = f'<a id="{section.anchor}"></a>\n\n## {plain(section.title)}'
        parts += [heading, *map(markdown_of_block, section.blocks)]
    return "\n\n".join(parts) + "\n"


def markdown_of_block(block: Block) -> str:
    """Return one block in Markdown."""
    match block:
        case Table():
            lines = [_row(tuple(map(plain, block.headings))), _row(("---",) * len(block.headings))]
            lines += [_row(tuple(map(_entry, row))) for row in block.rows]
            return f"**{plain(block.caption)}**\n\n" + "\n".join(lines)
        case Versions():
            return "\n\n".join(map(markdown_of_block, block.tables.values()))
        case Picture():
            return f"![{plain(block.alternative)}]({block.file})\n\n*{plain(block.caption)}*"
        case Text():
            return plain(block.text)
        case Commands():
            summary = f"<details><summary>{escape(printable(block.name))}</summary>"
            commands = _code("sh", "\n".join(map(printable, block.lines)))
            return f"{summary}\n\n{plain(block.text)}\n\n{commands}\n\n</details>"


def plain(text: str) -> str:
    """Return the text escaped, so that Markdown shows it unchanged."""
    text = re.sub(r"([\\`*_\[\]<>|~$&])", r"\\\1", printable(text))
    return re.sub(r"^(\d*)([#+=.)-])(?=[#=-]*(\s|$))", r"\1\\\2", text)  # otherwise it is a heading, a list or a rule


def _code(language: str, text: str) -> str:
    fence = "`" * (1 + max(2, *map(len, re.findall("`+", text)), 0))
    return f"{fence}{language}\n{text}\n{fence}"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _entry(entry: Entry) -> str:
    text = plain(entry.text)
    if entry.links_to:
        text = f"[{text}](#{entry.links_to})"
    if entry.is_best:
        text = f"**{text}**"
    if entry.anchor:
        text = f'<a id="{entry.anchor}"></a>{text}'
    return f"{text}<br><sub>{plain(entry.detail)}</sub>" if entry.detail else text
