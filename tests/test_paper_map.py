"""`docs/paper/map.md` names functions and tests: all of them exist, and no equation is missing."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def rows() -> list[list[str]]:
    """Return the cells of every row of every table, without headings and rules."""
    lines = (ROOT / "docs" / "paper" / "map.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in cells if not row[0].startswith("---") and row[2] != "Function"]


def names(cell: str) -> list[str]:
    found = re.findall(r"`([^`]+)`", cell)
    assert re.sub(r"`[^`]+`", "", cell).strip(" ,") == "", f"only names in backquotes, with commas between: {cell}"
    return found


def is_system(row: list[str]) -> bool:
    """Return whether this is a row of the systems that the paper names: reference and result in place of a label."""
    return len(row) == 5


FUNCTIONS = sorted({name for row in rows() for name in names(row[2])})
TESTS = sorted({name for row in rows() for name in names(row[3])})


def test_rows_are_complete():
    for row in rows():
        assert len(row) == 4 or is_system(row), row
        assert row[0], row
        assert names(row[2]), row
        assert names(row[3]), row


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_exists(name):
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            value = getattr(value, attribute)
        return
    pytest.fail(f"{name} is in no module")


@pytest.mark.parametrize("name", TESTS)
def test_test_exists(name):
    path, *rest = name.split("::")
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for part in rest:
        found = [node for node in body if getattr(node, "name", None) == part]
        assert found, f"there is no {part} in {path}"
        body = found[0].body
    assert rest[-1].startswith("test_")


def test_every_system_has_a_result_that_exists():
    """A section of the results, or a command."""
    results = (ROOT / "docs" / "paper" / "results.md").read_text(encoding="utf-8")
    systems = [row for row in rows() if is_system(row)]
    assert len(systems) >= 10
    for row in systems:
        sections = re.findall(r"\(results\.md#([\w-]+)\)", row[4])
        assert sections or "`vimco train --" in row[4], row
        assert all(f'<a id="{section}"></a>' in results for section in sections), row


def test_no_equation_is_missing():
    titles = " ".join(row[0] for row in rows())
    for number in range(1, 13):
        assert f"Eq. {number}:" in titles
    labels = {name for row in rows() if not is_system(row) for name in names(row[1])}
    assert labels >= {
        "alg:vimco",
        "eqn:is_estimator",
        "eqn:model_grad",
        "eqn:nvil",
        "eqn:objective",
        "eqn:prior_estimator",
        "eqn:proposal_grad",
        "eqn:sleep_grad",
        "eqn:var_objective",
        "eqn:vimco_estimator",
        "eqn:wake_grad",
        "fig:cond_mnist_bounds",
        "fig:mnist_bounds",
        "fig:mnist_completions",
        "fig:rms",
        "tbl:gen_mnist",
    }
