"""The shared part of the bridges to other libraries: turn a program's sample sites into `ImportanceSamples`, or refuse.

NumPyro and Pyro describe a probabilistic program in the same way: a model and a guide (the proposal Q), each a sequence
of named sample sites, inside plates, under masks and scales. Each bridge translates its library's sites to `Site`; this
module computes the log-weights for both.

The axis rule. The examples are those of one plate, which the user names. Every log-probability is summed over all its
other axes, so weights are normalised per example. With no plate named, the whole trace is a single example.

The scale rule. The N/B of a subsampled plate scales the bound, never the log-weights: it estimates a sum over examples,
and log f is not such a sum. A scale that the user puts around sites of the model raises those factors of f to a power
(annealing). A scale in the guide is refused, since the latents were not drawn from a power of Q.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from vimco.errors import UsageError
from vimco.estimators.estimator import Estimator
from vimco.estimators.tang import ImportanceSampledEM
from vimco.samples import AnyArray, Dreams, ImportanceSamples


class Plate(NamedTuple):
    """A plate around a site: its axis (from the right), its full size N, and the size B of the subsample in use."""

    dim: int  # 0 for a plate that is a loop and has no axis
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
    scale: AnyArray | float  # the user's factor of log_prob; 1.0 without one
    plates: Mapping[str, Plate]
    is_observed: bool
    masks: tuple[Any, ...]  # empty where there is none
    is_auxiliary: bool
    is_enumerated: bool


Sites = Mapping[str, Site]


def own_scale(scale: AnyArray | float | None, plates: Iterable[Plate]) -> AnyArray | float:
    """Return the user's part of a site's scale: the scale divided by the N/B of its plates, 1.0 if there is none."""
    subsampling = math.prod(plate.subsampling for plate in plates)
    if scale is None or (isinstance(scale, int | float) and math.isclose(scale, subsampling)):
        return 1.0
    return scale / subsampling


def masks_of(distribution: Any, masked: type) -> tuple[Any, ...]:
    """Return the masks of a distribution and of those in it; `masked` is the library's class of masked ones."""
    inner = getattr(distribution, "base_dist", None)
    own = (distribution._mask,) if isinstance(distribution, masked) else ()  # type: ignore[attr-defined]
    return own if inner is None else (*own, *masks_of(inner, masked))


def _are_different(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether masks differ; False where they are not known, as while JAX traces, or are on another device."""
    try:
        masks = np.broadcast_arrays(*map(np.asarray, (*first, *second)))
    except (TypeError, ValueError):
        return False
    n = len(first)
    return not np.array_equal(np.logical_and.reduce(masks[:n]), np.logical_and.reduce(masks[n:]))


def check_estimator(estimator: Any, instead: str, given: Collection[str] = ("latents_attached",)) -> None:
    """Refuse what is no estimator, or needs more than one set of samples; `instead` says what to use.

    `given` names the fields of the samples that are given, or that the program itself decides.
    """
    if not isinstance(estimator, Estimator):
        raise UsageError(
            f"An estimator is an instance of one of vimco's classes, such as vimco.VIMCO(); got {estimator!r}. A "
            "module of PyTorch, such as vimco.torch.NVIL, is called itself, with the log-probabilities."
        )
    if type(estimator).updated is not Estimator.updated:
        raise UsageError(
            f"{type(estimator).__name__} carries state (a learned baseline, a schedule) from update to update, and "
            f"there is no place for it here: {instead}"
        )
    if Dreams() in estimator.needs:
        raise UsageError(
            "The sleep update of RWS learns from dreams, and an observed program cannot dream its own data: use the "
            "wake update, RWS()."
        )
    missing = [need.what for need in estimator.needs if need.field not in given]
    if missing:
        raise UsageError(
            f"{type(estimator).__name__} needs {missing[0]}, which a program here does not offer: use an "
            "estimator that needs the weighted samples alone, such as VIMCO."
        )


def check_guide(estimator: Estimator, guide: Sites) -> None:
    """Refuse a guide beside an estimator that would not train it."""
    while isinstance(inner := getattr(estimator, "estimator", None), Estimator):  # of an average, or annealed
        estimator = inner
    if guide and isinstance(estimator, ImportanceSampledEM):
        raise UsageError(
            f"Importance-sampled EM draws all latents from the model's prior, and the guide proposes {min(guide)!r}: "
            "leave the guide empty, or use RWS, which does the same for a learned proposal."
        )


def check_num_samples(num_samples: int) -> None:
    """Refuse a K below one."""
    if num_samples < 1:
        raise UsageError(f"A bound needs at least one sample; got num_samples = {num_samples}.")


def bound_scale(model: Sites, plate: str | None) -> float:
    """Return N/B of the plate of the examples, which scales the bound; 1 for a whole trace."""
    return 1.0 if plate is None else next(iter(model.values())).plates[plate].subsampling


def importance_samples(
    model: Sites, guide: Sites, plate: str | None, samples: Plate | None = None, *, shared_parameters: bool = False
) -> ImportanceSamples:
    """Return the record of the samples in one pair of traces, of shape (K, B), or (K,) with no plate named.

    `samples` is the leftmost axis, that of the K samples, where a trace holds them all; otherwise K is 1. Latents of
    the model that the guide leaves out come from the prior: their log P is in both fields.
    """
    _check(model, guide, plate)

    def per_example(values: AnyArray, site: Site) -> AnyArray:
        kept = [*([samples] if samples else []), *([site.plates[plate]] if plate is not None else [])]
        dims = [axis.dim for axis in kept]
        _check_shape(site, kept, num_axes=-samples.dim if samples else None)
        summed = tuple(dim for dim in range(-values.ndim, 0) if dim not in dims)
        values = array_namespace(values).sum(values, axis=summed)
        return values if samples else values[None]

    drawn = [*guide.values(), *(site for name, site in model.items() if not site.is_observed and name not in guide)]
    log_joint = sum(per_example(site.log_prob * site.scale, site) for site in model.values())
    zero = array_namespace(log_joint).zeros_like(log_joint)
    log_proposal = sum((per_example(site.log_prob, site) for site in drawn), start=zero)
    log_score = sum((per_example(site.log_score, site) for site in drawn if site.log_score is not None), start=zero)
    none_is_reparameterised = all(site.log_score is site.log_prob for site in drawn)
    return ImportanceSamples(
        log_joint,
        log_proposal,
        log_score=None if none_is_reparameterised else log_score,
        latents_attached=bool(drawn) and all(site.log_score is None for site in drawn),
        shared_parameters=shared_parameters,
        proposal_is_prior=len(drawn) > len(guide),  # True also if the guide proposes some latents: RWS must refuse
    )


def _check(model: Sites, guide: Sites, plate: str | None) -> None:
    if not model:
        raise UsageError("The model has no sample site, so there is no P(x, h) to bound.")
    for site in guide.values():
        _check_guide_site(site, model.get(site.name))
    for site in model.values():
        if not site.is_observed and site.is_enumerated:
            raise UsageError(
                f"Site {site.name!r} is marked for enumeration, and this objective samples all latents: take the mark "
                "away, or use TraceEnum_ELBO."
            )
    plates = {name for site in model.values() for name in site.plates}
    if plate is not None and plate not in plates:
        known = ", ".join(map(repr, sorted(plates))) or "none"
        raise UsageError(f"There is no plate {plate!r} in the model; it has {known}.")
    for site in (*guide.values(), *model.values()):
        _check_plates(site, plate)


def _check_guide_site(site: Site, in_model: Site | None) -> None:
    if site.is_observed:
        raise UsageError(
            f"The guide observes site {site.name!r}, or has a factor there, but a proposal only draws latents: move "
            "the site to the model."
        )
    if site.is_enumerated:
        raise UsageError(
            f"Site {site.name!r} of the guide is marked for enumeration, and this objective samples all latents: take "
            "the mark away, or use TraceEnum_ELBO."
        )
    if not (isinstance(site.scale, float) and site.scale == 1.0):
        raise UsageError(
            f"Site {site.name!r} of the guide is scaled, but the latents were not drawn from a power of Q: "
            "scale sites of the model alone (annealing), or scale the learning rate."
        )
    if in_model is None or in_model.is_observed:
        if not site.is_auxiliary:
            what = "the model does not have" if in_model is None else "the model observes"
            raise UsageError(
                f"The guide draws {site.name!r}, which {what}, so P(x, h) / Q(h) bounds nothing: make it a latent of "
                "the model, or mark it auxiliary if other sites of the guide make up for its density."
            )
        return
    if bool(site.masks) != bool(in_model.masks) or (site.masks and _are_different(site.masks, in_model.masks)):
        where = f"in the {'guide' if site.masks else 'model'} alone"
        where = "otherwise in the guide than in the model" if site.masks and in_model.masks else where
        raise UsageError(
            f"Latent {site.name!r} is masked {where}, so one of P and Q would lack a factor: put the same mask around "
            "both."
        )
    if _without_leading_ones(site.log_prob.shape) != _without_leading_ones(in_model.log_prob.shape):
        raise UsageError(
            f"Latent {site.name!r} has the batch shape {tuple(site.log_prob.shape)} in the guide and "
            f"{tuple(in_model.log_prob.shape)} in the model: make plates and `to_event` agree."
        )


def _check_plates(site: Site, plate: str | None) -> None:
    if plate is not None and plate not in site.plates:
        if site.is_observed:
            raise UsageError(
                f"Site {site.name!r} lies outside plate {plate!r}, so its log-probability belongs to no example: move "
                "it into the plate, or name no plate, and the whole trace is one example."
            )
        raise UsageError(
            f"Latent {site.name!r} lies outside plate {plate!r}. All examples would share it, and weights per example "
            "would be wrong: make it a parameter, move it into the plate, or name no plate, and the whole trace is one "
            "example."
        )
    if plate is not None and site.plates[plate].dim == 0:
        raise UsageError(
            f"Plate {plate!r} is a loop; use it as a context, `with plate:`, so that examples have an axis."
        )
    for name, other in site.plates.items():
        if name != plate and other.size != other.full_size:
            raise UsageError(
                f"Plate {name!r} subsamples {other.size} of {other.full_size}. N/B may scale the bound but not the "
                f"log-weights: name it as the plate of the examples, plate={name!r}, or use it whole."
            )


def _check_shape(site: Site, kept: list[Plate], num_axes: int | None) -> None:
    shape = dict(enumerate(site.log_prob.shape, start=-site.log_prob.ndim))  # axis from the right: size
    fits = all(axis.size < 0 or shape.get(axis.dim) == axis.size for axis in kept)  # Pyro: -1 is a plate of any size
    if not fits or (num_axes is not None and len(shape) > num_axes):
        expected = " and ".join(f"{axis.size} on axis {axis.dim}" for axis in kept)
        raise UsageError(
            f"Site {site.name!r} has the batch shape {tuple(shape.values())}, but should have {expected}: check plates "
            "and `to_event`"
            + ("." if num_axes is None else ", or draw the samples one by one, with vectorize_particles=False.")
        )


def _without_leading_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return _without_leading_ones(shape[1:]) if shape and shape[0] == 1 else tuple(shape)
