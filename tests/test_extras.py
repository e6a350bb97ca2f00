"""Optional libraries: the core imports none of them, and the error for a missing one has the command to install it."""

import importlib
import subprocess
import sys

import pytest

EXTRAS = {"vimco.torch": ("torch", "torch"), "vimco.numpyro": ("numpyro", "numpyro"), "vimco.pyro": ("pyro", "pyro")}


@pytest.mark.parametrize("module", EXTRAS)
def test_a_missing_library_is_a_sentence(monkeypatch, module):
    library, extra = EXTRAS[module]
    monkeypatch.delitem(sys.modules, module, raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(ModuleNotFoundError, match=rf'is not installed: pip install "\.\[{extra}\]" in the') as refusal:
        importlib.import_module(module)
    assert refusal.value.__suppress_context__


def test_the_core_imports_no_optional_library():
    optional = {"torch", "numpyro", "pyro", "dask", "distributed"}
    code = f"import sys, vimco; print({{name.split('.')[0] for name in sys.modules}} & {optional})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
