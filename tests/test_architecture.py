"""The layout: imports point one way, and importing the package does no work."""

import ast
import builtins
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "vimco"

# A module may import from the lines above its own. A package (a folder) counts as one module, and may import itself.
LINES = [
    {"errors", "parameters"},
    {"files", "registry", "signals"},
    {"data", "plugins", "samples"},
    {"estimators", "models"},  # never each other: estimators and models meet in ImportanceSamples
    {"bridges", "training"},
    {"runs"},
    {"vimco", "studies"},  # the package itself: its public names
    {"report"},
    {"cli"},
]
# Optional, imported by nobody, and on top of the core alone.
BRIDGES = {"numpyro", "torch", "pyro"}
BELOW_BRIDGES = {"bridges", "errors", "parameters", "registry", "samples", "signals", "estimators"}


def module_of(path: Path) -> str:
    """Return the module, or the package directly below `vimco`, that a file belongs to."""
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "vimco" if first == "__init__" else first


MODULES = sorted({module_of(path) for path in SOURCE.rglob("*.py")})


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Return the modules of this package that a file imports, anywhere in it, with line numbers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, *rest = name.split(".")
            if package == "vimco":
                # `from vimco import runs` names a module, `from vimco import __version__` the package itself.
                yield (rest[0] if rest and rest[0] in MODULES else "vimco"), node.lineno


def line_of(module: str) -> int:
    return next(number for number, line in enumerate(LINES) if module in line)


def test_every_module_has_its_line():
    assert len(LINES) <= 9
    listed = set().union(*LINES, BRIDGES)
    unknown = set(MODULES) - listed
    assert not unknown, f"give these modules a line in LINES: {sorted(unknown)}"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module):
    paths = [path for path in SOURCE.rglob("*.py") if module_of(path) == module]
    for path in paths:
        for imported, line_number in imports(path):
            if imported == module:
                continue
            where = f"{path.relative_to(SOURCE)}:{line_number} imports {imported}"
            assert imported not in BRIDGES, f"{where}, which is optional"
            if module in BRIDGES:
                assert imported in BELOW_BRIDGES, where
            else:
                assert line_of(imported) < line_of(module), f"{where}, which is not above it"


def test_signals_belong_to_no_array_library():
    """They support JAX, NumPy and PyTorch by the array-API standard alone."""
    tree = ast.parse((SOURCE / "signals.py").read_text(encoding="utf-8"))
    roots = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert roots <= {"math", "typing", "collections", "dataclasses", "array_api_compat", "jaxtyping", "vimco"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_pickle_no_eval_no_bare_except(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec"), f"line {node.lineno}"
            assert node.func.id != "print" or module_of(path) == "cli", f"line {node.lineno}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            assert not {"pickle", "dill", "cloudpickle"} & {name.split(".")[0] for name in names}
        assert not (isinstance(node, ast.ExceptHandler) and node.type is None), f"line {node.lineno}"


IMPORT = """
import sys
import jax
before = dict(jax.config.values)
import vimco
assert dict(jax.config.values) == before, "importing vimco changed an option of JAX"
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized(), "importing vimco made arrays or looked for devices"
unwanted = {"matplotlib", "torch", "pyro", "numpyro", "tyro", "tensorboardX"} & set(sys.modules)
assert not unwanted, f"importing vimco imports {sorted(unwanted)}"
assert set(vimco.__all__) <= set(dir(vimco))
import vimco.cli
assert "matplotlib" not in sys.modules, "the program imports matplotlib before it draws"
"""


def test_importing_does_no_work():
    """It prints nothing, sets no option, uses no device and imports nothing heavy or optional. Warnings are errors."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT], capture_output=True, text=True, check=False, timeout=120
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_name_is_defined(path):
    """The linter and the type checker cannot check this: shapes in annotations are strings of undefined names."""
    tree = ast.parse(path.read_text())
    defined = {*dir(builtins), "__file__", "__path__"}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                defined |= {(alias.asname or alias.name).split(".")[0] for alias in names}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                defined.add(name)
            case ast.MatchAs(name=str(name)):
                defined.add(name)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert used <= defined


# What changes or reads files, as attributes or names that are called. `np.load` and `loadmat` are given open files.
WRITES = {"write_text", "write_bytes", "unlink", "rename", "replace", "fsync", "truncate", "symlink_to", "touch"}
READS = {"read_text", "read_bytes", "open", "safe_open", "fromfile", "memmap"}
ALLOWED = {
    "files.py": WRITES | READS,  # the only module that may do both
    "runs/locks.py": {"open"},  # of locks
    "runs/directory.py": {"read_text"},  # of /proc/cpuinfo
    "report/page.py": {"read_text"},  # of the package's own files, here and below
    "report/digit/__init__.py": {"read_text"},
    "cli/terminal.py": {"open"},  # of /dev/null
}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_are_opened_and_changed_in_one_place(path):
    """So crashes can be tested at every step, and an untrusted pipe, link or huge file is refused everywhere."""
    allowed = ALLOWED.get(path.relative_to(SOURCE).as_posix(), set())
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        is_of_text = name == "replace" and len(node.args) != 1  # `path.replace(target)` has one argument
        is_of_record = name == "replace" and bool(node.keywords)
        assert name not in (WRITES | READS) - allowed or is_of_text or is_of_record, f"line {node.lineno}: {name}"
