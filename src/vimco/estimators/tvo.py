"""The thermodynamic variational objective (Masrani, Le & Wood, 2019)."""

import dataclasses
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vimco.errors import UsageError
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant, weighted_sum
from vimco.parameters import Buffer
from vimco.samples import AnyArray, Batch, Estimate, ImportanceSamples
from vimco.signals import (
    check_partition,
    log_spaced_partition,
    moment_partition,
    thermodynamic_bound,
    thermodynamic_coefficients,
)


class TVO(Estimator):
    """The gradient of a left Riemann sum of log P(x) = ∫ E_{π_β} log f dβ, a lower bound, with β from `partition`.

    The one-point partition (0,) is RLOO on the ELBO, and unbiased. Other points are self-normalised: their bias falls
    as 1/K. `log_spaced_partition` makes a partition; `MomentTVO` keeps one that follows the weights. K ≥ 2.
    """

    ascends: ClassVar[str] = "the thermodynamic objective, for many samples"

    partition: tuple[float, ...] = eqx.field(static=True, default=(0.0, 0.05))

    def __check_init__(self) -> None:
        check_partition(self.partition)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate."""
        return tvo_estimate(samples, self.partition)


class Partition(Buffer):
    """The points of a partition, which are state and not trained."""

    points: Float[Array, "P"]


class MomentTVO(Estimator):
    """TVO whose partition divides the rise of E_{π_β} log f evenly (Brekelmans et al., 2020).

    It is recomputed every `every` updates from the log-weights of one batch.
    """

    ascends: ClassVar[str] = "the thermodynamic objective, for many samples"

    partition: Partition
    count: Int[Array, ""]  # updates seen
    every: int = eqx.field(static=True)

    def __init__(self, num_points: int = 5, every: int = 1000):
        """Start from a log-spaced partition with this many points."""
        if every < 1:
            raise UsageError(f"The partition must be renewed every 1 or more updates; got {every}.")
        self.partition = Partition(jnp.asarray(log_spaced_partition(num_points, 0.01)))
        self.count = jnp.zeros((), jnp.int32)
        self.every = every

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate."""
        return dataclasses.replace(
            tvo_estimate(samples, self.partition.points), residual=held_constant(samples.log_weights)
        )

    def updated(self, estimate: Estimate) -> "MomentTVO":
        """Return the estimator for the next update, with a new partition when one is due."""
        points = self.partition.points
        points = jax.lax.cond(
            self.count % self.every == 0,
            lambda log_weights: moment_partition(log_weights, len(points)).astype(points.dtype),
            lambda _: points,
            estimate.residual,
        )
        return eqx.tree_at(lambda e: (e.partition.points, e.count), self, (points, self.count + 1))


def tvo_estimate(samples: ImportanceSamples, partition: tuple[float, ...] | AnyArray) -> Estimate:
    """Return the estimate with the points of a partition."""
    if samples.has_attached_latents:
        raise UsageError(
            "The thermodynamic objective holds its samples constant, so it cannot pass gradients through "
            "reparameterised latents: use VIMCO for mixed latents."
        )
    log_weights = held_constant(samples.log_weights)
    of_joint, of_proposal = thermodynamic_coefficients(log_weights, partition, centred=not samples.proposal_is_prior)
    surrogate = weighted_sum(of_joint, samples.log_joint) + weighted_sum(of_proposal, samples.log_proposal)
    return Estimate(surrogate, log_weights, of_proposal, objective=thermodynamic_bound(log_weights, partition))


@ESTIMATORS.register("tvo", "TVO")
def _tvo(
    *_: Any,
    partition: Annotated[tuple[float, ...], "Left ends of the intervals of [0, 1], from 0 on.", 1000] = (0.0, 0.05),
) -> TVO:
    """The thermodynamic objective, with a partition written by hand."""
    return TVO(partition)


@ESTIMATORS.register("tvo-log-spaced", "TVO, log-spaced")
def _tvo_log_spaced(
    *_: Any,
    points: Annotated[int, "Points of the partition.", 1000] = 5,
    smallest: Annotated[float, "Its second point, after 0."] = 0.01,
) -> TVO:
    """The thermodynamic objective, with a partition whose points rise by equal factors."""
    return TVO(log_spaced_partition(points, smallest))


@ESTIMATORS.register("tvo-moments", "TVO, moments")
def _tvo_moments(
    *_: Any,
    points: Annotated[int, "Points of the partition.", 1000] = 5,
    every: Annotated[int, "Updates between two renewals of the partition."] = 1000,
) -> MomentTVO:
    """The thermodynamic objective, with a partition that follows the weights."""
    return MomentTVO(points, every)
