"""The interface: an estimator maps importance samples to an estimate of the gradient of the bound."""

import abc
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
from array_api_compat import array_namespace, is_torch_array
from jax.lax import stop_gradient
from jaxtyping import Float

from vimco.registry import Named, Registry
from vimco.samples import AnyArray, Batch, Estimate, ImportanceSamples, Need
from vimco.signals import normalized_weights


class Estimator(eqx.Module):
    """An estimator of ∇L^K. `jax.grad` of its `surrogate` is the estimate; a training loop uses nothing else.

    `ascends` names what the mean update ascends, in every block of parameters and for every state of the estimator: by
    default the bound L^K of the given samples. Tests check it by enumeration.
    """

    ascends: ClassVar[str] = "L^K"

    @abc.abstractmethod
    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate from one set of K samples per example. Only learned baselines use the batch."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the samples must carry beyond log-probabilities, such as `vimco.samples.Dreams()`."""
        return ()

    def updated(self, estimate: Estimate) -> "Estimator":
        """Return the estimator for the next update, with its state updated by this estimate."""
        return self


@dataclass(frozen=True)
class NamedEstimator(Named):
    """An estimator that the program knows by name.

    `build(key, mean, **options)` makes it: `key` is for initial parameters, `mean` that of the data, context and
    observation side by side. An estimator without a network needs neither.
    """

    line: str = "-."  # how its curves are drawn: a line style of matplotlib
    short_title: str = ""  # in the paper's legends, where that is not the title


ESTIMATORS = Registry("estimator", NamedEstimator)


def held_constant(values: AnyArray) -> AnyArray:
    """Return the same values without a gradient: `jax.lax.stop_gradient`, or `detach` for a PyTorch tensor."""
    return values.detach() if is_torch_array(values) else stop_gradient(values)


def weighted_sum(coefficients: Float[AnyArray, "K *B"], terms: Float[AnyArray, "K *B"]) -> Float[AnyArray, "*B"]:
    """Return Σ_k stop(c_k) t_k. Value and gradient leave out terms with coefficient zero, even if they are −inf."""
    xp = array_namespace(terms)
    coefficients = held_constant(coefficients)
    return xp.sum(coefficients * xp.where(coefficients == 0, 0.0, terms), axis=0)


def score_term(signal: Float[AnyArray, "K *B"], samples: ImportanceSamples) -> Float[AnyArray, "*B"]:
    """Return Σ_j stop(signal_j) log Q(h^j | x): the first term of Eqs. 7, 8 and 10."""
    return weighted_sum(signal, samples.scored)


def weight_term(log_weights: Float[AnyArray, "K *B"], samples: ImportanceSamples) -> Float[AnyArray, "*B"]:
    """Return Σ_j stop(w̃_j) log f(x, h^j): the second term of Eqs. 7, 8 and 10, and all of Eq. 6."""
    return weighted_sum(normalized_weights(log_weights), samples.log_weights)


def estimate_from_signal(
    signal: Float[AnyArray, "K *B"], log_weights: Float[AnyArray, "K *B"], samples: ImportanceSamples
) -> Estimate:
    """Return the estimate with both terms of Eqs. 7 and 10, from a learning signal and log-weights held constant."""
    return Estimate(score_term(signal, samples) + weight_term(log_weights, samples), log_weights, signal)
