"""How noisy the estimators' gradients are at the parameters of a run."""

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vimco.errors import UsageError
from vimco.estimators import ESTIMATORS, Estimator, named_estimator
from vimco.runs.directory import Run, Weights
from vimco.runs.experiment import Experiment, Purpose, key_for, precision
from vimco.samples import Batch
from vimco.training.diagnostics import GradientStatistics, gradient_statistics


def noise_records(
    run: Run, estimators: Sequence[str] = (), *, num_samples: int | None = None, draws: int = 200, weights: Weights
) -> Iterator[dict[str, Any]]:
    """Yield variance and signal-to-noise ratio of each estimator's gradient, at the same parameters and draws.

    An estimator is a name, with options after commas: `rws,centred=true`. Without names, all that the model takes and
    that have no state. The batch is the first of the training set.
    """
    model, update = run.model_and_update(weights)
    K = num_samples or run.config.num_samples
    with precision(run.config):
        examples = Experiment(run.config, run.dataset()).examples("train")
        batch = examples.batch(jnp.arange(run.config.batch_size), jnp.result_type(float))
        key = key_for(Purpose.NOISE, run.config.seed)
        for name, estimator in _measurable(estimators, model, batch, K):
            statistics = gradient_statistics(model, estimator, key, batch, K, draws)
            yield {
                "estimator": name,
                "num_samples": K,
                "draws": draws,
                "weights": weights,
                "update": update,
                "bound": float(statistics.bound),
                "effective_sample_size": float(statistics.effective_sample_size),
                **_parts(statistics, model, draws),
            }


def _measurable(names: Sequence[str], model: Any, batch: Batch, K: int) -> list[tuple[str, Estimator]]:
    """Return the estimators; refuse a named one that has state or does not fit, and leave out others that do not."""
    found = []
    for name in names or ESTIMATORS:
        word, *options = name.split(",")
        estimator = named_estimator(word, jax.random.key(0), jnp.full(batch.observation.shape[1], 0.5), options)
        try:
            if jax.tree.leaves(eqx.filter(estimator, eqx.is_array)):
                raise UsageError(
                    f"{name} has state of its own, on which its noise depends: it cannot be measured here."
                )
            eqx.filter_eval_shape(gradient_statistics, model, estimator, jax.random.key(0), batch, K, 2)
        except UsageError:
            if names:
                raise
            continue
        found.append((name, estimator))
    return found


def _parts(statistics: GradientStatistics, model: Any, draws: int) -> dict[str, float]:
    """Return the numbers of the proposal, where there is one, and of the rest of the model."""
    parts = {"model": statistics}
    if getattr(model, "proposal", None) is not None:
        parts = {
            "model": statistics.of(lambda tree: eqx.tree_at(lambda m: m.proposal, tree, None)),
            "proposal": statistics.of(lambda tree: tree.proposal),
        }
    numbers = {}
    for name, part in parts.items():
        numbers[f"{name}_variance"] = float(part.total_variance)
        # The squared mean of n draws is too large by 1/n of the variance.
        numbers[f"{name}_snr"] = float(np.sqrt(max(float(part.total_signal_to_noise) ** 2 - 1 / draws, 0.0)))
    return numbers
