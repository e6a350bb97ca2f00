"""Print what NVIL's learning signal is made of, at the latest checkpoint of a run.

    python scripts/signal_of_nvil.py RUN

The signal is L̂ − b(x) − b. Its mean square is the variance of L̂ given x, which no baseline can remove, plus the mean
squared error of b(x) + b as an estimate of E[L̂ | x]. Both are measured with 8 sets of K samples of 8,000 images of the
training set, which b(x) has seen, and of the validation set, which it has not.
"""

import sys

import equinox as eqx
import jax
import numpy as np

import vimco
from vimco.runs.checkpoints import latest_checkpoint
from vimco.runs.experiment import Experiment
from vimco.runs.store import filled

IMAGES, SLICE, SETS = 8000, 500, 8


@eqx.filter_jit
def drawn_and_predicted(model, estimator, key, batch, num_samples):
    """Return L̂ and log f of K samples, and b(x), for each image."""
    log_weights = model.importance_samples(key, batch, num_samples).log_weights
    return vimco.multi_sample_bound(log_weights), log_weights, estimator.input_baseline(batch)


def main() -> None:
    """Measure, and print a table in Markdown."""
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
            batch = examples.batch(np.arange(start, start + SLICE), np.float32)
            keys = jax.random.split(jax.random.fold_in(jax.random.key(0), start), SETS)
            drawn = [drawn_and_predicted(state.model, state.estimator, key, batch, K) for key in keys]
            bounds.append(np.stack([bound for bound, _, _ in drawn]))
            deviations.append(np.concatenate([log_weights for _, log_weights, _ in drawn]).std(axis=0))
            predictions.append(drawn[0][2])
        bound = np.concatenate(bounds, axis=1)
        prediction = np.concatenate(predictions) + float(state.estimator.moments.mean)
        noise = bound.var(axis=0, ddof=1).mean()
        signal = ((bound - prediction) ** 2).mean()
        numbers = (bound.mean(axis=0).var(), np.concatenate(deviations).mean() ** 2, noise, signal - noise, signal)
        print(f"| {split} | " + " | ".join(f"{np.sqrt(number):.2f}" for number in numbers) + " |")


if __name__ == "__main__":
    main()
