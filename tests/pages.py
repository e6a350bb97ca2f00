"""The pages of the documentation as programs: their code is run, with small sizes."""

import contextlib
import dataclasses
import io
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import vimco
from vimco.studies import runner

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(page for page in sorted(ROOT.glob("docs/**/*.md")) if page.name != "results.md")]
LIBRARIES = ("numpyro", "pyro", "torch")  # a block is about the first that it names
TOLERANCE = 0.1  # of numbers in printed output: other processors round differently, which may change a sample


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    start: int  # where it begins and ends in the page
    end: int
    is_run: bool  # False below a comment <!-- not run: reason -->
    follows_code: bool  # nothing but blank lines between it and the block before

    @property
    def library(self) -> str | None:
        """The optional library that it is about."""
        found = [
            name for name in LIBRARIES if re.search(rf"\b(import|vimco\.){name}\b|\bfrom (vimco\.)?{name}\b", self.text)
        ]
        return found[0] if found else None


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Return every block between three backquotes; directives of MyST are not code."""
    found, text, end = [], page.read_text(), 0
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        between = text[end : match.start()]
        if not match[1].startswith("{"):
            is_run = not re.search(r"<!-- not run: [^>]+-->\s*$", between)
            follows_code = bool(found) and not between.strip()
            found.append(Block(match[1].strip(), match[2], match.start(), match.end(), is_run, follows_code))
        end = match.end()
    return found


def with_python(*libraries: str | None) -> pytest.MarkDecorator:
    """Parametrise a test by the pages that have Python for one of these libraries; None means no library."""
    found = [
        pytest.param(page, library, id=f"{name(page)}-{library or 'vimco'}")
        for page in PAGES
        for library in libraries
        if library in {block.library for block in blocks(page) if block.language == "python" and block.is_run}
    ]
    return pytest.mark.parametrize(("page", "library"), found)


def run(page: Path, library: str | None) -> list[tuple[Block, str]]:
    """Run the Python of a page from top to bottom; return each block of output with the actual output."""
    namespace, outputs, printed = {"__name__": "page"}, [], None
    for block in blocks(page):
        if block.language == "python":
            printed = None
            if block.is_run and block.library in (None, library):
                lines_before = page.read_text()[: block.start].count("\n") + 1
                with contextlib.redirect_stdout(io.StringIO()) as output:
                    exec(compile("\n" * lines_before + block.text, str(page), "exec"), namespace)
                printed = output.getvalue()
        elif block.language == "text" and block.follows_code and printed is not None:
            outputs.append((block, printed))
    return outputs


def assert_same_output(printed: str, shown: str) -> None:
    """Assert the same words, and close numbers."""
    number = r"-?\d+(?:,\d{3})*(?:\.\d+)?"
    assert re.sub(number, "0", printed).split() == re.sub(number, "0", shown).split(), printed
    for one, other in zip(re.findall(number, printed), re.findall(number, shown), strict=True):
        assert float(one.replace(",", "")) == pytest.approx(float(other.replace(",", "")), rel=TOLERANCE, abs=0.05), (
            printed
        )


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the trainings of pages small: the same calls on 8 × 8 images, with twenty updates for each ten thousand."""
    train, resume = vimco.train, vimco.resume

    def tiny_train(config, *arguments, **options):
        updates = max(2, (config.updates or 100_000) // 500)
        tiny = {"data": "synthetic", "layers": (3, 2), "updates": updates, "validate_every": 20, "minutes": None}
        return train(dataclasses.replace(config, **tiny), *arguments, **options)

    monkeypatch.setattr(vimco, "train", tiny_train)
    # `test_studies.py` runs the page's study, with runs that are done; here it would train them at full length.
    monkeypatch.setattr(runner, "planned", lambda configurations, output: [])
    monkeypatch.setattr(vimco, "resume", lambda run, updates, **options: resume(run, updates=updates // 500, **options))
