"""Settings of all tests: precision, compilation and hypothesis."""

import gc
import os
import signal
from importlib.metadata import version
from pathlib import Path

# Compilation takes half of the time. The test processes and the programs under test share a cache, which later runs of
# the tests use again: its keys are the programs, so a change of the code compiles what it changes. `make clean`
# removes it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    folder = Path(__file__).parent.parent / "build" / "compiled"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# JAX warns of an entry that another process is writing, and compiles the program itself (see pyproject.toml).
os.environ["PYTHONWARNINGS"] = "ignore:Error reading persistent compilation cache entry:UserWarning"

import jax
import pytest
from hypothesis import settings

# Use the same cases on every run, and no deadline, so that tests never fail by chance.
settings.register_profile("vimco", derandomize=True, deadline=None, database=None, max_examples=40)
settings.load_profile("vimco")


# Compile as quickly as XLA can, here and in the programs under test: without optimization, and with the older emitters
# of fused operations, which need 40 % less time. XLA looks at this when JAX first looks for devices, and ends the
# process if it does not know a flag; these are known to jaxlib 0.10.
if version("jaxlib").startswith("0.10."):
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0 --xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE "
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
    )

# Tracing allocates many objects that live long. Looking for garbage less often saves a twentieth of the time.
gc.set_threshold(100_000, 20, 100)

# A shell lets background processes ignore SIGINT; the tests and the programs under test need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def float64():
    """Set double precision for one test; the default is JAX's float32, as for users."""
    with jax.enable_x64(True):
        yield


# The files that take longest, in this order, come before the others: with a file at a time for each process, none waits
# long for the last file of another.
LONGEST = (
    *("studies", "program", "runs", "layered", "pages", "fast_path", "combinations", "attention"),
    *("unbiasedness", "training", "gaussian", "report", "models", "estimators", "noise", "hostile_reports"),
    *("plugins", "soak", "examples", "fuzzing", "straight_through", "documents"),
)


def pytest_collection_modifyitems(items):
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
