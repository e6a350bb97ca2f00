"""VIMCO inside NumPyro: an objective for `numpyro.infer.SVI` that trains discrete latents.

    svi = SVI(model, guide, optax.adam(1e-3), loss=MonteCarloObjective(vimco.VIMCO(), num_samples=5, plate="data"))

`RenyiELBO` holds the same bound, but differentiates it as if no sample depended on the guide's parameters, which is
wrong for every latent that is not reparameterised. `vimco.bridges` gives the rules for plates, scales and masks.
"""

from collections.abc import Callable, Container
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

try:
    from numpyro.distributions import MaskedDistribution
    from numpyro.handlers import replay, seed, substitute, trace
    from numpyro.infer.elbo import ELBO
    from numpyro.primitives import Messenger
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'vimco.numpyro needs NumPyro, and {error.name} is not installed: pip install ".[numpyro]" in the repository',
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
from vimco.samples import ImportanceSamples

__all__ = ["MonteCarloObjective"]

Trace = dict[str, dict[str, Any]]


class MonteCarloObjective(ELBO):
    """Minus the K-sample bound (Eq. 4) of a model under its guide, with the gradient of an estimator of this package.

    `plate` names the plate of the examples: weights are normalised per example, and the bound is the sum over the
    plate's examples, times N/B if it subsamples. With no plate the whole trace is one example. The guide is the
    proposal; latents it leaves out are drawn from the model's prior. `vectorize_particles` is NumPyro's: `False` draws
    the K samples one by one, which saves memory.
    """

    can_infer_discrete = True

    def __init__(
        self,
        estimator: Estimator,
        num_samples: int,
        *,
        plate: str | None = None,
        vectorize_particles: bool | Callable = True,
    ):
        check_estimator(
            estimator,
            instead="SVI keeps no state of an objective. Use VIMCO(), which has the better baseline and needs none; "
            "for K = 1 use NumPyro's TraceGraph_ELBO.",
        )
        check_num_samples(num_samples)
        super().__init__(num_particles=num_samples, vectorize_particles=vectorize_particles)
        self.estimator = estimator
        self.plate = plate

    def loss(
        self,
        rng_key: jax.Array,
        param_map: dict[str, Any],
        model: Callable,
        guide: Callable,
        *args: Any,
        **kwargs: Any,
    ) -> jax.Array:
        """Return minus the bound, with the gradient of minus the estimator's surrogate."""
        plate_key, sample_key = jax.random.split(rng_key)
        # One subsample for all K samples: plates draw from a key of their own, outside the loop over samples.
        model, guide = (
            seed(program, plate_key, hide_types=["sample", "prng_key", "control_flow"]) for program in (model, guide)
        )

        def one_sample(key: jax.Array) -> tuple[ImportanceSamples, float]:
            model_trace, guide_trace = _traces(key, param_map, model, guide, args, kwargs)
            model_sites, guide_sites = _sites(model_trace), _sites(guide_trace)
            check_guide(self.estimator, guide_sites)
            common = _parameters(model_trace) & _parameters(guide_trace)
            samples = importance_samples(model_sites, guide_sites, self.plate, shared_parameters=bool(common))
            return samples, bound_scale(model_sites, self.plate)

        keys = jax.random.split(sample_key, self.num_particles)
        samples, scales = self.vectorize_particles_fn(one_sample, keys)
        estimate = self.estimator(jax.tree.map(lambda values: values[:, 0], samples))
        surrogate = estimate.surrogate - stop_gradient(estimate.surrogate)  # of value 0
        return -scales[0] * jnp.sum(stop_gradient(estimate.bound) + surrogate)

    def loss_with_mutable_state(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse mutable state: K traces would leave K different states."""
        del args, kwargs
        raise UsageError(
            "The model or guide has mutable state (`numpyro.mutable`, batch normalisation), and K samples would leave "
            "K different states behind: use layers without running state."
        )


class _HeldConstant(Messenger):
    """A handler that holds latents constant which are drawn without reparameterisation."""

    def __init__(self, drawn_elsewhere: Container[str] = ()):
        super().__init__()
        self.drawn_elsewhere = drawn_elsewhere

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if (
            msg["type"] == "sample"
            and not msg["is_observed"]
            and not msg["fn"].has_rsample
            and msg["name"] not in self.drawn_elsewhere
        ):
            msg["value"] = stop_gradient(msg["value"])
            msg["intermediates"] = None  # they would bring the gradient back


def _traces(
    key: jax.Array, param_map: dict[str, Any], model: Callable, guide: Callable, args: tuple, kwargs: dict[str, Any]
) -> tuple[Trace, Trace]:
    """Return one sample from the guide, and the model run on it."""
    model_key, guide_key = jax.random.split(key)
    with _HeldConstant():
        guide_trace = trace(substitute(seed(guide, guide_key), data=param_map)).get_trace(*args, **kwargs)
    with _HeldConstant(drawn_elsewhere=guide_trace):
        replayed = substitute(replay(seed(model, model_key), guide_trace), data=param_map)
        model_trace = trace(replayed).get_trace(*args, **kwargs)
    return model_trace, guide_trace


def _parameters(program_trace: Trace) -> set[str]:
    return {name for name, site in program_trace.items() if site["type"] == "param"}


def _sites(program_trace: Trace) -> dict[str, Site]:
    return {name: _site(site, program_trace) for name, site in program_trace.items() if site["type"] == "sample"}


def _site(site: dict[str, Any], program_trace: Trace) -> Site:
    fn = site["fn"]
    is_scored = not site["is_observed"] and not fn.has_rsample
    if is_scored and site.get("_control_flow_done") and jnp.issubdtype(jnp.result_type(site["value"]), jnp.floating):
        raise UsageError(
            f"Latent {site['name']!r} is continuous and not reparameterised, and inside `scan` gradients cannot be "
            "kept out of it: write the loop in Python, or reparameterise."
        )
    log_prob = fn.log_prob(site["value"], *([site["intermediates"]] if site["intermediates"] else []))
    plates = {frame.name: _plate(frame, site, program_trace) for frame in site["cond_indep_stack"]}
    return Site(
        name=site["name"],
        log_prob=log_prob,
        log_score=log_prob if is_scored else None,
        scale=own_scale(site["scale"], plates.values()),
        plates=plates,
        is_observed=site["is_observed"],
        masks=masks_of(fn, MaskedDistribution),
        is_auxiliary=bool(site["infer"].get("is_auxiliary")),
        is_enumerated=site["infer"].get("enumerate") is not None,
    )


def _plate(frame: Any, site: dict[str, Any], program_trace: Trace) -> Plate:
    if frame.name in program_trace:
        return Plate(frame.dim, full_size=program_trace[frame.name]["args"][0], size=frame.size)
    if site["scale"] is not None:  # a plate inside `scan` leaves no entry, so its N is not known
        raise UsageError(
            f"Site {site['name']!r} has a scale, and plate {frame.name!r} inside `scan` hides whether that is its own: "
            "do not subsample or scale inside `scan`."
        )
    return Plate(frame.dim, full_size=frame.size, size=frame.size)
