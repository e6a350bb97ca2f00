"""The documents: every link within the repository leads somewhere, and the results are those of the runs."""

import math
import re
import runpy
from pathlib import Path

import pytest

from vimco.report import write_report
from vimco.studies import STUDIES
from vimco.studies.results import collected

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *(page for page in ROOT.glob("docs/**/*.md") if "results/" not in page.as_posix())]


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document: headings as GitHub and MyST name them, and those set by hand."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text)) | set(re.findall(r"^\((.+)\)=$", text, re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document):
    missing = []
    for path, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", document.read_text()):
        if "://" in path:
            continue
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            missing.append(f"{path}#{anchor}")
    assert not missing


def test_the_results_are_what_a_report_makes_of_the_runs(tmp_path):
    """`make results` updates them."""
    records = ROOT / "docs" / "results"
    text, _, problems = write_report([records], tmp_path, records / "remarks.txt")
    assert not problems
    assert text.read_text() == (ROOT / "docs" / "paper" / "results.md").read_text()


def test_the_time_to_quality_is_that_of_the_runs():
    """`make results` updates it."""
    script = runpy.run_path(str(ROOT / "scripts" / "time_to_quality.py"))
    runs, _ = collected([ROOT / "docs" / "results"])
    page = (ROOT / "docs" / "explanation" / "speed.md").read_text()
    found = list(script["points"](runs))
    assert script["with_table"](page, found) == page
    assert {point.by for point in found} == set(script["MARKERS"])


def test_the_readme_opens_with_a_picture_and_two_commands():
    opening = (ROOT / "README.md").read_text().split("## ")[0]
    assert "![" in opening
    assert "make run" in opening
    assert "make test" in opening


def test_the_list_of_studies_is_that_of_the_program():
    text = (ROOT / "docs" / "how-to" / "studies.md").read_text()
    rows = [f"| `{s.name}` | {s.runs.__doc__.removesuffix('.')} | {s.shows} |" for s in STUDIES.values()]
    assert "\n".join(rows) in text


def test_the_arithmetic_of_many_devices_follows_from_its_formulas():
    """Every number of the two tables, and what limits."""
    text = (ROOT / "docs" / "how-to" / "several-devices.md").read_text()
    networks = iter([(1e13, 1e10, 1e-5), (1e11, 1e9, 5e-5)])
    num_rows = 0
    for line in text[text.index("## Larger models, more devices") :].splitlines():
        if line.startswith("| parameters"):
            F, W, L = next(networks)
        elif line.startswith(("| 475,584", "| 10⁸")):
            P, n, of_bytes, of_messages, product, batch, limit = (
                line.replace("10⁸", f"{10**8}").strip("| ").split(" | ")
            )
            P, n, of_bytes, of_messages, product, batch = (
                float(word.replace(",", "")) for word in (P, n, of_bytes, of_messages, product, batch)
            )
            exact = (n - 1) * F * (2 / W + n * L / (2 * P))
            assert of_bytes == pytest.approx(1e3 * 8 * (n - 1) / n * P / W, rel=0.005)
            assert of_messages == pytest.approx(1e3 * 2 * (n - 1) * L, rel=0.005)
            assert product == pytest.approx(exact, rel=0.005)
            assert batch == 4 * n * math.ceil(exact / 50 / (4 * n))
            is_least = batch == 4 * n
            expected = "four examples" if is_least else "latency" if n > 4 * P / (W * L) else "bandwidth"
            assert limit.startswith(expected)
            num_rows += 1
    assert num_rows == 12
