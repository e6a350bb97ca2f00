"""A document of sections, tables, pictures and commands, and its form in Markdown. `page` gives it the form of HTML."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Entry:
    """A cell of a table."""

    text: str
    detail: str = ""  # in small print below
    is_best: bool = False
    is_missing: bool = False
    links_to: str = ""  # the anchor of another entry
    anchor: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under one row of headings; the first entry of a row is its heading."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    borrowed: frozenset[int] = frozenset()  # columns that were not measured here
    prose: frozenset[int] = frozenset()  # columns of sentences or long names, which may be broken


@dataclass(frozen=True)
class Picture:
    """An image, and what it shows in words for those who do not see it."""

    name: str
    kind: Literal["svg", "png"]
    content: bytes
    caption: str
    alternative: str

    @property
    def file(self) -> str:
        """The file that holds it beside a Markdown document."""
        return f"figures/{self.name}.{self.kind}"


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Commands:
    """Lines to type, and the configuration behind them, under a name, out of the way until asked for."""

    name: str
    text: str
    lines: tuple[str, ...]
    configuration: str  # JSON


Block = Table | Picture | Text | Commands


@dataclass(frozen=True)
class Section:
    """A heading and what belongs under it."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A title, a few words, and sections."""

    title: str
    introduction: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def pictures(self) -> list[Picture]:
        """Every picture in it."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Picture)]


def markdown(document: Document) -> str:
    """The document in Markdown, as GitHub shows it."""
    parts = [f"# {document.title}", *document.introduction]
    for section in document.sections:
        parts += [f'<a id="{section.anchor}"></a>\n\n## {section.title}', *map(markdown_of_block, section.blocks)]
    return "\n\n".join(parts) + "\n"


def markdown_of_block(block: Block) -> str:
    """One block in Markdown."""
    match block:
        case Table():
            lines = [_row(block.headings), _row(("---",) * len(block.headings))]
            lines += [_row(tuple(map(_entry, row))) for row in block.rows]
            return f"**{block.caption}**\n\n" + "\n".join(lines)
        case Picture():
            return f"![{block.alternative}]({block.file})\n\n*{block.caption}*"
        case Text():
            return block.text
        case Commands():
            commands = "\n".join(block.lines)
            summary = f"<details><summary>{block.name}</summary>"
            configuration = f"```json\n{block.configuration}\n```"
            return f"{summary}\n\n{block.text}\n\n```sh\n{commands}\n```\n\n{configuration}\n\n</details>"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _entry(entry: Entry) -> str:
    text = entry.text.replace("|", "\\|")
    if entry.links_to:
        text = f"[{text}](#{entry.links_to})"
    if entry.is_best:
        text = f"**{text}**"
    if entry.anchor:
        text = f'<a id="{entry.anchor}"></a>{text}'
    return f"{text}<br><sub>{entry.detail}</sub>" if entry.detail else text
