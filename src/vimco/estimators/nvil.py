"""NVIL (Mnih & Gregor, 2014): learned baselines, and the same signal for all samples (Eq. 8), or one for each layer."""

from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
from array_api_compat import array_namespace
from jaxtyping import Array, Float, PRNGKeyArray

from vimco.errors import UsageError
from vimco.estimators.baselines import BaselineNetwork, Moments, RunningMoments, moments_after, optional_network
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant, score_term, weight_term
from vimco.estimators.layered import (
    LayerBaselines,
    WithLayerBaselines,
    layered_estimate,
    local_log_weights,
    model_term,
    scores_of_layers,
)
from vimco.samples import BINARY_LAYERS, AnyArray, Batch, Estimate, ImportanceSamples, Part, required
from vimco.signals import has_others, multi_sample_bound, normalized_weights


class NVIL(Estimator):
    """Eq. 8: L̂ − b(x) − b multiplies every score; then variance normalisation. Any K ≥ 1.

    With r = L̂ − b(x), and c and v the running mean and variance of r, the centred signal is r − c and the normaliser
    s = max(1, √v). Its mean update is ∇L^K with a positive scale for each block of parameters:

    - a learned proposal: the *whole* coefficient of ∇ log Q(h^j), r − c − w̃_j, is divided by s. Dividing r − c alone
      would add −(1 − 1/s) Σ_j w̃_j ∇ log Q(h^j), minus a wake update, which drives Q away from the posterior. The
      model's part stays Σ_j w̃_j ∇ log P(x, h^j);
    - the prior as proposal: its parameters have the coefficient (r − c) / s, since log f does not contain log Q; the
      likelihood's part stays as it is;
    - `log_score` is given, or P and Q share parameters, or the prior as proposal shares some with the likelihood: the
      whole surrogate is divided by s. There is no block that could be scaled by itself.

    c is used before it sees the current samples: a baseline that has seen them adds a bias. v is used after it has seen
    the batch, as in the original, so that a sample whose log f lies thousands of nats below the rest is divided by its
    own size. That weighs outliers of a batch less, which is a bias too; `scale_sees_batch=False` uses v before. The
    network b(x) learns from (r − c)² alone.

    `centred_weights` replaces w̃_j by w̃_j − 1/K in the coefficient of a score, where there is one: with the prior as
    proposal it changes nothing. The mean stays, since a score has mean zero, and the variance falls. At K = 1 it
    removes w̃ = 1.

    Start c and v with one draw that is not used for learning, `estimator.updated(estimator(samples, batch))`: from
    c = 0 the first signals are as large as the bound.
    """

    input_baseline: BaselineNetwork | None = None  # b(x)
    moments: RunningMoments = eqx.field(default_factory=RunningMoments)
    constant_baseline: bool = eqx.field(static=True, default=True)  # b = c
    variance_normalisation: bool = eqx.field(static=True, default=True)
    scale_sees_batch: bool = eqx.field(static=True, default=True)
    centred_weights: bool = eqx.field(static=True, default=False)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; `batch` is needed with an input-dependent baseline."""
        prediction = None if self.input_baseline is None else self.input_baseline(batch)
        return nvil_estimate(self, samples, prediction, None if batch is None else batch.part)

    def updated(self, estimate: Estimate) -> "NVIL":
        """Return NVIL with its running moments updated by this estimate."""
        assert estimate.residual is not None, "an estimate of this estimator's own"
        return eqx.tree_at(lambda e: e.moments, self, self.moments.updated(jnp.asarray(estimate.residual)))


def nvil_estimate(
    nvil: Any, samples: ImportanceSamples, prediction: AnyArray | None, part: Part | None = None
) -> Estimate:
    """Return the estimate from samples and the network's b(x) of shape (*B), in any array library.

    `nvil` has the moments and the options: `NVIL`, or `vimco.torch.NVIL`. With a `part` of a batch, the deviation is
    that of the whole batch.
    """
    moments: Moments = nvil.moments
    log_weights = held_constant(samples.log_weights)
    xp = array_namespace(log_weights)
    bound = multi_sample_bound(log_weights)
    residual = bound if prediction is None else bound - prediction
    centred = residual - moments.mean if nvil.constant_baseline else residual
    centred = xp.where(xp.isfinite(bound), centred, 0.0)  # all f zero: nothing to learn from
    signal = xp.broadcast_to(held_constant(centred), log_weights.shape)

    scale: AnyArray | float = 1.0
    if nvil.variance_normalisation:
        variance = moments.variance
        if nvil.scale_sees_batch:
            seen = held_constant(residual)
            variance = moments_after(moments, seen if part is None else part.joined(seen))[1]
        deviation = xp.sqrt(variance)
        scale = xp.where(deviation > 1.0, deviation, 1.0)
    surrogate = normalized_surrogate(signal, scale, log_weights, samples, nvil.centred_weights)
    if prediction is not None:
        surrogate = surrogate - centred**2
    return Estimate(surrogate, log_weights, signal, held_constant(residual))


def normalized_surrogate(
    signal: AnyArray, scale: AnyArray | float, log_weights: AnyArray, samples: ImportanceSamples, centred_weights: bool
) -> AnyArray:
    """Return the surrogate of Eq. 8 with a normaliser that scales whole blocks of parameters (see `NVIL`)."""
    if centred_weights and not samples.proposal_is_prior:  # whose scores have no w̃ to be centred
        K = samples.num_samples
        signal = signal + (has_others(log_weights) / K if K > 1 else normalized_weights(log_weights))
    if samples.has_attached_latents or samples.shared_parameters:
        return (score_term(signal, samples) + weight_term(log_weights, samples)) / scale
    coefficient = signal / scale
    if not samples.proposal_is_prior:
        # The second term contains −w̃; with this the sum is (signal − w̃) / scale.
        coefficient = coefficient + (1 - 1 / scale) * normalized_weights(log_weights)
    return score_term(coefficient, samples) + weight_term(log_weights, samples)


class LocalNVIL(WithLayerBaselines):
    """NVIL whose layers each follow the part of log f that they can change, with baselines of their own. K = 1.

    Layer i, in order of sampling, has the signal f_i − c_i − b_i(x), divided by max(1, √v_i): terms of log f that
    involve only layers sampled before it have mean zero under its score. With the prior as proposal this gains
    nothing, since every f_i is log P(x | h). The model follows ∇ log P(x, h).

    For K ≥ 2 samples a local weight inside the logarithm is a bias, since the bound is not a sum over layers. Only the
    baseline may be local then: `LayerwiseVIMCO`.
    """

    baselines: LayerBaselines = eqx.field(default_factory=lambda: LayerBaselines(normalised=True))

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; `batch` is needed with a network."""
        if samples.num_samples > 1:
            raise UsageError(
                f"A signal for each layer goes with K = 1; got K = {samples.num_samples}. The logarithm of a mean over "
                "samples is not a sum over layers, and local weights inside it are biased: use NVIL without local "
                "signals, or vimco-learned with layer-baselines=true, where only the baseline is local."
            )
        layers = required(samples, BINARY_LAYERS)
        signals, residual, scale = self.baselines(local_log_weights(layers), batch)
        surrogate = (
            scores_of_layers(signals / scale, layers) + model_term(samples) + self.baselines.network_objective(signals)
        )
        return layered_estimate(surrogate, samples, signals, residual)


@ESTIMATORS.register("nvil", "NVIL", line="--")
def _nvil(
    key: PRNGKeyArray,
    mean: Float[Array, "D"],
    *,
    baseline_width: Annotated[int, "Hidden units of the network b(x); 0 leaves it out."] = 100,
    constant_baseline: Annotated[bool, "Subtract the running mean of the signal."] = True,
    variance_normalisation: Annotated[
        bool, "Divide by the running deviation of the signal, where it exceeds 1."
    ] = True,
    scale_sees_batch: Annotated[bool, "The deviation has seen the current batch."] = True,
    centred_weights: Annotated[bool, "Use w - 1/K instead of the normalized weight w before a score."] = False,
    decay: Annotated[float, "Decay of the running moments."] = 0.8,
    local_signals: Annotated[
        bool, "A signal and baselines for each layer; K = 1 only. Deviations are those of earlier batches."
    ] = False,
) -> NVIL | LocalNVIL:
    """Learned baselines, and the same signal for all samples (Eq. 8)."""
    network, moments = optional_network(key, mean, baseline_width), RunningMoments(decay)
    if local_signals:
        if not constant_baseline or not scale_sees_batch or centred_weights:
            raise UsageError(
                "With local-signals=true every layer has a constant baseline, a deviation of earlier batches and no "
                "weight to be centred: leave constant-baseline, scale-sees-batch and centred-weights out."
            )
        return LocalNVIL(LayerBaselines(network, moments, variance_normalisation))
    return NVIL(network, moments, constant_baseline, variance_normalisation, scale_sees_batch, centred_weights)
