"""The NumPyro, PyTorch and Pyro on the pages of the documentation runs."""

import pages
import pytest


@pages.with_python("numpyro", "torch", "pyro")
def test_python_runs(page, library, tmp_path, monkeypatch):
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    if library != "numpyro":
        pytest.importorskip("torch").set_num_threads(1)  # small matrices are faster with one thread
    for block, printed in pages.run(page, library):
        pages.assert_same_output(printed, block.text)
