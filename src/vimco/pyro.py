"""VIMCO inside Pyro: an objective for `pyro.infer.SVI` that trains discrete latents.

    svi = SVI(model, guide, Adam({"lr": 1e-3}), loss=MonteCarloObjective(vimco.VIMCO(), num_samples=5, plate="data"))

`RenyiELBO` holds the same bound, but gives a discrete guide no gradient. `vimco.bridges` gives the rules for plates,
scales and masks.
"""

from collections.abc import Callable
from numbers import Number
from typing import Any

try:
    import torch
    from pyro import poutine
    from pyro.distributions import MaskedDistribution
    from pyro.distributions.util import scale_and_mask
    from pyro.infer import ELBO
    from pyro.poutine import Trace
    from pyro.poutine.util import prune_subsample_sites, site_is_subsample
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'vimco.pyro needs Pyro, and {error.name} is not installed: pip install ".[pyro]" in the repository',
        name=error.name,
    ) from None

from vimco.bridges import (
    Plate,
    Site,
    bound_scale,
    check_estimator,
    check_guide,
    check_num_samples,
    importance_samples,
    masks_of,
    own_scale,
)
from vimco.errors import UsageError
from vimco.estimators import Estimator
from vimco.samples import Estimate, ImportanceSamples

__all__ = ["MonteCarloObjective"]


class MonteCarloObjective(ELBO):
    """Minus the K-sample bound (Eq. 4) of a model under its guide, with the gradient of an estimator of this package.

    `plate` names the plate of the examples: weights are normalised per example, and the bound is the sum over the
    plate's examples, times N/B if it subsamples. With no plate the whole trace is one example. The guide is the
    proposal; latents it leaves out are drawn from the model's prior. `vectorize_particles` is Pyro's: `True` draws the
    K samples in one run, for programs that broadcast over an extra axis on the left.
    """

    def __init__(
        self,
        estimator: Estimator,
        num_samples: int,
        *,
        plate: str | None = None,
        vectorize_particles: bool = False,
        **kwargs: Any,
    ):
        check_estimator(
            estimator,
            instead="SVI keeps no state of an objective. Use VIMCO(), which has the better baseline and needs none; "
            "for K = 1 use Pyro's TraceGraph_ELBO, which has baselines of its own.",
        )
        check_num_samples(num_samples)
        super().__init__(num_particles=num_samples, vectorize_particles=vectorize_particles, **kwargs)
        self.estimator = estimator
        self.plate = plate

    @torch.no_grad()
    def loss(self, model: Callable, guide: Callable, *args: Any, **kwargs: Any) -> float:
        """Return minus the bound."""
        estimate, scale = self._estimate(model, guide, args, kwargs)
        return -scale * estimate.bound.sum().item()

    def differentiable_loss(self, model: Callable, guide: Callable, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return minus the bound, with the gradient of minus the estimator's surrogate."""
        estimate, scale = self._estimate(model, guide, args, kwargs)
        surrogate = estimate.surrogate - estimate.surrogate.detach()  # of value 0
        return -scale * (estimate.bound + surrogate).sum()

    def loss_and_grads(self, model: Callable, guide: Callable, *args: Any, **kwargs: Any) -> float:
        """Return minus the bound, and add the gradient of minus the surrogate to the parameters."""
        loss = self.differentiable_loss(model, guide, *args, **kwargs)
        if loss.requires_grad:
            loss.backward(retain_graph=self.retain_graph)
        return loss.item()

    def _estimate(
        self, model: Callable, guide: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> tuple[Estimate, float]:
        if isinstance(poutine.unwrap(guide), poutine.messenger.Messenger):
            raise UsageError(
                "A guide that is a Messenger runs the model and itself at once, and K samples need them one after the "
                "other: write the guide as a function, or use a guide of pyro.infer.autoguide that is a module."
            )
        with _OneSubsample():
            drawn = list(self._get_traces(model, guide, args, kwargs))
        common = set.union(*(_parameters(model) & _parameters(guide) for model, guide in drawn))
        traces = [(_sites(model), _sites(guide)) for model, guide in drawn]
        for _, sites in traces:
            check_guide(self.estimator, sites)
        K = self.num_particles
        samples = Plate(-self.max_plate_nesting, K, K) if self.vectorize_particles and K > 1 else None
        shared = {"shared_parameters": bool(common)}
        records = [importance_samples(model, guide, self.plate, samples, **shared) for model, guide in traces]
        return self.estimator(_concatenated(records)), bound_scale(traces[0][0], self.plate)

    def _get_trace(self, model: Callable, guide: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[Trace, Trace]:
        """Return a sample from the guide and the model run on it, as Pyro's `ELBO` requires."""
        guide_trace = poutine.trace(guide).get_trace(*args, **kwargs)
        model_trace = poutine.trace(poutine.replay(model, trace=guide_trace)).get_trace(*args, **kwargs)
        return model_trace, guide_trace


class _OneSubsample(poutine.messenger.Messenger):
    """A handler that lets every plate draw its rows once, so that all K samples have the same examples."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, torch.Tensor] = {}

    def _pyro_sample(self, msg: dict[str, Any]) -> None:
        if site_is_subsample(msg) and msg["value"] is None:
            msg["value"] = self.rows.get(msg["name"])

    def _pyro_post_sample(self, msg: dict[str, Any]) -> None:
        if site_is_subsample(msg):
            self.rows[msg["name"]] = msg["value"]


def _concatenated(records: list[ImportanceSamples]) -> ImportanceSamples:
    """Return one record of all samples, which may differ in their latents where a program branches on one of them."""
    scores = [record.log_proposal if record.log_score is None else record.log_score for record in records]
    return ImportanceSamples(
        torch.cat([record.log_joint for record in records]),
        torch.cat([record.log_proposal for record in records]),
        None if all(record.log_score is None for record in records) else torch.cat(scores),
        latents_attached=all(record.latents_attached for record in records),
        shared_parameters=any(record.shared_parameters for record in records),
        proposal_is_prior=any(record.proposal_is_prior for record in records),
    )


def _parameters(trace: Trace) -> set[str]:
    return {name for name, node in trace.nodes.items() if node["type"] == "param"}


def _sites(trace: Trace) -> dict[str, Site]:
    nodes = prune_subsample_sites(trace).nodes
    return {
        name: _site(node)
        for name, node in nodes.items()
        if node["type"] == "sample" and not node["infer"].get("_deterministic")
    }


def _site(node: dict[str, Any]) -> Site:
    fn, mask = node["fn"], node["mask"]
    parts = fn.score_parts(node["value"], *node["args"], **node["kwargs"])
    log_prob = scale_and_mask(parts.log_prob, mask=mask)
    if node["is_observed"]:
        log_score = None
    elif not fn.has_rsample:
        log_score = log_prob
    else:  # some samplers are reparameterised in part; a plain 0 means entirely
        part = parts.score_function
        log_score = None if isinstance(part, Number) else scale_and_mask(part, mask=mask)
    plates = {
        frame.name: Plate(frame.dim or 0, frame.full_size, frame.size)
        for frame in node["cond_indep_stack"]
        if frame.name != "num_particles_vectorized"  # the K samples of a vectorised run
    }
    return Site(
        name=node["name"],
        log_prob=log_prob,
        log_score=log_score,
        scale=own_scale(node["scale"], plates.values()),
        plates=plates,
        is_observed=node["is_observed"],
        masks=(*(() if mask is None or mask is True else (mask,)), *masks_of(fn, MaskedDistribution)),
        is_auxiliary=bool(node["infer"].get("is_auxiliary")),
        is_enumerated=node["infer"].get("enumerate") is not None,
    )
