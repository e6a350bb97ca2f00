"""What all tests share: the precision they run in, and how hypothesis behaves."""

import atexit
import os
import shutil
import signal
import tempfile

# Most of the time goes into compiling. The test processes and the programs under test share what they have compiled.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    folder = tempfile.mkdtemp(prefix="vimco-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jax
import pytest
from hypothesis import settings

# The same cases on every run, and no clock: a test here fails because something is wrong, never by chance.
settings.register_profile("vimco", derandomize=True, deadline=None, database=None, max_examples=40)
settings.load_profile("vimco")


@pytest.fixture
def quick_compilation():
    """For tests of formulas, which wait for the compiler more than for anything and do not test it: it may hurry."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


# The compiler is told to hurry, here and in the programs under test.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")

# Started in the background by a shell, everything here would ignore Ctrl-C, and so would the programs under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def float64(quick_compilation):
    """Double precision for one test; JAX's default, float32, is what users run and stays the default here."""
    with jax.enable_x64(True):
        yield
