"""The examples run and learn: bound and likelihood rise, and the gap between them closes."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["own_model", "categorical", "mixed"])
def test_example(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    before, after = capsys.readouterr().out.splitlines()
    bound_before, likelihood_before = map(float, re.findall(r"-?\d+\.\d+", before))
    bound, likelihood = map(float, re.findall(r"-?\d+\.\d+", after))
    assert likelihood > likelihood_before + 1
    assert bound > bound_before + 1
    assert bound < likelihood
    assert likelihood - bound < 0.25 * (likelihood_before - bound_before)


@pytest.mark.parametrize("name", ["own_model", "categorical", "mixed"])
def test_example_is_short(name):
    """About forty lines of code, with public names of this package only."""
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len([line for line in text.splitlines() if line and not line.startswith("#")]) < 70
    assert "vimco." in text
    assert "from vimco" not in text
