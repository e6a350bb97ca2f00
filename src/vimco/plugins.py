"""Plugins: the user's own estimators, model families, data sets and studies, registered by a file or module.

A plugin is imported only because the user names it on the command line, never because a run directory does.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

from vimco.errors import UsageError
from vimco.files import in_home

_loaded: dict[str, str] = {}  # name as given -> module


def load_plugin(name: str) -> None:
    """Import a plugin: a Python file, or an importable module."""
    path = in_home(name)
    is_file = path.suffix == ".py" or path.is_file()
    named = str(path.resolve()) if is_file else name
    if named in _loaded:
        return
    if is_file and not path.is_file():
        raise UsageError(f"--plugin {name}: there is no such file.")
    try:
        _loaded[named] = _import_file(path) if is_file else importlib.import_module(name).__name__
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"--plugin {name} cannot be imported ({type(error).__name__}: {error}). Name a Python file, or a module "
            "that Python finds."
        ) from error


def plugin_arguments() -> list[str]:
    """Return the options that make another process of the program load the same plugins."""
    return [word for name in _loaded for word in ("--plugin", name)]


def _import_file(path: Path) -> str:
    module_name = f"vimco_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--plugin {path}: a plugin is a Python file, whose name ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module_name
