"""Print what NVIL's learning signal is made of, at the latest checkpoint of a run.

    python scripts/signal_of_nvil.py RUN

The signal is L̂ − b(x) − b. Its mean square is the variance of L̂ given x, which no baseline can remove, plus the mean
squared error of b(x) + b as an estimate of E[L̂ | x]. Both are measured with 8 sets of K samples of 8,000 images of the
training set, which b(x) has seen, and of the validation set, which it has not.

A second table has the gradient of the proposal at these same parameters for several K: the norm of its mean over 240
images, and its noise in a batch of 24, the root of its total variance. NVIL has the best baseline of x that there can
be, E[L̂ | x] by 200 sets of samples.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import vimco
from vimco.runs.checkpoints import latest_checkpoint
from vimco.runs.experiment import Experiment
from vimco.runs.store import filled
from vimco.training.diagnostics import gradient_statistics

IMAGES, SLICE, SETS = 8000, 500, 8
SIZES, DRAWS, BASELINE_SETS, GRADIENT_IMAGES, BATCH = (1, 2, 5, 10, 50), 200, 200, 240, 24


@eqx.filter_jit
def drawn_and_predicted(model, estimator, key, batch, num_samples):
    """Return L̂ and log f of K samples, and b(x), for each image."""
    log_weights = model.importance_samples(key, batch, num_samples).log_weights
    return vimco.multi_sample_bound(log_weights), log_weights, estimator.input_baseline(batch)


@eqx.filter_jit
def mean_bound(model, key, batch, num_samples):
    """Return E[L̂ | x] for each image, by many sets of samples."""

    def total(number, sums):
        samples = model.importance_samples(jax.random.fold_in(key, number), batch, num_samples)
        return sums + vimco.multi_sample_bound(samples.log_weights)

    return jax.lax.fori_loop(0, BASELINE_SETS, total, jnp.zeros(len(batch.observation))) / BASELINE_SETS


class BestBaseline(eqx.Module):
    """E[L̂ | x] of one batch, in place of the network b(x)."""

    values: Array

    def __call__(self, _: vimco.Batch):
        """Return it for the images of that batch."""
        return self.values


def mean_and_noise(model, estimator, batch, num_samples):
    """Return the norm of the mean gradient of the proposal, its noise in a batch of 24, and their ratio, as text."""
    statistics = gradient_statistics(model, estimator, jax.random.key(1), batch, num_samples, DRAWS)
    part = statistics.of(lambda tree: tree.proposal)
    variance = float(part.total_variance)
    # The squared mean of n draws is too large by 1/n of the variance.
    mean = max(float(part.total_signal_to_noise) ** 2 - 1 / DRAWS, 0.0) ** 0.5 * variance**0.5
    noise = (variance * len(batch.observation) / BATCH) ** 0.5
    return f"{mean:.2f} | {noise:.1f} | {mean / noise:.4f}"


def main() -> None:
    """Measure, and print two tables in Markdown."""
    if len(sys.argv) != 2:
        sys.exit("Name one run of NVIL: python scripts/signal_of_nvil.py RUN")
    run = vimco.load(sys.argv[1])
    experiment, checkpoint = Experiment(run.config, run.dataset()), latest_checkpoint(run.path)
    state = filled(eqx.filter_eval_shape(experiment.initial_state), checkpoint.arrays, run.path)
    if getattr(state.estimator, "input_baseline", None) is None:
        sys.exit(f"{run.path} has no baseline b(x): name a run of --estimator nvil with a baseline-width above 0.")
    K = run.config.num_samples
    print(f"{run.config.estimator}, K = {K}, rate {run.config.learning_rate}, update {checkpoint.update:,}\n")
    columns = ("images", "L̂ over images, sd", "log f given x, sd", "L̂ given x, sd", "b(x), error", "signal")
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    for split in ("train", "validation"):
        examples = experiment.examples(split)
        bounds, deviations, predictions = [], [], []
        for start in range(0, min(IMAGES, len(examples)), SLICE):
            stop = min(start + SLICE, IMAGES, len(examples))
            batch = examples.batch(np.arange(start, stop), np.float32)
            keys = jax.random.split(jax.random.fold_in(jax.random.key(0), start), SETS)
            drawn = [drawn_and_predicted(state.model, state.estimator, key, batch, K) for key in keys]
            bounds.append(np.stack([bound for bound, _, _ in drawn]))
            deviations.append(np.concatenate([log_weights for _, log_weights, _ in drawn]).std(axis=0))
            predictions.append(drawn[0][2])
        bound = np.concatenate(bounds, axis=1)
        constant = float(state.estimator.moments.mean) if state.estimator.constant_baseline else 0.0
        prediction = np.concatenate(predictions) + constant
        noise = bound.var(axis=0, ddof=1).mean()
        signal = ((bound - prediction) ** 2).mean()
        numbers = (bound.mean(axis=0).var(), np.concatenate(deviations).mean() ** 2, noise, signal - noise, signal)
        print(f"| {split} | " + " | ".join(f"{np.sqrt(number):.2f}" for number in numbers) + " |")
    if state.model.proposal is None:
        print("\nThe samples of this run come from the prior: there is no gradient of a proposal to measure.")
        return
    print("\n| K | NVIL, best baseline: mean | noise | ratio | VIMCO: mean | noise | ratio |" + "\n" + "|---" * 7 + "|")
    examples = experiment.examples("train")
    batch = examples.batch(np.arange(min(GRADIENT_IMAGES, len(examples))), np.float32)
    for K in SIZES:
        baseline = BestBaseline(mean_bound(state.model, jax.random.key(0), batch, K))
        nvil = vimco.NVIL(baseline, constant_baseline=False, variance_normalisation=False)
        row = [mean_and_noise(state.model, nvil, batch, K)]
        row.append(mean_and_noise(state.model, vimco.VIMCO(), batch, K) if K > 1 else "– | – | –")
        print(f"| {K} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
