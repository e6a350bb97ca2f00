"""The documents: every link within the repository leads somewhere, and the results are those of the runs."""

import re
from pathlib import Path

import pytest

from vimco.report import write_report

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text())
    local = [target for target in targets if "://" not in target]
    missing = [target for target in local if not (document.parent / target).exists()]
    assert not missing


def test_the_results_are_what_a_report_makes_of_the_runs(tmp_path):
    """`make results` brings them up to date."""
    records = ROOT / "docs" / "results"
    text, _, problems = write_report([records], tmp_path, records / "remarks.txt")
    assert not problems
    assert text.read_text() == (ROOT / "docs" / "results.md").read_text()


def test_the_readme_opens_with_a_picture_and_two_commands():
    opening = (ROOT / "README.md").read_text().split("## ")[0]
    assert "![" in opening
    assert "make run" in opening
    assert "make test" in opening
