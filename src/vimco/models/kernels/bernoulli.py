"""Binary units: their samples and their log-probability, each in one vectorised pass."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import bitcast_convert_type, stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32
from numpy.polynomial import Chebyshev, Polynomial

from vimco.errors import UsageError
from vimco.models.kernels.randomness import sample_words
from vimco.samples import Part

# 2^f for |f| ≤ 1/2, to 2⁻²³ of its value before rounding: the polynomial through six Chebyshev points.
EXP2_COEFFICIENTS = Chebyshev.interpolate(np.exp2, 5, domain=[-0.5, 0.5]).convert(kind=Polynomial).coef
MOST_FACTORS = 100  # at most 2 each: their product stays far below the largest float32, 2¹²⁸


def plain_sample_bernoulli(
    key: PRNGKeyArray, numbers: Int[Array, "K"], logits: Float[Array, "*#K B n"]
) -> Float[Array, "K B n"]:
    """Return the less likely value where a uniform number is below its probability, elsewhere the likelier one."""
    *_, B, n = logits.shape
    four = _four_uniforms(*sample_words(key, numbers, (-(-B // 4), n)))
    is_rare = jnp.concatenate(four, axis=1)[:, :B] < jax.nn.sigmoid(-jnp.abs(logits))
    return (is_rare != (logits > 0)).astype(logits.dtype)


def plain_log_bernoulli(value: Float[Array, "*#B n"], logits: Float[Array, "*#B n"]) -> Float[Array, "*B"]:
    """Return log Π_i Bernoulli(v_i; σ(a_i)) = Σ_i v_i a_i − log(1 + exp a_i), over the last axis."""
    return jnp.sum(value * logits - jax.nn.softplus(logits), axis=-1)


def plain_log_bernoulli_of_layers(
    values: tuple[Float[Array, "*#B _"], ...], logits: tuple[Float[Array, "*#B _"], ...]
) -> Float[Array, "*B"]:
    """Return the sum of `plain_log_bernoulli` over layers."""
    first, *others = (plain_log_bernoulli(v, a) for v, a in zip(values, logits, strict=True))
    return sum(others, start=first)


# Why other versions: XLA repeats the cipher in every operation that reads a sample, unless samples are stored in a form
# that it treats as expensive; dividing by 1 + e is slower than comparing u + u e with e; one exponential and one
# logarithm for each unit are most of the time of a log-probability, so here the exponential is a polynomial and many
# units share a logarithm; and XLA does not vectorise a sum over the last axis. docs/explanation/speed.md has the times.


@jax.jit  # traced once for each shape
def sample_bernoulli(
    key: PRNGKeyArray, numbers: Int[Array, "K"], logits: Float[Array, "*#K B n"], part: Part | None = None
) -> Float[Array, "K B n"]:
    """Draw h^k ~ Bernoulli(σ(logits)) for the sample numbers k. Sample k depends on the key, (B, n) and k alone.

    So drawing K samples in slices does not change them. Probabilities are exact to 2⁻²³, and a value less likely than
    2⁻²⁴ is never drawn: if it were drawn too often, its weight would be far too large. The units of an example are
    independent of each other; four examples share some of their bits (`_four_uniforms`). With `part`, logits and
    samples are those of a part of a batch.
    """
    *leading, B, n = logits.shape
    quarter = -(-B // 4)
    logits = jnp.pad(logits, [*((0, 0) for _ in leading), (0, 4 * quarter - B), (0, 0)])
    # XLA computes its own exponential of shared logits once and stores it; a polynomial is repeated for every sample.
    odds = _exp_of_minus(jnp.abs(logits)) if leading else jnp.exp(-jnp.abs(logits))  # of the less likely value
    odds, one_is_likelier = (array.reshape(*leading, 4, quarter, n) for array in (odds, logits > 0))
    four_bits = jnp.zeros((), jnp.int32)
    first = None if part is None else part.index * (quarter * n)
    for i, uniform in enumerate(_four_uniforms(*sample_words(key, numbers, (quarter, n), first))):
        u, e = uniform.astype(logits.dtype), odds[..., i, :, :]
        is_rare = u + u * e < e
        four_bits = four_bits | ((is_rare != one_is_likelier[..., i, :, :]).astype(jnp.int32) << i)
    # The root of the square of the four bits, rounded down, is the four bits. XLA treats a root as expensive and stores
    # it; a cheaper operation is repeated, with the cipher, in each operation that reads a sample. XLA removes an
    # optimization barrier before it fuses, so a barrier does not help.
    stored = jnp.sqrt((four_bits * four_bits).astype(logits.dtype) + 0.5).astype(jnp.int32)[:, None]
    samples = (stored >> jnp.arange(4, dtype=jnp.int32)[:, None, None]) & 1
    return stop_gradient(samples.astype(logits.dtype).reshape(len(numbers), 4 * quarter, n)[:, :B])


def _four_uniforms(first: UInt32[Array, "..."], second: UInt32[Array, "..."]) -> list[Float[Array, "..."]]:
    """Return four numbers from two random words, each the middle of one of 2²³ intervals: exact in float32, in (0, 1).

    Each has thirteen bits of its own, and all four share the last ten, which matter only where the first thirteen tie
    with a threshold. So the joint probability of two outcomes is off by at most 2⁻²⁸, a correlation of 2⁻¹³ between
    values that are rarer than that. The four belong to different examples, which never occur in the same log f.
    """
    common = ((first & 31) << 5) | (second & 31) | 0x3F800000  # with the exponent of a number from 1 to 2
    words = (first >> 9, first << 4, second >> 9, second << 4)
    return [bitcast_convert_type((word & 0x7FFC00) | common, jnp.float32) - np.float32(1 - 2.0**-24) for word in words]


def _exp_of_minus(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return exp −x for x ≥ 0. In float32 by a polynomial, twice as fast as XLA's exponential; 2⁻¹²⁶ for x > 87.3."""
    if x.dtype != jnp.float32:
        return jnp.exp(-x)
    exponent = jnp.maximum(x * np.float32(-np.log2(np.e)), -126)
    whole = jnp.round(exponent)
    power = jnp.full_like(x, EXP2_COEFFICIENTS[-1])
    for coefficient in EXP2_COEFFICIENTS[-2::-1]:
        power = power * (exponent - whole) + np.float32(coefficient)
    # A float32 near 3 · 2²² has no bits for fractions, so its lowest nine bits are the whole number. Adding them to the
    # exponent bits of a float multiplies it by 2 to that power.
    bits = bitcast_convert_type(whole + np.float32(3 * 2**22), jnp.int32) << 23
    return bitcast_convert_type(bitcast_convert_type(power, jnp.int32) + bits, jnp.float32)


def log_bernoulli(value: Float[Array, "*#B n"], logits: Float[Array, "*#B n"]) -> Float[Array, "*B"]:
    """Return `plain_log_bernoulli`.

    The gradient of the logits is v − σ(a). That of the values is a, and is computed only where required; the formula
    also holds for values between 0 and 1 (means, relaxed samples).
    """
    return log_bernoulli_of_layers((value,), (logits,))


@jax.custom_vjp
def log_bernoulli_of_layers(
    values: tuple[Float[Array, "*#B _"], ...], logits: tuple[Float[Array, "*#B _"], ...]
) -> Float[Array, "*B"]:
    """Return `plain_log_bernoulli_of_layers`; leading axes of layers are broadcast. One pass goes over all units.

    In float32 the absolute error is up to 2⁻²⁴ for each unit, since factors 1 + e are multiplied.
    """
    return _sum_over_layers(values, logits)


@jax.jit  # traced once for each shape
def _sum_over_layers(values: tuple[Array, ...], logits: tuple[Array, ...]) -> Array:
    shape = jnp.broadcast_shapes(*(array.shape[:-1] for array in (*values, *logits)))
    linear: dict[int, list[Array]] = {}  # by the width of slices
    factors: dict[int, list[Array]] = {}
    result = jnp.zeros((), logits[0].dtype)
    for value, a in zip(values, logits, strict=True):
        if value.shape[-1] != a.shape[-1]:
            raise UsageError(f"A layer has as many values as logits; got {value.shape[-1]} and {a.shape[-1]}.")
        is_shared = a.shape[:-1] != shape
        if is_shared:  # by samples: terms that do not depend on their values are computed once
            result = result + log_bernoulli_of_layers((jnp.zeros_like(a),), (-jnp.abs(a),))
        width, starts = _cover(a.shape[-1])
        for start, seen in starts:
            v_slice, a_slice = (array[..., start : start + width] for array in (value, a))
            # v a − log(1 + exp a) = v a − max(a, 0) − log(1 + exp −|a|); a sum of logarithms is that of a product.
            term = v_slice * a_slice - jnp.maximum(a_slice, 0)
            linear.setdefault(width, []).append(_without_first(seen, term))
            if not is_shared:
                factors.setdefault(width, []).append(_without_first(seen, _exp_of_minus(jnp.abs(a_slice))))
    for width, terms in linear.items():
        total = sum(terms[1:], start=terms[0])
        for start in range(0, len(factors.get(width, [])), MOST_FACTORS):
            total = total - jnp.log(_product_of_one_plus(factors[width][start : start + MOST_FACTORS]))
        # A product with ones is vectorised, a sum is not. It must be as exact as a sum, also where others are not.
        result = result + jnp.matmul(total, jnp.ones(width, total.dtype), precision="highest")
    return result


def _cover(n: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the slices in which n units are summed: their common width, and for each (start, units already summed).

    The width is a multiple of sixteen, the size of a 512-bit vector, so the last slice may start with units of the
    slice before.
    """
    if n < 16:
        return n, [(0, 0)]
    widths = {count: -(-n // (16 * count)) * 16 for count in range(1, 9)}
    count = min((count for count in widths if widths[count] <= n), key=lambda count: (count * widths[count], -count))
    width = widths[count]
    return width, [*((i * width, 0) for i in range(count - 1)), (n - width, count * width - n)]


def _without_first(number: int, array: Float[Array, "*B n"]) -> Float[Array, "*B n"]:
    """Return the array with the first `number` entries of its last axis set to zero."""
    return jnp.where(jnp.arange(array.shape[-1]) >= number, array, 0) if number else array


def _product_of_one_plus(terms: Sequence[Float[Array, "..."]]) -> Float[Array, "..."]:
    """Return Π (1 + e), with one instruction for each e."""
    product = 1 + terms[0]
    for e in terms[1:]:
        product = product + product * e
    return product


def _forward(values: tuple, logits: tuple) -> tuple[Array, tuple]:
    """Return the sum, and the values for the backward pass; each input says whether it is differentiated."""
    v, a = (tuple(primal.value for primal in primals) for primals in (values, logits))
    # () or None has no leaves, so it is known at compile time whether a layer's values get a gradient.
    asked = tuple(() if primal.perturbed else None for primal in values)
    return log_bernoulli_of_layers(v, a), (v, a, asked)


def _backward(saved: tuple, cotangent: Array) -> tuple[tuple[Array | None, ...], tuple[Array, ...]]:
    def gradient(primal: Array, derivative: Array) -> Array:
        full = cotangent[..., None] * derivative
        # An input that several samples share gets the sum over them: the transpose of broadcasting.
        _, transposed = jax.vjp(lambda array: jnp.broadcast_to(array, full.shape), primal)
        return transposed(full)[0]

    values, logits, asked = saved
    of_values = tuple(None if no is None else gradient(v, a) for v, a, no in zip(values, logits, asked, strict=True))
    return of_values, tuple(gradient(a, v - jax.nn.sigmoid(a)) for v, a in zip(values, logits, strict=True))


log_bernoulli_of_layers.defvjp(_forward, _backward, symbolic_zeros=True)
