"""What the bridges to other libraries share: a program's sample sites become `ImportanceSamples`, or a refusal.

NumPyro and Pyro describe a probabilistic program alike: a model and a guide (our proposal Q), each a sequence of named
sample sites, inside plates, under masks and scales. Each bridge translates its library's sites to `Site`; everything
that decides what a log-weight *is* happens here, once.

The axis rule. The examples are those of one plate, which the user names. Every log-probability is summed over all its
other axes, so weights are normalised per example. With no plate named, the whole trace is a single example.

The scale rule. The N/B of a subsampled plate scales the bound, never the log-weights: it estimates a sum over examples,
and log f is not one. A scale that the user puts around sites of the model raises those factors of f to a power
(annealing); the proposal takes none, since a power of Q is not what the latents were drawn from.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from array_api_compat import array_namespace

from vimco.errors import UsageError
from vimco.estimators.estimator import Estimator
from vimco.samples import AnyArray, ImportanceSamples


class Plate(NamedTuple):
    """A plate around a site: its axis (from the right), its full size N, and the size B of the subsample in use."""

    dim: int | None
    full_size: int
    size: int

    @property
    def subsampling(self) -> float:
        """N/B."""
        return self.full_size / self.size


class Site(NamedTuple):
    """One sample site of a model or a guide."""

    name: str
    log_prob: AnyArray  # under its mask, without any scale; of the site's batch shape
    log_score: (
        AnyArray | None
    )  # log_prob of what was drawn without reparameterisation; None where there is no such part
    scale: AnyArray | float  # what the user multiplies log_prob with; 1.0 where no handler does
    plates: Mapping[str, Plate]
    is_observed: bool
    is_masked: bool
    is_auxiliary: bool
    is_enumerated: bool


Sites = Mapping[str, Site]


def own_scale(scale: AnyArray | float | None, plates: Iterable[Plate]) -> AnyArray | float:
    """The user's part of a site's scale: what is left after the N/B of its plates; exactly 1.0 for nothing."""
    subsampling = math.prod(plate.subsampling for plate in plates)
    if scale is None or (isinstance(scale, int | float) and math.isclose(scale, subsampling)):
        return 1.0
    return scale / subsampling


def check_estimator(estimator: Estimator, instead: str) -> None:
    """Refuses the estimators that need more than one set of samples; `instead` says what to use."""
    if type(estimator).updated is not Estimator.updated:
        raise UsageError(
            f"{type(estimator).__name__} carries a learned baseline from update to update, and there is no place "
            f"for it here: {instead}"
        )
    if estimator.needs_dreams:
        raise UsageError(
            "The sleep update of RWS learns from dreams, and an observed program cannot dream its own data: use the "
            "wake update, RWS()."
        )


def check_num_samples(num_samples: int) -> None:
    """Refuses a K below one."""
    if num_samples < 1:
        raise UsageError(f"A bound needs at least one sample; got num_samples = {num_samples}.")


def bound_scale(model: Sites, plate: str | None) -> float:
    """N/B of the plate of the examples, which scales the bound; 1 for a whole trace."""
    return 1.0 if plate is None else next(iter(model.values())).plates[plate].subsampling


def importance_samples(
    model: Sites, guide: Sites, plate: str | None, sample_dim: int | None = None
) -> ImportanceSamples:
    """The record of the samples in one pair of traces, of shape (K, B), or (K,) with no plate named.

    `sample_dim` is the axis of the K samples where a trace holds them all; otherwise K is 1. Latents of the model that
    the guide leaves out come from the prior: their log P stands in both fields.
    """
    _check(model, guide, plate)

    def per_example(values: AnyArray, site: Site) -> AnyArray:
        dims = [sample_dim] if sample_dim is not None else []
        dims += [site.plates[plate].dim] if plate is not None else []
        xp = array_namespace(values)
        values = xp.sum(values, axis=tuple(axis for axis in range(-values.ndim, 0) if axis not in dims))
        return values if sample_dim is not None else values[None]

    drawn = [*guide.values(), *(site for name, site in model.items() if not site.is_observed and name not in guide)]
    log_joint = sum(per_example(site.log_prob * site.scale, site) for site in model.values())
    zero = 0.0 * log_joint
    log_proposal = sum((per_example(site.log_prob, site) for site in drawn), start=zero)
    log_score = sum((per_example(s.log_score, s) for s in drawn if s.log_score is not None), start=zero)
    return ImportanceSamples(
        log_joint,
        log_proposal,
        log_score=None if all(site.log_score is not None for site in drawn) else log_score,
        proposal_is_prior=len(drawn) > len(guide),
    )
