"""NVIL with a signal for each layer (Mnih & Gregor, 2014), at K = 1."""

from typing import ClassVar

import equinox as eqx

from vimco.errors import UsageError
from vimco.estimators.layered import (
    LayerBaselines,
    WithLayerBaselines,
    layered_estimate,
    layers_of,
    local_log_weights,
    model_term,
    scores_of_layers,
)
from vimco.samples import Batch, Estimate, ImportanceSamples


class LocalNVIL(WithLayerBaselines):
    """NVIL whose layers each follow the part of log f that they can change, with baselines of their own. K = 1.

    Layer i, in order of sampling, has the signal f_i − c_i − b_i(x), divided by max(1, √v_i): terms of log f that
    involve only layers sampled before it have mean zero under its score. With the prior as proposal this gains
    nothing, since every f_i is log P(x | h). The model follows ∇ log P(x, h).

    For K ≥ 2 samples a local weight inside the logarithm is a bias, since the bound is not a sum over layers. Only the
    baseline may be local then: `LayerwiseVIMCO`.
    """

    ascends: ClassVar[str] = "L^K"

    baselines: LayerBaselines = eqx.field(default_factory=lambda: LayerBaselines(normalised=True))

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; `batch` is needed with a network."""
        if samples.num_samples > 1:
            raise UsageError(
                f"A signal for each layer goes with K = 1; got K = {samples.num_samples}. The logarithm of a mean over "
                "samples is not a sum over layers, and local weights inside it are biased: use NVIL without local "
                "signals, or vimco-learned with layer-baselines=true, where only the baseline is local."
            )
        layers = layers_of(samples)
        signals, residual, scale = self.baselines(local_log_weights(layers), batch)
        surrogate = (
            scores_of_layers(signals / scale, layers) + model_term(samples) + self.baselines.network_objective(signals)
        )
        return layered_estimate(surrogate, samples, signals, residual)
