"""The reference of the library, from its source: signatures with their shapes, docstrings, and comments of fields.

    ```{api} multi_sample_bound VIMCO vimco.training.Trainer
    ```

Names without a dot are public names of vimco. This reads the source itself, because docstrings here are Markdown, which
autodoc would parse as reStructuredText, and shapes are strings in annotations, which it would evaluate.
"""

import ast
import importlib.util
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FENCE = "````````"


def found(name: str) -> Any:
    """Return the object of a dotted name; None where its module needs a library that is not installed."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None


def source_of(name: str) -> tuple[str, str]:
    """Return the file of a function or a class, and its source there. No bridge to another library is imported."""
    value, (module, _, attribute) = found(name), name.rpartition(".")
    if value is not None:
        value = inspect.unwrap(value)
        return inspect.getfile(value), textwrap.dedent(inspect.getsource(value))
    file = importlib.util.find_spec(module).origin
    text = Path(file).read_text(encoding="utf-8")
    (node,) = (node for node in ast.parse(text).body if getattr(node, "name", None) == attribute)
    return file, ast.get_source_segment(text, node)


def written(node: ast.AST) -> str:
    """Return an annotation or a default as written in the source, with `Array` for arrays of any library."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("field"):
        node = {word.arg: word.value for word in node.keywords}.get("default", ast.Constant(...))
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        return node.value  # a forward reference to a class
    return ast.unparse(node).replace("AnyArray", "Array").replace("'", '"')


def signature(node: ast.FunctionDef, *, is_method: bool) -> str:
    """Return parameters and result as written in the source."""
    arguments = node.args
    if is_method and not any(ast.unparse(d) == "staticmethod" for d in node.decorator_list):
        (arguments.posonlyargs or arguments.args).pop(0)
    result = "" if node.returns is None else f" -> {written(node.returns)}"
    return f"({written(arguments)}){result}"


def entry(kind: str, name: str, body: list[str], options: tuple[str, ...] = (), depth: int = 0) -> list[str]:
    """Return a directive of the Python domain with Markdown inside."""
    fence = FENCE[depth:]
    return [f"{fence}{{py:{kind}}} {name}", *options, "", *body, "", fence, ""]


def comment(lines: list[str], node: ast.stmt) -> str:
    """Return the comment after a field, or the comment lines above it."""
    behind = re.search(r"  # (.*)", lines[(node.end_lineno or node.lineno) - 1])
    if behind:
        return behind[1]
    above = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.strip().startswith("# "):
            break
        above.insert(0, line.strip()[2:])
    return " ".join(above)


def of_function(name: str, node: ast.FunctionDef, kind: str = "function", depth: int = 0) -> list[str]:
    """Return the entry of a function or a method."""
    decorators = {ast.unparse(d) for d in node.decorator_list}
    if "property" in decorators:
        result = [] if node.returns is None else [f":type: {written(node.returns)}"]
        return entry("property", name, [ast.get_docstring(node) or ""], tuple(result), depth)
    if "classmethod" in decorators:
        kind = "classmethod"
    return entry(
        kind, name + signature(node, is_method=kind != "function"), [ast.get_docstring(node) or ""], depth=depth
    )


def of_class(name: str, node: ast.ClassDef, lines: list[str]) -> list[str]:
    """Return the entry of a class with its public fields and methods, in the order of the source."""
    body, arguments = [ast.get_docstring(node) or "", ""], ""
    for number, member in enumerate(node.body):
        if isinstance(member, ast.FunctionDef):
            if member.name == "__init__":
                arguments = signature(member, is_method=True).removesuffix(" -> None")
            elif member.name == "__call__" or not member.name.startswith("_"):
                body += of_function(member.name, member, "method", depth=1)
        elif isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
            following = node.body[number + 1] if number + 1 < len(node.body) else None
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            text = inspect.cleandoc(following.value.value) if is_text else comment(lines, member)
            value = [] if member.value is None else [f":value: {written(member.value)}"]
            options = (f":type: {written(member.annotation)}", *value)
            body += entry("attribute", ast.unparse(member.target), [text], options, depth=1)
    return entry("class", name + arguments, body)


def reference(name: str) -> list[str]:
    """Return the entry of one dotted name in MyST Markdown."""
    source = source_of(name)[1]
    (node,) = ast.parse(source).body
    if isinstance(node, ast.ClassDef):
        directive, *rest = of_class(name, node, source.splitlines())
    else:
        assert isinstance(node, ast.FunctionDef), name
        directive, *rest = of_function(name, node)
    # References by its last word mean the public name of vimco, where there is one.
    is_second = name != f"vimco.{node.name}" and found(f"vimco.{node.name}") is not None
    return [directive, *([":no-index-entry:", ":no-index:"] if is_second else []), *rest]


class API(SphinxDirective):
    """A directive that inserts the reference of some names."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Parse the entries as Markdown."""
        names = [name if "." in name else f"vimco.{name}" for name in self.arguments[0].split()]
        for name in names:
            self.env.note_dependency(source_of(name)[0])
        text = [line for name in names for line in reference(name)]
        lines = [line for part in text for line in part.split("\n")]
        container = nodes.container()
        self.state.nested_parse(StringList(lines, source="api"), 0, container)
        return container.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("api", API)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
