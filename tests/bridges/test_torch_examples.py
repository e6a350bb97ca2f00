"""The examples for PyTorch and Pyro run and learn, in fewer updates than by default."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch", reason='PyTorch is not installed: pip install ".[torch]"')

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_torch_sbn(capsys):
    results = runpy.run_path(str(EXAMPLES / "torch_sbn.py"))["main"](num_updates=500)
    assert results["vimco"] > results["naive estimator"] + 0.2 > results["untrained"] + 0.5
    assert "vimco" in capsys.readouterr().out


def test_pyro_discrete(capsys):
    pytest.importorskip("pyro", reason='Pyro is not installed: pip install ".[pyro]"')
    bounds = runpy.run_path(str(EXAMPLES / "pyro_discrete.py"))["main"](num_updates=200)
    assert bounds["vimco"] > bounds["RenyiELBO(alpha=0)"] + 1
    assert "vimco" in capsys.readouterr().out
