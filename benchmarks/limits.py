"""The limit of an update: its matrix products alone, by XLA and by NumPy's BLAS, on the same shapes.

No gradient flows into binary samples, so a layer needs two products: parents times weights, and parents times residuals
for the weights' gradient. Inputs from the data alone have B rows, all others K B.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vimco.training.compilation import compiler_options


class Product(NamedTuple):
    rows: int
    inputs: int
    outputs: int


def products(task: str, K: int, batch: int, width: int) -> list[Product]:
    """Return the layers of the three-layer model of a task."""
    square = [Product(K * batch, width, width)] * 4
    if task == "generative":
        return [Product(batch, 784, width), *square, Product(K * batch, width, 784)]
    half = Product(batch, 392, width)  # context to prior, context to proposal, observation to proposal
    if task == "structured, prior":
        return [half, *square[:2], Product(K * batch, width, 392)]
    return [half, half, half, *square, Product(K * batch, width, 392)]


def with_gradients_of_samples(task: str, K: int, batch: int, width: int) -> float:
    """Return the multiplications of an update with gradients into samples, relative to one without.

    Each layer whose parents are samples then needs a third product, residuals times weights.
    """
    layers = products(task, K, batch, width)
    sizes = [layer.rows * layer.inputs * layer.outputs for layer in layers]
    of_samples = [size for size, layer in zip(sizes, layers, strict=True) if layer.rows == K * batch]
    return 1 + sum(of_samples) / (2 * sum(sizes))


def xla_products(layers: list[Product], repeats: int, gradients: bool = True) -> Callable[[], None]:
    """Return a compiled call of the products of `repeats` updates. Each result is a later operand, so XLA keeps all."""
    parents, weights, residuals = _operands(layers)

    def once(_: int, state: tuple) -> tuple:
        weights, residuals = state
        forward = tuple(p @ w for p, w in zip(parents, weights, strict=True))
        if not gradients:
            # Adding one element of every result makes XLA compute them all.
            return tuple(w + 1e-30 * f[:1, :1] for w, f in zip(weights, forward, strict=True)), residuals
        contract_rows = (((0,), (0,)), ((), ()))
        return (
            tuple(jax.lax.dot_general(p, r, contract_rows) for p, r in zip(parents, residuals, strict=True)),
            forward,
        )

    def run(weights: tuple, residuals: tuple) -> tuple:
        return jax.lax.fori_loop(0, repeats, once, (weights, residuals))

    compiled = jax.jit(run, compiler_options=compiler_options()).lower(weights, residuals).compile()
    return lambda: jax.block_until_ready(compiled(weights, residuals))


def numpy_products(layers: list[Product], repeats: int) -> Callable[[], None]:
    """Return a call of the same products by NumPy."""
    parents, weights, residuals = jax.tree.map(np.asarray, _operands(layers))
    forward = [np.empty((p.rows, p.outputs), np.float32) for p in layers]
    backward = [np.empty((p.inputs, p.outputs), np.float32) for p in layers]

    def run() -> None:
        for _ in range(repeats):
            for p, w, r, f, b in zip(parents, weights, residuals, forward, backward, strict=True):
                np.matmul(p, w, out=f)
                np.matmul(p.T, r, out=b)

    return run


def _operands(layers: list[Product]) -> tuple[tuple, tuple, tuple]:
    """Return operands: parents are orthonormal, so that repeated products neither grow nor vanish."""
    rng = np.random.default_rng(0)

    def parent(p: Product) -> jax.Array:
        tall = np.linalg.qr(rng.standard_normal((max(p.rows, p.inputs), min(p.rows, p.inputs))))[0]
        return jnp.asarray(tall if p.rows >= p.inputs else tall.T, jnp.float32)

    def random(rows: int, columns: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal((rows, columns)) * 0.05, jnp.float32)

    return (
        tuple(parent(p) for p in layers),
        tuple(random(p.inputs, p.outputs) for p in layers),
        tuple(random(p.rows, p.outputs) for p in layers),
    )
