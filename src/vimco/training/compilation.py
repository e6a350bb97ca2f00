"""The options with which loops and evaluations are compiled."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax

WANTED = {
    # XLA prefers 256-bit vectors even on processors with wider ones, which speed up the cipher and the exponentials.
    "xla_cpu_prefer_vector_width": 512,
    # XLA's own products and sums replace those of YNNPACK, whose threads slow down small products.
    "xla_cpu_experimental_ynn_fusion_type": "",
}


@functools.cache
def compiler_options() -> dict[str, Any]:
    """Return the options that this jaxlib knows, and warn about the others: versions add and remove them.

    All of them are for CPUs.
    """
    if jax.default_backend() != "cpu":
        return {}
    known = {name: value for name, value in WANTED.items() if _is_known(name, value)}
    if known != WANTED:
        names = " and ".join(sorted(WANTED.keys() - known.keys()))
        warnings.warn(
            f"This version of jaxlib does not know the compiler option {names}: results are right, updates may be "
            "slower.",
            stacklevel=2,
        )
    return known


def _is_known(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True


def compiled(function: Callable, donate: Literal["none", "all-except-first"] = "none") -> Callable:
    """Return the function under `equinox.filter_jit` with these options. It is compiled at its first call."""

    @functools.cache
    def jitted() -> Callable:
        return eqx.filter_jit(function, donate=donate, compiler_options=compiler_options())  # type: ignore[call-overload]

    return lambda *arguments: jitted()(*arguments)
