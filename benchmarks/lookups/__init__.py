"""A generative model whose products with binary rows look up sums: a prototype in C++, to be compared with XLA's.

`kernel.cc` says how. It is compiled when it is first asked for, and needs g++ and a processor with 512-bit vectors.
"""

import ctypes
import functools
import itertools
import math
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

import vimco
from vimco.models.generative import UpwardProposal
from vimco.models.kernels.bernoulli import EXP2_COEFFICIENTS
from vimco.models.kernels.randomness import fold_in
from vimco.samples import Batch, ImportanceSamples

SOURCE = Path(__file__).with_name("kernel.cc")
COLUMNS = 6  # of a product that the kernel computes at a time


class LookedUp(vimco.SigmoidBeliefNetwork):
    """The generative model, for binary observations in batches of a multiple of four, at most 64, on one device."""

    heeds_parts: ClassVar[bool] = False

    def importance_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """Return the draws of the package's model, from sums in another order."""
        first, *others = self.proposal.chain.layers
        deepest, *of_prior = self.prior.layers
        down = [self.likelihood, *of_prior[::-1]]
        parameters = (
            first(self.proposal.inputs(batch)[0]),
            *itertools.chain.from_iterable((layer.weights[0], layer.bias) for layer in others),
            deepest.bias,
            *itertools.chain.from_iterable((layer.weights[0], layer.bias) for layer in down),
        )
        keys = jnp.stack([jax.random.key_data(fold_in(key, i)) for i in range(len(others) + 1)])
        return ImportanceSamples(*_log_probabilities(num_samples, parameters, keys, batch.observation))


def looked_up(model: vimco.SigmoidBeliefNetwork) -> LookedUp:
    """Return the same model, by looking up sums."""
    is_plain = isinstance(model.proposal, UpwardProposal) and model.slice_size is None
    if not is_plain or model.prior.symmetric or model.prior.deterministic:
        raise ValueError("The lookups are for the generative model with units of 0 and 1, without slices.")
    return LookedUp(model.prior, model.likelihood, model.centre_context, model.proposal)


def is_here() -> bool:
    """Return whether the kernel can be compiled and run: a Linux machine with g++ and 512-bit vectors."""
    flags = Path("/proc/cpuinfo")
    return flags.exists() and " avx512f " in flags.read_text() and shutil.which("g++") is not None


@functools.cache
def _register() -> None:
    """Compile the kernel and make it known to XLA, once in a process."""
    coefficients = ",".join(f"{np.float32(c):.9e}f" for c in EXP2_COEFFICIENTS)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernel.so"
        command = [
            "g++",
            "-O3",
            "-march=native",
            "-std=c++17",
            "-fno-math-errno",
            "-shared",
            "-fPIC",
            "-Wno-ignored-attributes",
        ]
        command += [
            f"-DEXP2_COEFFICIENTS={coefficients}",
            f"-DCOLUMNS={COLUMNS}",
            "-isystem",
            jax.ffi.include_dir(),
            str(SOURCE),
            "-o",
            str(library),
        ]
        subprocess.run(command, check=True)
        kernel = ctypes.CDLL(str(library))  # stays loaded when the file is gone
    for name in ("Forward", "Backward"):
        jax.ffi.register_ffi_target(f"vimco_lookups_{name}", jax.ffi.pycapsule(getattr(kernel, name)), platform="cpu")


def _state_bytes(K: int, B: int, D: int, widths: list[int]) -> int:
    """Return the size of the kernel's `State`."""
    vectors = 4 * math.ceil(K * (B // 4) / 16)
    units = sum(16 * math.ceil(n / 16) for n in widths)
    columns = sum(COLUMNS * math.ceil(n / COLUMNS) for n in (D, *widths[:-1], *widths[1:]))
    return vectors * (2 * units + 64 * columns)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _log_probabilities(
    K: int, parameters: tuple[Array, ...], keys: UInt32[Array, "L 2"], x: Float[Array, "B D"]
) -> tuple[Float[Array, "K B"], Float[Array, "K B"]]:
    """Return log P(x, h^k) and log Q(h^k | x) of K draws. The first parameter holds the logits of Q(h_1 | x)."""
    log_joint, log_proposal, _ = _forward(K, parameters, keys, x)
    return log_joint, log_proposal


def _forward(K: int, parameters: tuple[Array, ...], keys: Array, x: Array) -> list[Array]:
    (B, D), depth = x.shape, len(parameters) // 4
    if B % 4 or not 0 < B <= 64:
        raise ValueError(f"The lookups take batches of a multiple of four, at most 64; this one has {B}.")
    if any(p.dtype != jnp.float32 for p in parameters):
        raise ValueError("The lookups take parameters in float32.")
    widths = [parameters[0].shape[1], *(parameters[2 * i - 1].shape[1] for i in range(1, depth))]
    _register()
    log = jax.ShapeDtypeStruct((K, B), jnp.float32)
    state = jax.ShapeDtypeStruct((_state_bytes(K, B, D, widths),), jnp.uint8)
    call = jax.ffi.ffi_call("vimco_lookups_Forward", (log, log, state))
    return list(call(parameters[0], keys, x, *parameters[1:]))


def _saved(K: int, parameters: tuple[Array, ...], keys: Array, x: Array) -> tuple[tuple[Array, Array], tuple]:
    log_joint, log_proposal, state = _forward(K, parameters, keys, x)
    return (log_joint, log_proposal), (parameters, state)


def _backward(_K: int, saved: tuple, cotangents: tuple[Array, Array]) -> tuple[tuple[Array, ...], None, None]:
    parameters, state = saved
    shapes = [jax.ShapeDtypeStruct(p.shape, p.dtype) for p in parameters]
    bias_of_prior = parameters[len(parameters) // 2 - 1]
    call = jax.ffi.ffi_call("vimco_lookups_Backward", shapes)
    return tuple(call(*cotangents, parameters[0], bias_of_prior, state)), None, None


_log_probabilities.defvjp(_saved, _backward)
