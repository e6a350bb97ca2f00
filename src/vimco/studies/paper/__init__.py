"""The studies of the paper, one file for each table or figure. Importing this folder registers all of them."""

import importlib
import pkgutil

_FIRST = ("table_1", "structured_nll")  # in the list and in a report; the others follow by name
for _name in dict.fromkeys((*_FIRST, *(module.name for module in pkgutil.iter_modules(__path__)))):
    importlib.import_module(f"{__name__}.{_name}")
