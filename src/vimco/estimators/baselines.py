"""Learned baselines: a small network of the data, and running moments of its residuals."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from array_api_compat import array_namespace
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vimco.errors import UsageError
from vimco.parameters import Buffer, Centre
from vimco.samples import AnyArray, Batch


class BaselineNetwork(eqx.Module):
    """b(x): one hidden layer of tanh units over the centred context and observation (supplement B).

    It starts as the constant 0, so it adds nothing to the signal before it has learned.
    """

    centre: Centre
    hidden_weight: Float[Array, "D H"]
    hidden_bias: Float[Array, "H"]
    output_weight: Float[Array, "H *n"]

    def __init__(self, key: PRNGKeyArray, mean: Float[Array, "D"], num_hidden: int = 100):
        limit = jnp.sqrt(6.0 / (mean.shape[0] + num_hidden)).astype(mean.dtype)
        self.centre = Centre(mean)
        self.hidden_weight = jax.random.uniform(
            key, (mean.shape[0], num_hidden), mean.dtype, minval=-limit, maxval=limit
        )
        self.hidden_bias = jnp.zeros(num_hidden, mean.dtype)
        self.output_weight = jnp.zeros(num_hidden, mean.dtype)

    def __call__(self, batch: Batch | None) -> Float[Array, "B *n"]:
        """Return b(x) for each example, and for each layer where the output weights have one axis more."""
        if batch is None:
            raise UsageError(
                "An input-dependent baseline looks at the data: call the estimator as estimator(samples, batch), "
                "or leave its network out."
            )
        data = jnp.concatenate([batch.context, batch.observation], axis=-1)
        return jnp.tanh(self.centre(data) @ self.hidden_weight + self.hidden_bias) @ self.output_weight


def optional_network(key: PRNGKeyArray, mean: Float[Array, "D"], width: int) -> BaselineNetwork | None:
    """Return a network with this many hidden units, or None for zero."""
    if width < 0:
        raise UsageError(f"A baseline has 0 or more hidden units; got {width}.")
    return BaselineNetwork(key, mean, width) if width else None


class RunningMoments(Buffer):
    """Mean and variance of a stream of residuals: a plain average at first, exponential with `decay` later on."""

    mean: Float[Array, ""]
    variance: Float[Array, ""]
    count: Int[Array, ""]
    decay: float = eqx.field(static=True)

    def __init__(self, decay: float = 0.8):
        if not 0 <= decay <= 1:
            raise UsageError(f"The decay of running moments is between 0 and 1; got {decay}.")
        self.mean = jnp.zeros(())
        self.variance = jnp.zeros(())
        self.count = jnp.zeros((), jnp.int32)
        self.decay = decay

    def updated(self, residual: Float[Array, "..."]) -> "RunningMoments":
        """Return the moments after one more batch."""
        after = moments_after(self, stop_gradient(residual))
        return eqx.tree_at(lambda m: (m.mean, m.variance, m.count), self, after)


@runtime_checkable  # for beartype, in the tests
class Moments(Protocol):
    """Running moments of any array library: `RunningMoments`, or its PyTorch version."""

    mean: Any
    variance: Any
    count: Any
    decay: float


def moments_after(moments: Moments, residual: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return mean, variance and count after one more batch of residuals, which weighs max(1 / count, 1 − decay).

    Infinite residuals (a bound of −inf) and batches whose variance overflows are skipped. The variance is that within
    batches, as published. A batch of one has none: its part is the square of its distance from the mean so far, with
    the factor that makes the plain average over such batches the variance of the stream.
    """
    xp = array_namespace(residual)
    is_finite = xp.isfinite(residual)
    number = xp.sum(xp.astype(is_finite, residual.dtype))
    divisor = xp.where(number > 0, number, 1.0)
    mean = xp.sum(xp.where(is_finite, residual, 0.0)) / divisor
    variance = xp.sum(xp.where(is_finite, residual - mean, 0.0) ** 2) / divisor
    plain = moments.count / (moments.count + 1)
    keep = xp.where(plain < moments.decay, plain, moments.decay)
    variance = xp.where(number == 1, keep * (mean - moments.mean) ** 2, variance)
    is_usable = (number > 0) & xp.isfinite(variance)

    def moved(old: AnyArray, new: AnyArray) -> AnyArray:
        return xp.astype(xp.where(is_usable, keep * old + (1 - keep) * new, old), old.dtype)

    count = moments.count + xp.astype(is_usable, moments.count.dtype)
    return moved(moments.mean, mean), moved(moments.variance, variance), count
