"""What all tests share: the precision they run in, and how hypothesis behaves."""

import jax
import pytest
from hypothesis import settings

# The same cases on every run, and no clock: a test here fails because something is wrong, never by chance.
settings.register_profile("vimco", derandomize=True, deadline=None, database=None, max_examples=40)
settings.load_profile("vimco")


@pytest.fixture
def float64():
    """Double precision for one test; JAX's default, float32, is what users run and stays the default here.

    Such tests check formulas, not the compiler, and wait for compilation more than for anything: it is told to hurry.
    """
    with jax.enable_x64(True):
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)
