"""The reference of the program, generated from its parser.

```{commands}
```
"""

import argparse
import re
from collections.abc import Iterator

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from vimco.cli.program import parser


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Return every command without subcommands."""
    inner = [action for action in parser._actions if isinstance(action.choices, dict)]
    for action in inner:
        for command in action.choices.values():
            yield from commands(command)
    if not inner:
        yield parser


def with_options_as_code(text: str) -> str:
    """Return a help text with the options that it names set as code; what is code already stays."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"(?<![\w-])--[a-z][a-z-]*", r"`\g<0>`", part) for part in parts
    )


def cell(text: str) -> str:
    """Return the text escaped for a cell of a table."""
    return text.replace("|", r"\|").replace("\n", " ")


def table(command: argparse.ArgumentParser) -> list[str]:
    """Return the options of a command, one row each."""
    lines = ["| option | what | default |", "|---|---|---|"]
    for action in command._actions:
        if action.dest == "help":
            continue
        text = re.sub(r"\((required|one or more)\)", "", action.help or "")
        default = re.search(r"\(default: (.*)\)\s*$", text, re.DOTALL)
        shown = default[1] if default and default[1] not in ("None", "") else ""
        text = text[: default.start()] if default else text
        metavar = str(action.metavar or "").replace("{", "").replace("}", "").replace(",", " | ")
        names = ", ".join(f"`{name}`" for name in action.option_strings)
        head = f"{names} `{metavar}`" if names and metavar else names or f"`{metavar}`"
        lines.append(
            f"| {cell(head)} | {cell(with_options_as_code(text.strip()))} | {f'`{cell(shown)}`' if shown else ''} |"
        )
    return lines


class Commands(SphinxDirective):
    """A directive that inserts the reference of every command."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each command."""
        found = []
        for command in commands(parser()):
            section = nodes.section(ids=[nodes.make_id(command.prog)], names=[command.prog])
            section += nodes.title(command.prog, command.prog)
            lines = [
                *with_options_as_code(command.description or "").splitlines(),
                "",
                "```{rst-class} options",
                "```",
                "",
            ]
            self.state.nested_parse(StringList([*lines, *table(command)], source="parser"), 0, section)
            self.state.document.note_implicit_target(section)
            found.append(section)
        return found


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
