"""Black-box variational inference (Ranganath, Gerrish & Blei, 2014): the ELBO from S = K draws."""

from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from vimco.errors import UsageError, check_choice
from vimco.estimators.estimator import ESTIMATORS, Estimator
from vimco.estimators.layered import layered_estimate, local_log_weights, model_term, scores_of_layers
from vimco.samples import BINARY_LAYERS, Batch, Estimate, ImportanceSamples, Need, required
from vimco.signals import sum_of_others

LEAST_SAME_SAMPLES = 50  # below it the bias of the same-sample control variate is above 0.2 % of the gradient

ControlVariate = Literal["layer", "unit", "same-samples", "none"]


class BBVI(Estimator):
    """1/S Σ_k [f_i(h^k) − a] ∇ log Q(h_i^k | ...), where f_i is the part of log f that layer i can change.

    `control_variate` says what a is:

    - layer: the mean of f_i over the other draws (S ≥ 2). Exactly unbiased;
    - unit: one for each unit's logit d, Σ f_i s_d² / Σ s_d² over the other draws, with s_d = h_d − σ(a_d), the
      optimum E[f s²] / E[s²] estimated leave-one-out (S ≥ 2). Exactly unbiased;
    - same-samples: Cov(f s_d, s_d) / Var(s_d) from all S draws, as it is usually written. It depends on the draw that
      it is subtracted from, which adds a bias, as large as the gradient at S = 2. Refused below S = 50;
    - none: a = 0.

    The objective is the ELBO for every S. The model follows 1/S Σ_k ∇ log P(x, h^k).
    """

    ascends: ClassVar[str] = "the ELBO"
    needs: ClassVar[tuple[Need, ...]] = (BINARY_LAYERS,)

    control_variate: ControlVariate = eqx.field(static=True, default="layer")

    def __check_init__(self) -> None:
        check_choice("control variate of BBVI", self.control_variate, ControlVariate)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate."""
        K, layers = samples.num_samples, required(samples, BINARY_LAYERS)
        if self.control_variate in ("layer", "unit") and K < 2:
            raise UsageError(
                "The control variate of BBVI is estimated from the other draws, so it needs K >= 2; got K = 1. "
                "Use more draws, control-variate=none, or NVIL with local signals."
            )
        if self.control_variate == "same-samples" and K < LEAST_SAME_SAMPLES:
            raise UsageError(
                "A control variate from the same draws that it is subtracted from is a bias, of the gradient's own "
                f"size at two draws: it needs K >= {LEAST_SAME_SAMPLES}; got K = {K}. Use "
                "control-variate=layer, which has none."
            )
        local = local_log_weights(layers)
        if self.control_variate == "none":
            surrogate = scores_of_layers(local / K, layers) + model_term(samples)
            return layered_estimate(surrogate, samples, local / K, objective="elbo")
        if self.control_variate == "layer":
            signals = (local - jnp.mean(local, axis=1, keepdims=True)) / (K - 1)
            surrogate = scores_of_layers(signals, layers) + model_term(samples)
            return layered_estimate(surrogate, samples, signals, objective="elbo")
        surrogate, of_layers = model_term(samples), []
        of_unit = leave_one_out if self.control_variate == "unit" else same_samples
        for f, value, logits in zip(local, layers.latents, layers.logits, strict=True):
            score = value - jax.nn.sigmoid(stop_gradient(logits))
            signal = (f[..., None] - of_unit(f[..., None], score)) / K
            # The gradient of each logit a_d is the sum over k of signal · s.
            surrogate = surrogate + jnp.sum(stop_gradient(signal * score) * logits, axis=(0, -1))
            of_layers.append(jnp.sqrt(jnp.mean(signal**2, axis=-1)))
        return layered_estimate(surrogate, samples, jnp.stack(of_layers), objective="elbo")


@ESTIMATORS.register("bbvi", "BBVI")
def _bbvi(
    *_: Any,
    control_variate: Annotated[ControlVariate, "What is subtracted: one value a layer or unit, or nothing."] = "layer",
) -> BBVI:
    """Black-box variational inference: the ELBO from K draws, a signal for each layer (Ranganath et al., 2014)."""
    return BBVI(control_variate)


def leave_one_out(f: Float[Array, "K B 1"], score: Float[Array, "K B n"]) -> Float[Array, "K B n"]:
    """Return Σ_{j≠k} f_j s_j² / Σ_{j≠k} s_j² for every draw k; 0 where no other score moves."""
    # The score of a saturated unit is near 1 for a rare draw and near 0 for all others.
    squares = score**2
    above, below = (sum_of_others(terms, sizes=squares) for terms in (f * squares, squares))
    return jnp.where(below > 0, above / jnp.where(below > 0, below, 1.0), 0.0)


def same_samples(f: Float[Array, "K B 1"], score: Float[Array, "K B n"]) -> Float[Array, "1 B n"]:
    """Return Cov(f s, s) / Var(s) over all draws; 0 where all scores are the same, but for rounding."""
    centred = score - jnp.mean(score, axis=0)
    variance = jnp.sum(centred**2, axis=0, keepdims=True)
    covariance = jnp.sum(f * score * centred, axis=0, keepdims=True)
    varies = variance > jnp.finfo(score.dtype).eps * jnp.sum(score**2, axis=0, keepdims=True)
    return jnp.where(varies, covariance / jnp.where(varies, variance, 1.0), 0.0)
