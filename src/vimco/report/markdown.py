"""A document in Markdown, as GitHub shows it."""

from vimco.studies.document import Block, Commands, Document, Entry, Picture, Table, Text


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
